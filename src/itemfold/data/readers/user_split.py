"""Reader of folders that are split by users: training, shown and hidden items in separate files.

The names of the files are those of Mult-VAE (``validation_tr``, ``validation_te``, ``test_tr``,
``test_te``), of RLAE (``valid_in``, ``valid``, ``test_in``, ``test``) or plain ones
(``valid_shown``, ``valid_hidden``, ``test_shown``, ``test_hidden``), beside ``train``. Each is a
table or, with the suffix .txt, has a line for each user.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from itemfold.data.columns.choice import Names, check_not_requested
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.readers.delimited import read_delimited
from itemfold.data.readers.lightgcn import read_adjacency
from itemfold.data.readers.packed import plain_suffix
from itemfold.data.readers.parquet import read_parquet
from itemfold.data.splitting.user_parts import UserPart, check_complete, join_tables
from itemfold.errors import ItemfoldError

KINDS = (".txt", ".csv", ".tsv", ".inter", ".parquet")
ITEM_IDS = "unique_sid.txt"  # line n has the original id of item n


@dataclass(frozen=True)
class Style:
    """File names of a split by users, without suffix; ``marks`` distinguish the styles."""

    names: tuple[str, str, str, str]  # shown and hidden for validation, the same for test
    marks: tuple[str, ...]
    columns: tuple[str, str] | None = None  # of user and item, if they are not requested

    @property
    def stems(self) -> dict[UserPart, str]:
        """The name of each part."""
        return dict(zip(UserPart, ("train", *self.names), strict=True))


_SHOWN = ("valid_shown", "valid_hidden", "test_shown", "test_hidden")
_ARGUMENTS = ("valid_shown", "valid_hidden", "shown", "hidden")  # of `read_user_split`
_MULT_VAE = ("validation_tr", "validation_te", "test_tr", "test_te")
STYLES = (
    Style(_SHOWN, _SHOWN[2:]),
    Style(_ARGUMENTS, _ARGUMENTS[2:]),
    Style(_MULT_VAE, _MULT_VAE, ("uid", "sid")),
    Style(("valid_in", "valid", "test_in", "test"), ("valid_in", "test_in")),
)


def is_user_split(folder: Path) -> bool:
    """Whether a folder has a file of shown or hidden items."""
    return bool(_styles(_files(folder)))


def read_split_folder(
    folder: Path, names: Names, *, skip: bool = False, header: bool | None = None
) -> RawTable:
    """Read the parts of a folder; raises if a file is missing or parts overlap."""
    files = _files(folder)
    styles = _styles(files)
    if len(styles) > 1:
        marks = [next(mark for mark in style.marks if mark in files) for style in styles]
        first, second = (files[mark][0].name for mark in marks[:2])
        raise ItemfoldError(
            f"{folder}: has files of two splits by users, {first} and {second}; keep one of them"
        )
    style = styles[0]
    found: dict[UserPart, Path] = {}
    for part, stem in style.stems.items():
        same = files.get(stem, [])
        if len(same) > 1:
            raise ItemfoldError(
                f"{folder}: expected one file '{stem}', found {same[0].name} and {same[1].name}"
            )
        if same:
            found[part] = same[0]
    suffix = next(iter(found.values())).name.partition(".")[2]
    missing = {part: str(folder / f"{stem}.{suffix}") for part, stem in style.stems.items()}
    check_complete(found, {**missing, **{part: str(path) for part, path in found.items()}})
    tables = {part: _read(path, names, style, skip, header) for part, path in found.items()}
    if style.columns is not None and (folder / ITEM_IDS).is_file():
        tables = _with_original_ids(tables, found, folder / ITEM_IDS)
    return join_tables(tables, {part: str(path) for part, path in found.items()})


def _files(folder: Path) -> dict[str, list[Path]]:
    """Files of a known kind by their names without suffix."""
    out: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if plain_suffix(path) in KINDS and path.is_file():
            out.setdefault(path.name.partition(".")[0].lower(), []).append(path)
    return out


def _styles(files: dict[str, list[Path]]) -> list[Style]:
    found = [style for style in STYLES if any(mark in files for mark in style.marks)]
    if not found and {*_SHOWN[:2]} & {*files}:  # names of both of the first styles
        found = [STYLES[0]]
    return found


def _read(path: Path, names: Names, style: Style, skip: bool, header: bool | None) -> RawTable:
    if plain_suffix(path) == ".txt":
        check_not_requested(names, skip, path)
        users, items = read_adjacency(path)
        if not len(users):
            raise ItemfoldError(f"{path}: no user has an item")
        return RawTable(users, items)
    if style.columns is not None:
        known = dict(zip(("user", "item"), style.columns, strict=True))
        names = {**names, **{r: names.get(r) or name for r, name in known.items()}}
    if plain_suffix(path) == ".parquet":
        return read_parquet(path, names, skip=skip)
    return read_delimited(path, names, skip=skip, header=header)


def _with_original_ids(
    tables: dict[UserPart, RawTable], found: dict[UserPart, Path], path: Path
) -> dict[UserPart, RawTable]:
    """Replace the numbers of items by the ids that a file lists in their order."""
    listed = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    while listed and not listed[-1]:
        listed.pop()
    if not listed or not all(listed):
        raise ItemfoldError(f"{path}: expected one item id on each line")
    if len(set(listed)) < len(listed):
        twice = next(item for item in listed if listed.count(item) > 1)
        raise ItemfoldError(f"{path}: item {twice!r} has two lines; expected one for each item")
    ids = np.array(listed, dtype=object)
    if all(item.isascii() and item.isdigit() and str(int(item)) == item for item in listed):
        ids = ids.astype(np.int64)
    out = {}
    for part, table in tables.items():
        items = table.item
        if items.dtype.kind != "i" or items.min() < 0 or items.max() >= len(ids):
            number = items.dtype.kind == "i"
            wrong = int(items.min() if items.min() < 0 else items.max()) if number else items[0]
            raise ItemfoldError(
                f"{found[part]}: item {wrong!r} is not a line of {path.name}, which lists items 0 "
                f"to {len(ids) - 1:,}"
            )
        out[part] = replace(table, item=ids[items])
    return out
