"""Readers of files, folders and patterns, whose format is detected from their content."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from itemfold.data.columns.choice import Names, choose_columns
from itemfold.data.columns.concatenation import concatenated
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.feedback.file_store import FILES as FEEDBACK_FILES
from itemfold.data.feedback.reading import is_feedback, read_feedback
from itemfold.data.items.item_files import has_titles
from itemfold.data.readers.baskets import is_basket_file, read_baskets
from itemfold.data.readers.delimited import header_of, read_rows, sniff_table
from itemfold.data.readers.given_split import ignored_note, read_given_split, split_files
from itemfold.data.readers.json_table import is_json, open_json, read_json
from itemfold.data.readers.lightgcn import read_lightgcn
from itemfold.data.readers.packed import SUFFIXES, checked_encoding, plain_suffix
from itemfold.data.readers.parquet import is_parquet, read_parquet, read_parquet_parts
from itemfold.data.readers.user_split import is_user_split, read_split_folder
from itemfold.data.readers.wide import is_wide, read_wide
from itemfold.errors import ItemfoldError

WILD = re.compile(r"[*?\[]")  # in patterns of file names

TABLES = (
    ".csv", ".tsv", ".inter", ".rating", ".dat", ".data", ".txt", ".json", ".jsonl", ".ndjson"
)  # fmt: skip
MOVIELENS = {"ratings.csv": "movies.csv", "ratings.dat": "movies.dat", "u.data": "u.item"}  # titles
OF_A_RUN = ("config.toml", "ids.json")  # files of a run folder
ABOUT = ("readme", "license", "licence", "citation")  # files about data
IN_FOLDERS = (
    "expected train.txt, MovieLens's ratings, parquet files or {feedback} in the folder, the files "
    "of a split by users, or tables with the same columns ({tables}, also compressed)"
)


@dataclass(frozen=True)
class RowRules:
    """How the rows of a source are read.

    Attributes:
        names: For each role, the requested column.
        skip: Whether bad rows are left out.
        header: Whether the first row of a text file has names; None recognises it.
    """

    names: Names
    skip: bool = False
    header: bool | None = None


def read_path(path: Path, rules: RowRules) -> tuple[RawTable, Path | None]:
    """The columns of a file, a folder or a pattern, and the file of titles next to it, if any."""
    try:
        if is_pattern(path):
            files = matching_files(path)
            titles = _titles_beside(files[0]) if len(files) == 1 else None
            return _read_parts(path, files, rules), titles
        if path.is_dir():
            return _read_folder(path, rules)
        table = read_file(path, rules)
        return _with_remarks(table, ignored_note(path)), _titles_beside(path)
    except OSError as error:
        raise ItemfoldError(f"{path}: cannot be read ({error.strerror or error})") from error


def is_pattern(path: Path) -> bool:
    """Whether a path is a pattern of file names and not itself an existing file.

    >>> is_pattern(Path("plays/*/a.csv")), is_pattern(Path("plays.parquet"))
    (True, False)
    """
    return bool(WILD.search(str(path))) and not path.exists()


def matching_files(path: Path) -> list[Path]:
    """The files that match a pattern, sorted."""
    listed = map(Path, sorted(glob.glob(str(path), recursive=True)))
    found = [file for file in listed if file.is_file()]
    if not found:
        raise ItemfoldError(f"{path}: no file matches this pattern")
    return found


def short_name(path: Path) -> str:
    """The name of data in results: the name of its file or folder.

    >>> short_name(Path("/data/plays/*.parquet")), short_name(Path("plays-2026*.parquet"))
    ('plays', 'plays-2026')
    """
    if is_pattern(path):
        wild = next(n for n, part in enumerate(path.parts) if WILD.search(part))
        fixed = WILD.split(path.parts[wild])[0].strip("-_.")
        return fixed or Path(*path.parts[:wild]).resolve().name
    inner = path.with_suffix("") if path.suffix.lower() in SUFFIXES else path
    return inner.stem if path.is_file() else path.resolve().name


def read_file(path: Path, rules: RowRules) -> RawTable:
    """The columns of a file."""
    if not path.exists():
        raise ItemfoldError(f"{path}: no such file or folder")
    if not path.is_file():  # reading a pipe would wait for a writer
        raise ItemfoldError(f"{path}: must be a file or a folder, not a pipe or a device")
    names, skip = rules.names, rules.skip
    if is_feedback(path):
        return read_feedback(path, skip=skip)
    if is_parquet(path):
        return read_parquet(path, names, skip=skip)
    if is_json(path):
        return read_json(path, names, skip=skip)
    form, rows = sniff_table(path, names, rules.header)
    is_list = (rules.header is None or not form.even) and is_basket_file(form, rows)
    if is_list or is_wide(names, form, rows):
        form = replace(form, encoding=checked_encoding(path, form.encoding))
    if is_list:
        _check_alone(path)
        return read_baskets(path, names, form, skip=skip)
    if is_wide(names, form, rows):
        return read_wide(path, form, skip=skip)
    return read_rows(path, header_of(path, names, form, rows), names, skip=skip)


def _check_alone(path: Path) -> None:
    """Raise for one file of a split that has several."""
    folder, stem = path.parent, path.name.partition(".")[0]
    other = "test" if stem == "train" else "train"
    beside = folder / f"{other}{path.name[len(stem) :]}"
    if is_user_split(folder) or (stem in ("train", "test", "valid") and beside.is_file()):
        raise ItemfoldError(
            f"{path}: is one part of a split; pass the folder, so that {beside.name} is read, too"
        )


def _read_folder(path: Path, rules: RowRules) -> tuple[RawTable, Path | None]:
    names, skip = rules.names, rules.skip
    if all((path / name).is_file() for name in OF_A_RUN):
        raise ItemfoldError(
            f"{path}: is a run folder, not data; pass the data that it was trained on, or retrain "
            f"it on all data with itemfold train --final {path}"
        )
    if is_user_split(path):
        return read_split_folder(path, names, skip=skip, header=rules.header), None
    if (path / "train.txt").is_file():
        return read_lightgcn(path, names, skip=skip), None
    for ratings in (path / name for name in MOVIELENS):
        if ratings.is_file():
            return read_file(ratings, rules), _titles_beside(ratings)
    if parts := sorted(path.glob("*.parquet")):
        return read_parquet_parts(path, parts, names, skip=skip), None
    if any(path.glob(FEEDBACK_FILES)):
        return read_feedback(path, skip=skip), None
    if len(atomic := sorted(path.glob("*.inter"))) == 1:
        return read_file(atomic[0], rules), _titles_beside(atomic[0])
    parts = [file for file in sorted(path.iterdir()) if is_table(file)]
    if not parts:
        expected = IN_FOLDERS.format(feedback=FEEDBACK_FILES, tables=", ".join(TABLES))
        raise ItemfoldError(f"{path}: {expected}")
    if split := split_files(parts):
        others = [part.name for part in parts if part not in split.values()]
        return read_given_split(split, lambda part: read_file(part, rules), others), None
    if len(parts) > 1 and len(pairs := [p for p in parts if _has_pairs(p, rules)]) == 1:
        return _read_one_of(pairs[0], [part for part in parts if part != pairs[0]], rules)
    return _read_parts(path, parts, rules), None


def _with_remarks(table: RawTable, remarks: tuple[str, ...]) -> RawTable:
    return replace(table, remarks=(*table.remarks, *remarks)) if remarks else table


def _has_pairs(path: Path, rules: RowRules) -> bool:
    """Whether a table may have interactions: no header, or columns of users and items."""
    try:
        if is_json(path):
            choose_columns(open_json(path).names, rules.names, str(path))
            return True
        form, rows = sniff_table(path, rules.names, rules.header)
        return not form.header or bool(header_of(path, rules.names, form, rows))
    except ItemfoldError:
        return False


def _read_one_of(
    path: Path, others: Sequence[Path], rules: RowRules
) -> tuple[RawTable, Path | None]:
    """Read the only table of a folder that has interactions, and find the one with titles."""
    titles = [other for other in others if has_titles(other)]
    table = read_file(path, rules)
    not_read = ", ".join(other.name for other in others if other not in titles[:1])
    remark = f"The interactions are those of {path.name}"
    remark += f", the titles those of {titles[0].name}" if titles else ""
    remark += f"; not read: {not_read}." if not_read else "."
    return _with_remarks(table, (remark,)), titles[0] if titles else None


def is_table(path: Path) -> bool:
    """Whether a file of a folder is a table, by its name."""
    name = path.name.lower()
    is_data = not name.startswith((".", "_", *ABOUT))
    return path.is_file() and is_data and plain_suffix(path) in TABLES


def _titles_beside(path: Path) -> Path | None:
    """The titles of MovieLens, or RecBole's file of items, if present."""
    beside = path.with_name(MOVIELENS.get(path.name, path.name))
    beside = path.with_suffix(".item") if path.suffix.lower() == ".inter" else beside
    return beside if beside != path and beside.is_file() else None


