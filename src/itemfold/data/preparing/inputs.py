"""The input files of `prepare`: paths, patterns, folders and partitions, and their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from itemfold.data.columns.choice import Names, choose_columns
from itemfold.data.readers.delimited import Header, header_of
from itemfold.data.readers.files import TABLES, WILD, is_pattern, is_table, matching_files
from itemfold.data.readers.frames import first_line
from itemfold.data.readers.given_split import split_files
from itemfold.data.readers.packed import (
    LATIN1,
    UTF8,
    encoding_note,
    packing_of,
)
from itemfold.data.readers.parquet import check_parquet, is_parquet
from itemfold.data.readers.text_format import Record, TextFormat
from itemfold.data.readers.user_split import is_user_split
from itemfold.errors import ItemfoldError
from itemfold.validation import shown

LONGEST_LINE = 2**24  # bytes of a text file
NONE = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for a missing value
PREPARED_KINDS = f".parquet, {', '.join(TABLES)} (text also compressed)"
ENCODINGS = {UTF8: "utf-8", LATIN1: "latin-1", "utf-16": "utf-16", "utf-16-le": "utf-16"}
COMPRESSIONS = {"": "none", ".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True)
class Input:
    """A file, and columns from the names of its folders, such as ``day=2026-01-31/``."""

    path: Path
    partition: dict[str, str] = field(default_factory=dict)

    def stamp(self) -> list[Any]:
        """Path, size and time of the last change, to notice that a file has changed."""
        found = self.path.stat()
        return [str(self.path), found.st_size, found.st_mtime_ns]


@dataclass(frozen=True)
class InputTable:
    """A file with its columns, as DuckDB reads them."""

    path: Path
    relation: str  # what DuckDB reads
    columns: dict[str, tuple[str, str]]  # role → (expression, type)
    header: Header | None = None  # of a text file
    fixed: dict[str, str] = field(default_factory=dict)  # role → value from the name of a folder
    is_text: bool = False  # whether ids were read from text
    remarks: tuple[str, ...] = ()


def find_inputs(files: Any, without: Path) -> list[Input]:
    """The files of paths, patterns and folders, each once; files inside ``without`` are ignored.

    All must be parquet, or all must be text.
    """
    given = [files] if isinstance(files, str | Path) else files
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise ItemfoldError(f"'files' must be paths or patterns, got {shown(files)}")
    found: dict[Path, Input] = {}
    for one in given:
        if not isinstance(one, str | Path) or not str(one):
            raise ItemfoldError(f"'files' must be paths or patterns, got {shown(one)}")
        for input_ in _expanded(Path(one).expanduser()):
            if not input_.path.is_relative_to(without):
                found.setdefault(input_.path, input_)
    if not found:
        raise ItemfoldError("'files' must name at least one file, got none")
    kinds = {is_parquet(path): path for path in found}
    if len(kinds) > 1:
        raise ItemfoldError(
            f"'files' must all be parquet or all be text, got {kinds[True]} and {kinds[False]}"
        )
    return list(found.values())


def _expanded(path: Path) -> Iterator[Input]:
    """The files of one path, sorted."""
    if is_pattern(path):
        paths, fixed = matching_files(path), WILD.split(str(path))[0]
        root = Path(fixed if fixed.endswith("/") else str(Path(fixed).parent))
    elif path.is_dir():
        _check_joinable(path)
        paths = [
            found
            for found in sorted(path.rglob("*"))
            if (is_table(found) or (found.suffix.lower() == ".parquet" and found.is_file()))
            and not any(  # such names, of Spark and others, are not data
                name.startswith(("_", ".")) and "=" not in name
                for name in found.relative_to(path).parts
            )
        ]
        if not paths:
            raise ItemfoldError(
                f"{path}: expected files that end in {PREPARED_KINDS} in the folder"
            )
        root = path
    else:
        paths, root = [path], path.parent
    for found in paths:
        if not found.exists():
            raise ItemfoldError(f"{found}: no such file or folder")
        if not found.is_file():
            raise ItemfoldError(f"{found}: must be a file or a folder, not a pipe or a device")
        yield Input(found.resolve(), _partition(found, root))


def _check_joinable(folder: Path) -> None:
    """Raise for a folder of a split, whose parts must not become one table."""
    parts = split_files([file for file in sorted(folder.iterdir()) if file.is_file()])
    what = "a test part" if parts else "the parts of a split by users"
    if parts or is_user_split(folder):
        raise ItemfoldError(
            f"{folder}: has {what}, which `prepare` would join with the training rows; name the "
            "files to join, or pass the folder to the other commands as it is"
        )


def _partition(path: Path, root: Path) -> dict[str, str]:
    """Columns from the names of the folders between the root and a file, as Hive writes them.

    >>> _partition(Path("plays/day=2026-01-31/at=10%3A30/a.parquet"), Path("plays"))
    {'day': '2026-01-31', 'at': '10:30'}
    """
    folders = path.relative_to(root).parts[:-1] if path.is_relative_to(root) else ()
    pairs = (name.split("=", 1) for name in folders if "=" in name)
    return {unquote(name): "" if value == NONE else unquote(value) for name, value in pairs}


# --- columns of a file ---------------------------------------------------------------------------


def same_columns(tables: list[InputTable]) -> None:
    """Raise unless all files have the same columns, each text in all files or in none."""
    first = tables[0]
    for table in tables:
        for role in {*first.columns, *table.columns}:
            if (role in first.columns) != (role in table.columns):
                without = table if role in first.columns else first
                raise ItemfoldError(
                    f"{without.path}: has no {role} column, other files have; all files need the "
                    "same columns"
                )
            kinds = [found.columns[role][1] == "VARCHAR" for found in (first, table)]
            if kinds[0] != kinds[1]:
                problem = f"text in this file or in {first.path.name}, but not in both"
                raise ItemfoldError(f"{table.path}: the {role} column is {problem}")


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def parquet(*paths: Path) -> str:
    """Parquet files as an SQL table, with the position of each row."""
    listed = ", ".join(literal(str(path)) for path in paths)
    return f"read_parquet([{listed}], file_row_number = true, hive_partitioning = false)"


def open_parquet(connection: Any, input_: Input, names: Names) -> InputTable:
    """The columns of a parquet file; raises if the user or the item column is missing."""
    path = input_.path
    check_parquet(path)
    relation = parquet(path)
    try:
        found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    except Exception as error:
        raise ItemfoldError(f"{path}: the parquet file is damaged ({reason_of(error)})") from error
    types = {name: kind for name, kind, *_ in found if name != "file_row_number"}
    known = {name: ('"' + name.replace('"', '""') + '"', kind) for name, kind in types.items()}
    parts = {name: (literal(value), "VARCHAR") for name, value in input_.partition.items()}
    known = {**parts, **known}  # a column of the file overrides one of its folder
    at = choose_columns(list(known), names, str(path))
    listed = list(known.values())
    columns = {role: listed[position] for role, position in at.items()}
    return InputTable(path, relation, columns)


def open_text(input_: Input, names: Names, form: TextFormat, rows: list[Record]) -> InputTable:
    """The columns of a text file with this format and these first rows."""
    path, more = input_.path, list(input_.partition)
    header = header_of(path, names, form, rows, more)
    declared = ", ".join(f"'c{j}': 'VARCHAR'" for j in range(len(header.columns)))
    quote = literal('"' if form.quotes else "")
    before = header.line - 1 if form.header else form.skip
    relation = (
        f"read_csv({literal(str(path))}, delim = {literal(form.sep)}, "
        f"header = {str(form.header).lower()}, skip = {before}, quote = {quote}, "
        f"escape = {quote}, auto_detect = false, max_line_size = {LONGEST_LINE}, "
        f"encoding = '{ENCODINGS[form.encoding]}', "
        f"compression = '{COMPRESSIONS[packing_of(path)]}', columns = {{{declared}}}"
    )
    own = len(header.columns)
    values = [input_.partition[name] for name in more]
    known = [*(f"c{j}" for j in range(own)), *map(literal, values)]
    columns = {role: (known[position], "VARCHAR") for role, position in header.at.items()}
    fixed = {
        role: values[position - own] for role, position in header.at.items() if position >= own
    }
    return InputTable(
        path, relation, columns, header, fixed, is_text=True, remarks=encoding_note(form.encoding)
    )


def reason_of(error: BaseException) -> str:
    """The first line of a DuckDB error, without the name of its type."""
    return re.sub(r"^[A-Z][\w ]* Error: ", "", first_line(error))
