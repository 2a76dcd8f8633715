"""Configuration files: TOML with a table per section; a nested model is a nested table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from itemfold.errors import ItemfoldError
from itemfold.settings.schema import Config

# Names of settings in run folders of release 0.1.
OLD_NAMES: dict[str, dict[str, str]] = {
    "split": {"verb": "strategy"},
    "train": {
        "by": "batch_by",
        "sampled": "n_negatives",
        "average": "ema_decay",
        "every": "eval_every",
    },
}


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or an error that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ItemfoldError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ItemfoldError(f"{path} is not a TOML file: {error}") from error


def load_config(path: str | Path) -> Config:
    """Read a TOML file of sections."""
    content = read_toml(Path(path))
    for name, section in content.items():
        if not isinstance(section, dict):
            raise ItemfoldError(f"{path}: {name!r} must be in a section such as [train]")
    return content


def load_stored(path: str | Path) -> Config:
    """Read a file written by this package, with the current names of settings."""
    return {
        section: {OLD_NAMES.get(section, {}).get(key, key): value for key, value in values.items()}
        for section, values in load_config(path).items()
    }


def dump_config(config: Config, sources: Mapping[str, str] | None = None) -> str:
    """Format the sections as TOML; settings that are None are left out.

    ``sources`` ("train.lr": "option") are added as comments behind the values.

    >>> config = {"train": {"lr": 0.01, "batch_by": "users", "patience": None}}
    >>> print(dump_config(config, {"train.lr": "option"}), end="")
    [train]
    lr = 0.01  # option
    batch_by = "users"
    """
    try:
        text = tomli_w.dumps(_plain(config))
    except (TypeError, ValueError) as error:
        raise ItemfoldError(f"a setting must be a number, text, list or table: {error}") from error
    return text if sources is None else _with_comments(text, sources)


def _with_comments(text: str, sources: Mapping[str, str]) -> str:
    """Add the source of each setting to the line that it begins on."""
    table, lines = "", []
    for line in text.splitlines():
        key, equals, _ = line.partition(" = ")
        if line.startswith("["):
            table = line.strip("[]")
        elif equals and (source := sources.get(f"{table}.{key}")):
            line = f"{line}  # {source}"
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def normalise(config: Config) -> Config:
    """The configuration as it would be read from a file: no None, tuples as lists."""
    return tomllib.loads(dump_config(config))


def difference(stored: Config, given: Config) -> str:
    """Describe the first setting in which two configurations differ, or return "".

    >>> difference({"train": {"epochs": 60}}, {"train": {"epochs": 99}})
    "'train.epochs' is 60, got 99"
    """
    old, new = flat(stored), flat(given)
    for path in dict.fromkeys([*old, *new]):
        if new.get(path) != old.get(path):
            return f"'{path}' is {old.get(path)!r}, got {new.get(path)!r}"
    return ""


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All settings by their paths.

    >>> flat({"model": {"name": "hybrid", "gnn": {"dim": 8}}})
    {'model.name': 'hybrid', 'model.gnn.dim': 8}
    """
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def put(table: dict[str, Any], path: str, value: Any) -> None:
    """Set a value by its path; a component given by name becomes a table.

    >>> table = {"gnn": "gcn"}
    >>> put(table, "gnn.dim", 8)
    >>> table
    {'gnn': {'name': 'gcn', 'dim': 8}}
    """
    head, dot, rest = path.partition(".")
    if not dot:
        table[path] = value
        return
    within = table.get(head, {})
    table[head] = {"name": within} if isinstance(within, str) else dict(within)
    put(table[head], rest, value)


def _plain(value: Any) -> Any:
    """Convert to types that TOML supports; table entries that are None are left out."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value
