"""Detection of the format of a text file: separator, quotes, header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

from itemfold.data.columns.column_guess import TYPED, is_date, is_number, names_columns
from itemfold.data.readers.packed import (
    UTF8,
    encoding_of,
    open_bytes,
    plain_suffix,
    read_bytes,
)
from itemfold.errors import ItemfoldError

HEAD = 2**18  # bytes that are looked at
SAMPLE = 200  # rows that are looked at
SEPARATORS = ("\t", "::", ",", ";", "|", " ")
SHOWN = {"\t": "a tab", " ": "spaces"}
INNER = "\x1f"  # separator that replaces those of several characters
EVEN = 0.9  # share of rows with the same number of fields in a table
SPLIT = 0.5  # share of rows with several fields in lists whose first row has one
MARKUP = re.compile(r"\ufeff?\s*<(!doctype html|html|\?xml)", re.IGNORECASE)
BEFORE = re.compile(r"\ufeff?(%|# |sep=.?$)", re.IGNORECASE)  # comments, and Excel's sep=;

Record = tuple[int, list[str]]  # line, fields


@dataclass(frozen=True)
class TextFormat:
    """The format of a text file.

    Attributes:
        sep: What separates fields; " " is any white space.
        quotes: Whether fields may be quoted.
        encoding: Encoding of the text.
        skip: Number of lines before the first row: comments, or the separator as Excel writes it.
        header: Whether the first row has the names of the columns.
        even: Whether rows have the same number of fields.
    """

    sep: str
    quotes: bool = True
    encoding: str = UTF8
    skip: int = 0
    header: bool = True
    even: bool = True

    @property
    def shown(self) -> str:
        """The name of the separator in messages."""
        return SHOWN.get(self.sep, f"'{self.sep}'")

    @property
    def inner_sep(self) -> str:
        """The separator of `plain_text`, a single character."""
        return INNER if self.sep in ("::", " ") else self.sep

    def plain_line(self, line: str) -> str:
        """A line with a single character between fields."""
        if self.sep == "::":
            return line.replace("::", INNER)
        return re.sub(r"[ \t]+", INNER, line.strip(" \t\r\n")) + "\n" if self.sep == " " else line


def sniff(path: Path, header: bool | None = None) -> tuple[TextFormat, list[Record]]:
    """The format of a text file, and its first rows.

    ``header`` says whether the first row has names; None recognises it.
    """
    head = read_bytes(path, HEAD)
    encoding = encoding_of(head)
    text = head.decode(encoding, errors="replace")
    if len(head) == HEAD:  # the last line may be cut
        text = text[: text.rfind("\n") + 1] or text
    if not text.strip():
        raise ItemfoldError(f"{path}: the file is empty; expected a table")
    if markup := MARKUP.match(text):
        raise ItemfoldError(
            f"{path}: begins with {markup[0].strip()!r}, as web pages and XML do; expected a table"
        )
    if "\0" in text.lstrip().partition("\n")[0]:
        raise ItemfoldError(f"{path}: is not a text file; save the table as .csv or .parquet")
    found = recognised(text, plain_suffix(path))
    form = replace(found, encoding=encoding)
    rows = list(_sample(text, form))
    if header is None:
        header = form.even and has_header([fields for _, fields in rows])
    return replace(form, header=header), rows


def recognised(text: str, suffix: str = "") -> TextFormat:
    """The separator and quotes of a text; of equal ones the first in `SEPARATORS`.

    >>> recognised("1::10::5\\n1::11::4\\n").sep, recognised("a b c\\nd e\\n").even
    ('::', False)
    """
    before = takewhile(lambda line: BEFORE.match(line.rstrip("\r\n")), io.StringIO(text))
    skip = sum(1 for _ in before)
    best: tuple[tuple[float, ...], TextFormat] | None = None
    for order, sep in enumerate(SEPARATORS):
        form = TextFormat(sep, _has_quotes(text, sep, suffix), skip=skip)
        rows = [fields for _, fields in _sample(text, form)]
        widths = Counter(map(len, rows))
        if not rows or (len(rows[0]) < 2 and widths[1] > (1 - SPLIT) * len(rows)):
            continue
        # in lists of names with spaces, some "names" have a separator inside
        is_list = sep == " " and any(mark in name for mark in SEPARATORS for name in rows[0])
        known = names_columns(rows[0]) and not is_list
        even = known or max(widths.values()) >= EVEN * len(rows)
        rank = (known, even, sep != " ", len(rows[0]) if even else 0, -order)
        if best is None or rank > best[0]:
            best = rank, replace(form, even=even)
    return best[1] if best else TextFormat(",", skip=skip)


def _has_quotes(text: str, sep: str, suffix: str) -> bool:
    """Whether quotes enclose fields; RecBole, ``::`` and lists of ids have none.

    In tables with tabs, quotes are often letters of a title: they count if all that begin a field
    are closed.
    """
    first = text.partition("\n")[0]
    if sep in ("::", " ") or suffix in (".inter", ".item", ".user") or TYPED.search(first):
        return False
    if sep != "\t":
        return True
    fields = [field for line in text.splitlines()[:SAMPLE] for field in line.split("\t")]
    opened = [field.strip() for field in fields if field.startswith('"')]
    return bool(opened) and all(len(field) > 1 and field.endswith('"') for field in opened)


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first row has names of columns.

    It has if some values are known names; or if it has no number but a column below has; or if
    none of its values recurs in its column.

    >>> has_header([["who", "stars"], ["ann", "5"]]), has_header([["196", "242"], ["186", "302"]])
    (True, False)
    >>> has_header([["ann", "x"], ["ann", "y"]])
    False
    """
    first, rest = rows[0], rows[1:]
    if names_columns(first) or (not first[0].strip() and all(row[0].strip() for row in rest)):
        return True  # pandas leaves the name of the index empty
    if any(is_number(field) or is_date(field) for field in first):
        return False
    columns = [[row[j] for row in rest if len(row) == len(first)] for j in range(len(first))]
    if any(column and all(map(is_number, filter(None, column))) for column in columns):
        return True
    return not any(name in column for name, column in zip(first, columns, strict=True))


