"""Configuration files: TOML with one level of sections, read by tomllib and written here."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from itemrec.errors import ItemrecError

Config = dict[str, dict[str, Any]]


def load_config(path: str | Path) -> Config:
    """Read a TOML file of sections."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ItemrecError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ItemrecError(f"{path} is not a TOML file: {error}") from error
    for name, section in content.items():
        if not isinstance(section, dict):
            raise ItemrecError(f"{path}: {name!r} must stand in a section such as [train]")
    return content


def dump_config(config: Config) -> str:
    """The sections as TOML; settings that are None are left out.

    >>> print(dump_config({"train": {"lr": 0.01, "by": "users", "resume": None}}))
    [train]
    lr = 0.01
    by = "users"
    <BLANKLINE>
    """
    blocks = []
    for name, section in config.items():
        lines = [f"{key} = {_value(value)}" for key, value in section.items() if value is not None]
        blocks.append("\n".join([f"[{name}]", *lines, ""]))
    return "\n".join(blocks)


def normalise(config: Config) -> Config:
    """As it reads back from a file: without None, tuples as lists."""
    return tomllib.loads(dump_config(config))


def difference(stored: Config, given: Config) -> str:
    """The first setting in which two configurations differ, in words.

    >>> difference({"train": {"epochs": 60}}, {"train": {"epochs": 99}})
    "'train.epochs' is 60, got 99"
    """
    for section in dict.fromkeys([*stored, *given]):
        theirs, mine = stored.get(section, {}), given.get(section, {})
        for key in dict.fromkeys([*theirs, *mine]):
            if mine.get(key) != theirs.get(key):
                return f"'{section}.{key}' is {theirs.get(key)!r}, got {mine.get(key)!r}"
    return "none"


def _value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str | Path):  # TOML's strings are JSON's, but for one control character
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(entry) for entry in value)}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    raise ItemrecError(f"a setting must be a number, text, list or table, got {value!r}")