def _read_parts(place: Path, parts: Sequence[Path], rules: RowRules) -> RawTable:
    """Read several files with the same columns as one table."""
    if len(parts) == 1:
        return read_file(parts[0], rules)
    parquet = [is_parquet(part) for part in parts]
    if all(parquet):
        return read_parquet_parts(place, list(parts), rules.names, skip=rules.skip)
    first: Any = None
    tables: list[RawTable] = []
    for part in parts:
        try:
            table = read_file(part, rules)
        except ItemfoldError as error:
            raise _several(place, parts, part, error) from error
        used = None if table.layout is None else dict(table.layout.columns)
        if tables and used != first:
            shown = "other columns than" if used else "no columns, unlike"
            raise _several(place, parts, part, f"it has {shown} {parts[0].name}")
        first = used
        tables.append(table)
    joined = concatenated(tables, [str(part) for part in parts])
    remark = f"{len(parts):,} files were read as one table."
    return replace(joined, layout=tables[0].layout, remarks=(remark, *joined.remarks))


def _several(
    place: Path, parts: Sequence[Path], part: Path, problem: ItemfoldError | str
) -> ItemfoldError:
    """The error for files that do not form one table."""
    listed = ", ".join(file.name for file in parts[:8]) + (", …" if len(parts) > 8 else "")
    short = str(problem).removeprefix(f"{part}: ").partition(" (name it")[0]
    return ItemfoldError(
        f"{place}: {listed} are not one table ({part.name}: {short}); pass the file with the "
        "interactions, and the one with titles as --titles"
    )
