"""Configuration files: TOML with one level of sections."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from itemrec.errors import ItemrecError
from itemrec.renamed import current_names

Config = dict[str, dict[str, Any]]


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or an error that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ItemrecError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ItemrecError(f"{path} is not a TOML file: {error}") from error


def load_config(path: str | Path, *, note: bool = True) -> Config:
    """Read a TOML file of sections; old setting names are accepted, with a warning if `note`."""
    content = read_toml(Path(path))
    for name, section in content.items():
        if not isinstance(section, dict):
            raise ItemrecError(f"{path}: {name!r} must be in a section such as [train]")
    return {name: current_names(name, section, note=note) for name, section in content.items()}


def dump_config(config: Config) -> str:
    """Format the sections as TOML; settings that are None are left out.

    >>> print(dump_config({"train": {"lr": 0.01, "batch_by": "users", "patience": None}}), end="")
    [train]
    lr = 0.01
    batch_by = "users"
    """
    try:
        return tomli_w.dumps(_plain(config))
    except (TypeError, ValueError) as error:
        raise ItemrecError(f"a setting must be a number, text, list or table: {error}") from error


def normalise(config: Config) -> Config:
    """Return the configuration as it would be read from a file: no None, tuples as lists."""
    return tomllib.loads(dump_config(config))


def difference(stored: Config, given: Config) -> str:
    """Describe the first setting in which two configurations differ.

    >>> difference({"train": {"epochs": 60}}, {"train": {"epochs": 99}})
    "'train.epochs' is 60, got 99"
    """
    for section in dict.fromkeys([*stored, *given]):
        old, new = stored.get(section, {}), given.get(section, {})
        for key in dict.fromkeys([*old, *new]):
            if new.get(key) != old.get(key):
                return f"'{section}.{key}' is {old.get(key)!r}, got {new.get(key)!r}"
    return "none"


def _plain(value: Any) -> Any:
    """Convert to types that TOML supports; table entries that are None are left out."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value
