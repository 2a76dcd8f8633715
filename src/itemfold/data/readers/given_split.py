"""Files of a split that comes with the data, such as train.csv, valid.csv and test.csv."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from itemfold.data.columns.concatenation import concatenated
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.readers.packed import SUFFIXES

PARTS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}


def part_of(path: Path) -> str:
    """The part of a split that the name of a file indicates, or an empty text.

    >>> [part_of(Path(name)) for name in ("ml.train.inter", "Test.csv", "my_val.txt", "plays.csv")]
    ['train', 'test', 'valid', '']
    """
    name = path.stem if path.suffix.lower() in SUFFIXES else path.name
    words = name.lower().split(".")
    words = [word for part in words[: max(1, len(words) - 1)] for word in re.split("[_-]", part)]
    named = {part for part, names in PARTS.items() if set(names) & {words[0], words[-1]}}
    return named.pop() if len(named) == 1 else ""


def split_files(files: Sequence[Path]) -> dict[str, Path]:
    """The files of a split by part; empty unless there is one for training and one for test."""
    found: dict[str, list[Path]] = {}
    for file in files:
        if part := part_of(file):
            found.setdefault(part, []).append(file)
    is_split = {"train", "test"} <= set(found) and all(len(same) == 1 for same in found.values())
    return {part: found[part][0] for part in PARTS if part in found} if is_split else {}


def read_given_split(
    found: dict[str, Path], read: Callable[[Path], RawTable], others: Sequence[str]
) -> RawTable:
    """Read the files of a split: test rows are held out, validation rows join the training rows.

    ``others`` are files beside them that are not read.
    """
    tables = {part: read(path) for part, path in found.items()}
    joined = concatenated(list(tables.values()), [str(path) for path in found.values()])
    rows = [len(table.user) for table in tables.values()]
    held_out = np.repeat([part == "test" for part in tables], rows)
    remarks = list(joined.remarks)
    if "valid" in found:
        remarks.append(valid_note(found["valid"].name, len(tables["valid"].user)))
    if others:
        remarks.append(f"Files of the folder that were not read: {', '.join(others)}.")
    return replace(joined, held_out=held_out, remarks=tuple(remarks))


def valid_note(name: str, rows: int) -> str:
    """A note on the use of the rows of a validation file."""
    return (
        f"Rows of {name} that join the training data: {rows:,}; validation interactions are drawn "
        "from both files."
    )


def ignored_note(path: Path) -> tuple[str, ...]:
    """A note on a test file beside a training file that is read alone."""
    if part_of(path) != "train":
        return ()
    beside = split_files([file for file in sorted(path.parent.iterdir()) if file.is_file()])
    if beside.get("train") != path:
        return ()
    return (f"{beside['test'].name} beside it is not read; pass the folder to use it.",)
