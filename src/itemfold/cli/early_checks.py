"""Checks of names and paths before a command imports torch, so that typos fail fast."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from itemfold.data.feedback.store import is_postgres
from itemfold.errors import ItemfoldError
from itemfold.losses import LOSSES
from itemfold.models import MODELS
from itemfold.sampling import NEGATIVES
from itemfold.validation import check_name, did_you_mean

FILES = ("config", "titles", "item_features", "item_table", "available", "new_items")
TABLES: Mapping[str, Any] = {"model": MODELS, "loss": LOSSES, "negatives": NEGATIVES}


def check_early(given: Mapping[str, Any]) -> None:
    """Reject names of components, data and run folders that do not exist.

    Args:
        given: The values of a command's parameters, by name.
    """
    for section, table in TABLES.items():
        if isinstance(name := given.get(section), str):
            check_name(table, section, name)
    if given.get("lists") is not None:  # RUN may also be data
        check_data(str(given["run"]))
    else:
        for parameter in ("run", "final"):
            folders = given.get(parameter) or ()
            for folder in folders if isinstance(folders, list | tuple) else (folders,):
                check_run(str(folder))
    for folder in given.get("runs") or ():
        name, is_named, rest = folder.partition("=")
        check_run(rest if is_named and not Path(folder).exists() else folder)
    for parameter in FILES:
        if given.get(parameter) is not None:
            path = Path(given[parameter]).expanduser()
            if not path.exists():
                option = f"--{parameter.replace('_', '-')}"
                raise ItemfoldError(
                    f"'{option}' must be an existing file, got '{path}'{_near(path)}"
                )
    for parameter in ("data", "new"):
        if isinstance(data := given.get(parameter), str):
            check_data(data)


def check_run(folder: str) -> None:
    """Reject a run folder that does not exist."""
    path = Path(folder)
    if folder and not path.exists():
        raise ItemfoldError(f"{folder}: no such folder{_near(path)}")


def check_data(data: str) -> None:
    """Raise unless data is a path, an address or the name of a data set."""
    path = Path(data).expanduser()
    if (
        not data
        or is_postgres(data)
        or "://" in data
        or re.search(r"[*?\[]", path.name)
        or path.exists()
    ):
        return
    if re.search(r"[/\\]|\.\w+$", data) and ":" not in data:
        raise ItemfoldError(f"{data}: no such file or folder{_near(path)}")
    from itemfold.data.datasets import DATASETS

    if (name := data.partition(":")[0]) not in DATASETS:
        known, hint = ", ".join(DATASETS), did_you_mean(name, [*DATASETS, *_siblings(path)])
        raise ItemfoldError(
            f"unknown data '{data}': neither a file or folder nor one of {known}{hint}"
        )


def _near(path: Path) -> str:
    """A suggestion of a similar name in the same folder, or ""."""
    names = {Path(name).stem: name for name in _siblings(path)}  # suffixes are often equal
    near = get_close_matches(path.stem, names, 1, 0.6)
    where = "" if path.parent == Path() else f" in {path.parent}"
    return f"; did you mean {names[near[0]]!r}{where}?" if near else ""


def _siblings(path: Path) -> Iterable[str]:
    try:
        return sorted(os.listdir(path.parent))
    except OSError:
        return ()
