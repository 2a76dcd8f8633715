"""Reader of delimited text with a header line: .csv, .tsv and RecBole's .inter, also gzipped."""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
import numpy.typing as npt

from itemfold.data.bad_rows import find_problems, kept_rows
from itemfold.data.columns import KNOWN_NAMES, Names, RawTable, choose_columns, plain_name, table_of
from itemfold.data.readers.frames import first_line, salvaged, used_roles
from itemfold.errors import ItemfoldError, NoRowsError


def kind_of(path: Path) -> str:
    """The suffix that determines a file's format, ignoring case and compression.

    >>> kind_of(Path("Plays.CSV")), kind_of(Path("plays.csv.gz"))
    ('.csv', '.csv')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


@dataclass(frozen=True)
class Header:
    """The header line of a text file: columns, the position of each role, and the format."""

    line: int
    columns: list[str]
    at: dict[str, int]  # role → position
    sep: str
    quotes: bool

    @property
    def shown(self) -> str:
        """The separator as it is named in messages."""
        return {"\t": "a tab"}.get(self.sep, f"'{self.sep}'")

    def ragged(self, fields: list[str]) -> str:
        """The problem of a row with more or fewer fields than the header, or an empty string."""
        if len(fields) == len(self.columns):
            return ""
        return (
            f"expected {len(self.columns)} fields separated by {self.shown}, as in the header, "
            f"found {len(fields)}: {self.sep.join(fields)[:60]!r}"
        )


def read_header(path: Path, names: Names, more: Sequence[str] = ()) -> Header:
    """Read the header of a text file; ``more`` names columns that follow those of the file."""
    sep, quotes = separator_of(path), kind_of(path) != ".inter"
    first = next(records_of(path, sep, quotes), None)
    if first is None:
        raise ItemfoldError(f"{path}: the file is empty; expected a header line and rows")
    line, columns = first
    if columns[0].lower().startswith("sep="):
        raise ItemfoldError(
            f"{path}, line {line}: expected a header, found the line 'sep=' that Excel writes; "
            "remove this line"
        )
    header = Header(line, columns, {}, sep, quotes)
    if len(columns) == 1:
        raise ItemfoldError(
            f"{path}, line {line}: expected columns separated by {header.shown}, "
            f"found one column: {columns[0][:60]!r}"
        )
    try:
        return replace(header, at=choose_columns([*columns, *more], names, str(path)))
    except ItemfoldError as error:
        if not _looks_like_data(columns):
            raise
        hint = f"line {line} looks like data, not column names; add a header line"
        raise ItemfoldError(f"{error}; {hint}") from error


def _looks_like_data(columns: list[str]) -> bool:
    """Whether no column has a known name and some of the names are numbers."""
    known = {name for names in KNOWN_NAMES.values() for name in names}
    numbers = (column.strip().removeprefix("-").replace(".", "", 1) for column in columns)
    return not known & set(map(plain_name, columns)) and any(map(str.isdecimal, numbers))


def read_delimited(path: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Read the columns of a .csv, .tsv or RecBole .inter file with a header line."""
    header = read_header(path, names)
    columns, at = header.columns, header.at

    def where(row: int) -> str:
        for n, (line, _) in enumerate(records_of(path, header.sep, header.quotes)):
            if n == row + 1:
                return f"{path}, line {line}"
        return f"{path}, row {row + 1}"

    def strict() -> RawTable:
        text = [columns[at["user"]], columns[at["item"]]]
        try:
            frame = _load(path, header, text)
        except Exception as error:  # each engine raises its own types
            problem = (
                f"{path}: not readable as text separated by {header.shown} ({first_line(error)})"
            )
            raise ItemfoldError(problem) from error
        if len(frame) == 0:
            if next(text_records(path, header), None):  # Python knows more line ends than polars
                raise ItemfoldError(
                    f"{path}: lines must not end with a carriage return alone; save the file with "
                    "line feeds"
                )
            raise NoRowsError(f"{path}: the file has a header but no rows")
        real = list(frame.columns)
        return table_of(lambda j: frame[real[j]], at, where, text=True, names=names)

    def without_bad_rows() -> RawTable | None:
        rows = [fields for _, fields in text_records(path, header)]
        ragged = {row: why for row, fields in enumerate(rows) if (why := header.ragged(fields))}
        whole = [fields if row not in ragged else columns for row, fields in enumerate(rows)]
        used = used_roles(at, names, skip)
        bad = find_problems({r: [f[at[r]] for f in whole] for r in used}, ragged)
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(rows), str(path), where, skip=skip)
        kept = [fields for fields, good in zip(rows, keep, strict=True) if good]

        def column(position: int) -> npt.NDArray[Any]:
            return np.array([fields[position] for fields in kept], dtype=object)

        return replace(table_of(column, at, where, text=True, names=names), skipped=skipped)

    return salvaged(strict, without_bad_rows)


def _load(path: Path, header: Header, text: list[str]) -> Any:
    """Load a polars frame, or a pandas one without polars; ``text`` columns stay text."""
    try:
        import polars as pl
    except ImportError:
        import pandas as pd

        quoting = csv.QUOTE_MINIMAL if header.quotes else csv.QUOTE_NONE
        return pd.read_csv(
            path, sep=header.sep, quoting=quoting, dtype=dict.fromkeys(text, str),
            keep_default_na=False, na_values=[""], low_memory=False, encoding="utf-8-sig",
            index_col=False,
        ).dropna(how="all")  # fmt: skip
    frame = pl.read_csv(
        path, separator=header.sep, quote_char='"' if header.quotes else None,
        schema_overrides=dict.fromkeys(text, pl.String), infer_schema_length=None, glob=False,
    )  # fmt: skip
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines


def text_records(path: Path, header: Header) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of every row below the header, without blank lines."""
    records = records_of(path, header.sep, header.quotes)
    next(records, None)
    return records


def records_of(path: Path, sep: str, quotes: bool) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of every line, without blank lines; slow, for headers and error messages."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    csv.field_size_limit(1 << 30)
    try:
        with _open(path, newline="") as file:
            reader = csv.reader(file, delimiter=sep, quoting=quoting)
            for fields in reader:
                if any(fields):
                    yield reader.line_num, fields
    except UnicodeDecodeError as error:
        problem = f"expected UTF-8 text ({first_line(error)}); save the file as UTF-8"
        raise ItemfoldError(f"{path}: {problem}") from error
    except (csv.Error, EOFError) as error:  # EOFError: a truncated .gz
        raise ItemfoldError(f"{path}: expected delimited text ({first_line(error)})") from error


def separator_of(path: Path) -> str:
    """A tab, or the most frequent separator in the first line of a .csv file."""
    if kind_of(path) in (".tsv", ".inter", ".item"):
        return "\t"
    with _open(path, errors="replace") as file:
        first = file.readline()
    return max(",;\t|", key=first.count)  # the comma wins ties


def _open(path: Path, **options: Any) -> TextIO:
    unpack: Callable[..., TextIO] = gzip.open if path.name.lower().endswith(".gz") else open
    return unpack(path, "rt", encoding="utf-8-sig", **options)
