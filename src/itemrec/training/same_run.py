"""Whether a run can be continued: the folder must hold the same settings on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from itemrec.config_file import Config, difference, normalise
from itemrec.errors import ItemrecError
from itemrec.models import MODELS
from itemrec.models.base import Kind
from itemrec.training.config import TrainConfig
from itemrec.training.plan import OPEN
from itemrec.training.run import Run
from itemrec.validation import schema


def check_same(
    folder: Path, stored: Config | None, metrics: dict[str, Any] | None, run: Run
) -> None:
    """Reject continuing a run with different settings or on different data.

    ``stored`` are the settings in the folder, ``metrics`` those of a finished run.
    """
    asked = normalise(run.asked)
    given = asked if stored is None or metrics is None else normalise(run.config)
    if stored is not None and metrics is not None:
        stored = _without_choices(stored, metrics.get("chosen", {}), given, asked)
    if stored is not None and "train" in stored:  # settings that came later have their defaults
        still_open = OPEN if run.model.kind is Kind.HYBRID else ()
        later = _later_settings(given, stored, still_open)
        stored["train"] = {**later, **stored["train"]}
    if stored is not None and stored != given:
        changed = difference(stored, given)
        raise ItemrecError(f"{folder} holds a run with other settings: {changed}")
    if metrics is not None:
        dataset = metrics.get("dataset", {})
        if any(dataset.get(key) != run.dataset.get(key) for key in ("fingerprint", "weights")):
            raise ItemrecError(f"{folder} holds a run on other data; it cannot be resumed")


def _without_choices(stored: Config, chosen: Config, given: Config, asked: Config) -> Config:
    """The stored settings as they were given, before the run chose those left open.

    What was chosen then but is asked for now must be what was chosen.
    """
    out: Config = {section: dict(settings) for section, settings in stored.items()}
    kind = MODELS.get(stored["model"]["name"])
    defaults = {} if kind is None else schema(kind)
    for section, settings in chosen.items():
        if section in ("loss", "negatives") and asked[section]:
            continue
        if "name" in settings:  # another component
            out[section] = dict(given[section])
        for name in settings:
            is_open = section != "model" or defaults.get(name) is None
            if is_open and name in asked[section]:
                continue
            out[section].pop(name, None)
            if name in given[section]:
                out[section][name] = given[section][name]
    return out


def _later_settings(given: Config, stored: Config, still_open: Sequence[str]) -> dict[str, Any]:
    """Training settings that an older version did not have, where the default is asked for.

    A setting may also be missing because the run has yet to choose it.
    """
    defaults = schema(TrainConfig)
    return {
        name: value
        for name, value in given["train"].items()
        if name not in (*stored["train"], *still_open) and value == defaults[name]
    }