# --- rows ----------------------------------------------------------------------------------------


def records_of(path: Path, form: TextFormat) -> Iterator[Record]:
    """(line, fields) of every line, without comments and blank lines; slow."""
    try:
        with open_bytes(path) as file:
            text = io.TextIOWrapper(file, encoding=form.encoding, newline="")
            yield from _records(text, form)
    except UnicodeDecodeError as error:
        problem = f"expected {form.encoding} text ({error}); save the file as UTF-8"
        raise ItemfoldError(f"{path}: {problem}") from error
    except csv.Error as error:
        raise ItemfoldError(f"{path}: expected delimited text ({error})") from error


def _records(lines: Iterable[str], form: TextFormat) -> Iterator[Record]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if form.quotes else csv.QUOTE_NONE
    csv.field_size_limit(1 << 30)
    kept = (form.plain_line(line) for n, line in enumerate(lines) if n >= form.skip)
    reader = csv.reader(kept, delimiter=form.inner_sep, quoting=quoting)
    for fields in reader:
        if any(fields):
            yield reader.line_num + form.skip, fields


def _sample(text: str, form: TextFormat) -> Iterator[Record]:
    """The first records of a text."""
    try:
        for n, record in enumerate(_records(io.StringIO(text, newline=""), form)):
            if n >= SAMPLE:
                return
            yield record
    except csv.Error:  # reported when the whole file is read
        return


def plain_text(path: Path, form: TextFormat) -> bytes:
    """All rows as UTF-8 with a single character between fields, for readers that need that."""
    text = read_bytes(path).decode(form.encoding)
    text = text.removeprefix("\ufeff")
    if form.sep == "::":
        text = text.replace("::", INNER)
    elif form.sep == " ":
        text = "".join(map(form.plain_line, io.StringIO(text)))
    return text.encode()
