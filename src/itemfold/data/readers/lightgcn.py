"""Reader of LightGCN's folders: train.txt, valid.txt and test.txt, with a line for each user."""

import io
from pathlib import Path
from typing import NoReturn

import numpy as np

from itemfold.data.array_types import Ints
from itemfold.data.columns.choice import Names, check_not_requested
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.readers.given_split import valid_note
from itemfold.errors import ItemfoldError


def read_lightgcn(folder: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Read a folder with train.txt and optionally test.txt, whose pairs are held out.

    Pairs of valid.txt join those of train.txt.
    """
    check_not_requested(names, skip, folder / "train.txt")
    users, items = read_adjacency(folder / "train.txt")
    if len(users) == 0:
        raise ItemfoldError(f"{folder / 'train.txt'}: no user has an item")
    remarks: tuple[str, ...] = ()
    if (valid := folder / "valid.txt").is_file():
        more = read_adjacency(valid)
        users, items = np.concatenate((users, more[0])), np.concatenate((items, more[1]))
        remarks = (valid_note(valid.name, len(more[0])),)
    if not (folder / "test.txt").exists():
        return RawTable(users, items, remarks=remarks)
    test_users, test_items = read_adjacency(folder / "test.txt")
    held_out = np.zeros(len(users) + len(test_users), dtype=np.bool_)
    held_out[len(users) :] = True
    return RawTable(
        np.concatenate((users, test_users)),
        np.concatenate((items, test_items)),
        held_out=held_out,
        remarks=remarks,
    )


def read_adjacency(path: Path) -> tuple[Ints, Ints]:
    """(users, items) of a LightGCN file: one line per user, `user item item …`, ids ≥ 0."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise ItemfoldError(f"{path}: the file is empty; expected lines 'user item item …'")
    if data.translate(None, b"0123456789 \t\r\n"):
        _raise_bad_id(path, data)
    raw = np.frombuffer(data, dtype=np.uint8)
    digit = raw >= 48  # every remaining byte below '0' is white space
    starts = np.flatnonzero(digit & ~np.concatenate(([False], digit[:-1])))  # [tokens]
    ends = np.flatnonzero(digit & ~np.concatenate((digit[1:], [False])))
    if (ends - starts).max() >= 18:
        _raise_bad_id(path, data)
    values = np.fromstring(data.decode("ascii"), dtype=np.int64, sep=" ")  # [tokens]
    line = np.searchsorted(np.flatnonzero(raw == 10), starts)  # [tokens], from 0
    first = np.concatenate(([True], line[1:] != line[:-1]))
    heads = values[first]
    unique, counts = np.unique(heads, return_counts=True)
    if len(unique) != len(heads):
        user = unique[counts.argmax()]
        lines = line[first][heads == user][:2] + 1
        raise ItemfoldError(
            f"{path}, line {lines[1]}: user {user} already has line {lines[0]}; "
            "expected one line per user"
        )
    per_line = np.diff(np.flatnonzero(np.concatenate((first, [True])))) - 1
    return np.repeat(heads, per_line), values[~first]


def _raise_bad_id(path: Path, data: bytes) -> NoReturn:
    for number, text in enumerate(io.BytesIO(data), start=1):
        for token in text.split():
            if not token.isdigit() or len(token) > 18:
                shown = token.decode("utf-8", "replace")[:40]
                raise ItemfoldError(
                    f"{path}, line {number}: expected non-negative integer ids separated by "
                    f"spaces, got '{shown}'"
                )
    raise ItemfoldError(f"{path}: expected non-negative integer ids separated by spaces")
