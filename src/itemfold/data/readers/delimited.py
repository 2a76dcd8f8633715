"""Reader of delimited text: any separator, with or without a header line, also compressed."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns.bad_rows import find_problems, kept_rows
from itemfold.data.columns.choice import Names, choose_columns
from itemfold.data.columns.column_guess import names_columns
from itemfold.data.columns.layout import Layout, layout_of
from itemfold.data.columns.raw_table import RawTable, table_of
from itemfold.data.readers.frames import first_line, salvaged, used_roles
from itemfold.data.readers.packed import UTF8, checked_encoding, encoding_note, packing_of
from itemfold.data.readers.text_format import (
    SEPARATORS,
    Record,
    TextFormat,
    plain_text,
    records_of,
    sniff,
)
from itemfold.errors import ItemfoldError, NoRowsError


@dataclass(frozen=True)
class Header:
    """The columns of a text file, the position of each role, and the text format."""

    line: int  # of the first row, which has the names if there are any
    columns: list[str]
    at: dict[str, int]  # role → position
    form: TextFormat
    layout: Layout | None = None

    def ragged(self, fields: list[str]) -> str:
        """The problem of a row with more or fewer fields than the first, or an empty string."""
        if len(fields) == len(self.columns):
            return ""
        first = "header" if self.form.header else "first line"
        return (
            f"expected {len(self.columns)} fields separated by {self.form.shown}, as in the "
            f"{first}, found {len(fields)}: {self.form.sep.join(fields)[:60]!r}"
        )


def sniff_table(path: Path, names: Names, header: bool | None) -> tuple[TextFormat, list[Record]]:
    """The format of a text file and its first rows; a row with a requested name is a header.

    ``header`` says whether the first row has names; None recognises it.
    """
    requested = {str(name) for name in names.values() if name is not None}
    if header is None and requested:
        form, rows = sniff(path, header=True)
        if requested & {field.strip() for field in rows[0][1]}:
            return form, rows
    return sniff(path, header)


def header_of(
    path: Path, names: Names, form: TextFormat, rows: list[Record], more: Sequence[str] = ()
) -> Header:
    """The columns of a file with this format and these first rows, and the one of each role.

    ``more`` names columns that follow those of the file. Columns without names are called 1, 2, …
    """
    (line, first), rest = rows[0], [fields for _, fields in rows[1:]]
    if len(first) == 1:
        listed = ", ".join(TextFormat(sep).shown for sep in SEPARATORS)
        raise ItemfoldError(
            f"{path}, line {line}: found one column, {first[0][:60]!r}; expected a user and an "
            f"item column, separated by one of {listed}"
        )
    if rest and all(len(f) == len(first) + 1 and not f[-1] for f in rest):
        first = [*first, ""]  # all other lines end with a separator: an extra empty field
    width = len(first)
    columns = first if form.header else [str(n) for n in range(1, width + 1)]
    data = rest if form.header else [rows[0][1], *rest]
    whole = [fields for fields in data if len(fields) == width]

    def sample(j: int) -> list[str]:  # columns from folder names have no values
        return [fields[j] for fields in whole] if j < width else []

    try:
        at = choose_columns([*columns, *more], names, str(path), sample, header=form.header)
    except ItemfoldError as error:
        if form.header and names_columns(first):
            raise
        raise ItemfoldError(f"{error}; {_hint(form, line, first)}") from error
    layout = layout_of(columns, at, sample, header=form.header)
    return Header(line, columns, at, form, layout)


def _hint(form: TextFormat, line: int, first: list[str]) -> str:
    if form.header:
        return f"if line {line} is data and not column names, add --no-header"
    shown = form.sep.join(first)[:60]
    return (
        f"line {line} was read as data, not as column names: {shown!r}; columns are called 1 to "
        f"{len(first)}, or add --header"
    )


def read_delimited(
    path: Path, names: Names, *, skip: bool = False, header: bool | None = None
) -> RawTable:
    """Read the columns of a text file."""
    form, rows = sniff_table(path, names, header)
    return read_rows(path, header_of(path, names, form, rows), names, skip=skip)


def read_rows(path: Path, found: Header, names: Names, *, skip: bool = False) -> RawTable:
    """Read the columns of a text file whose header is known."""
    try:
        return _read_rows(path, found, names, skip)
    except ItemfoldError:
        # only the beginning was looked at
        if (encoding := checked_encoding(path, found.form.encoding)) == found.form.encoding:
            raise
    found = replace(found, form=replace(found.form, encoding=encoding))
    return _read_rows(path, found, names, skip)


def _read_rows(path: Path, found: Header, names: Names, skip: bool) -> RawTable:
    columns, at = found.columns, found.at

    def where(row: int) -> str:
        for n, (line, _) in enumerate(text_records(path, found)):
            if n == row:
                return f"{path}, line {line}"
        return f"{path}, row {row + 1}"

    def from_records(rows: list[list[str]]) -> RawTable:
        def column(position: int) -> npt.NDArray[Any]:
            return np.array([fields[position] for fields in rows], dtype=object)

        return table_of(column, at, where, text=True, names=names)

    def strict() -> RawTable:
        try:
            frame = _load(path, found)
        except Exception as error:  # each engine raises its own types
            rows = [fields for _, fields in text_records(path, found)]
            if rows and not any(map(found.ragged, rows)):  # quotes inside fields, for example
                return from_records(rows)
            problem = (
                f"{path}: not readable as text separated by {found.form.shown} "
                f"({first_line(error)})"
            )
            raise ItemfoldError(problem) from error
        if len(frame) == 0:
            if next(text_records(path, found), None):  # Python knows more line ends than polars
                raise ItemfoldError(
                    f"{path}: lines must not end with a carriage return alone; save the file with "
                    "line feeds"
                )
            raise NoRowsError(f"{path}: the file has a header but no rows")
        real = list(frame.columns)
        return table_of(lambda j: frame[real[j]], at, where, text=True, names=names)

    def without_bad_rows() -> RawTable | None:
        rows = [fields for _, fields in text_records(path, found)]
        ragged = {row: why for row, fields in enumerate(rows) if (why := found.ragged(fields))}
        whole = [fields if row not in ragged else columns for row, fields in enumerate(rows)]
        used = used_roles(at, names, skip)
        bad = find_problems({r: [f[at[r]] for f in whole] for r in used}, ragged)
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(rows), str(path), where, skip=skip)
        kept = [fields for fields, good in zip(rows, keep, strict=True) if good]
        return replace(from_records(kept), skipped=skipped)

    table = salvaged(strict, without_bad_rows)
    return replace(table, layout=found.layout, remarks=encoding_note(found.form.encoding))


def _load(path: Path, found: Header) -> Any:
    """Load a polars frame, or a pandas one without polars; ids stay text."""
    form, header = found.form, found.form.header
    simple = (
        form.encoding == UTF8 and form.sep == form.inner_sep and packing_of(path) in ("", ".gz")
    )
    source: Any = path if simple else io.BytesIO(plain_text(path, form))
    text = [found.columns[found.at[role]] for role in ("user", "item")]
    try:
        import polars as pl
    except ImportError:
        import pandas as pd

        quoting = csv.QUOTE_MINIMAL if form.quotes else csv.QUOTE_NONE
        return pd.read_csv(
            source, sep=form.inner_sep, quoting=quoting, dtype=dict.fromkeys(text, str),
            keep_default_na=False, na_values=[""], low_memory=False, encoding=UTF8,
            index_col=False, header=0 if header else None, skiprows=form.skip,
            names=None if header else found.columns,
        ).dropna(how="all")  # fmt: skip
    typed: Any = dict.fromkeys(text, pl.String)
    frame = pl.read_csv(
        source, separator=form.inner_sep, quote_char='"' if form.quotes else None,
        schema_overrides=typed, infer_schema_length=None, glob=False, has_header=header,
        new_columns=None if header else found.columns, skip_rows=form.skip,
    )  # fmt: skip
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines


def text_records(path: Path, header: Header) -> Iterator[Record]:
    """(line, fields) of every row below the header, without blank lines."""
    records = records_of(path, header.form)
    if header.form.header:
        next(records, None)
    return records
