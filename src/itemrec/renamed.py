"""Renamed settings; the old names are accepted until 0.3, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from itemrec.errors import ItemrecError

RENAMED: dict[str, dict[str, str]] = {
    "split": {"verb": "strategy"},
    "train": {
        "by": "batch_by",
        "sampled": "n_negatives",
        "average": "ema_decay",
        "every": "eval_every",
    },
}


def current_name(section: str, key: str) -> str:
    """The current name of a setting.

    >>> current_name("train", "sampled"), current_name("train", "lr")
    ('n_negatives', 'lr')
    """
    return RENAMED.get(section, {}).get(key, key)


def current_path(path: str) -> str:
    """What a setting is called now, with its section.

    >>> current_path("train.sampled"), current_path("loss.tau")
    ('train.n_negatives', 'loss.tau')
    """
    section, dot, key = path.partition(".")
    return f"{section}{dot}{current_name(section, key)}"


def current_names(
    section: str, settings: Mapping[str, Any], *, note: bool = True
) -> dict[str, Any]:
    """The settings of a section under their current names; warn about each old name."""
    for key in settings:
        name = current_name(section, key)
        if name != key and name in settings:
            raise ItemrecError(
                f"'{section}.{key}' and '{section}.{name}' are the same setting: give only "
                f"'{section}.{name}'"
            )
        if note and name != key:
            warnings.warn(
                f"'{section}.{key}' is called '{section}.{name}' now; the old name works until 0.3",
                FutureWarning,
                stacklevel=3,
            )
    return {current_name(section, key): value for key, value in settings.items()}
