"""Reader of JSON: an object for each row, on lines or in an array, also inside other objects; the
columns of a frame; or the items of each user."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from itemfold.data.columns.bad_rows import find_problems, kept_rows
from itemfold.data.columns.choice import Names, choose_columns
from itemfold.data.columns.column_guess import candidates
from itemfold.data.columns.layout import layout_of
from itemfold.data.columns.raw_table import RawTable, object_array, table_of
from itemfold.data.readers.frames import salvaged, used_roles
from itemfold.data.readers.packed import (
    checked_encoding,
    decoded,
    encoding_note,
    encoding_of,
    open_bytes,
    plain_suffix,
    read_bytes,
)
from itemfold.data.readers.text_format import HEAD, SAMPLE
from itemfold.errors import ItemfoldError, NoRowsError

EXPECTED = "expected an object for each row, on lines or in an array"
Row = dict[str, Any]


def is_json(path: Path) -> bool:
    """Whether the start of a file looks like JSON objects."""
    head = read_bytes(path, HEAD)
    text = head.decode(encoding_of(head), errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("["):
        is_called_so = plain_suffix(path) in (".json", ".jsonl", ".ndjson")
        return is_called_so or text[1:].lstrip()[:1] in ("{", "]")
    return text.startswith("{")


@dataclass(frozen=True)
class JsonRows:
    """The rows of a file with their positions, for messages."""

    path: Path
    first: list[Row]
    names: list[str]
    encoding: str
    whole: list[Row] | None  # of a file that is not made of lines
    remark: str = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on how the file was read."""
        return (*([self.remark] if self.remark else []), *encoding_note(self.encoding))

    def __iter__(self) -> Iterator[tuple[str, Row]]:
        if self.whole is not None:
            for n, row in enumerate(self.whole, start=1):
                yield f"{self.path}, row {n}", row
            return
        yield from _lines(self.path, self.encoding)


def open_json(path: Path) -> JsonRows:
    """Detect the layout of a JSON file; JSON lines are not read as a whole."""
    head = read_bytes(path, HEAD)
    encoding = encoding_of(head)
    found: tuple[list[Row], str] | None = None
    text = head.decode(encoding, errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("{") and _is_object(text.partition("\n")[0]):
        encoding = checked_encoding(path, encoding)
        first = [row for _, row in islice(_lines(path, encoding), SAMPLE)]
        if len(first) == 1:
            found = _rows_in(next(islice(_objects(path, encoding), 1))[1])
    else:
        data, encoding = decoded(read_bytes(path))
        found = _rows_of(path, data)
    whole, remark = (None, "") if found is None else (list(map(_flat, found[0])), found[1])
    first = first if whole is None else whole[:SAMPLE]
    names = list(dict.fromkeys(name for row in first for name in row))
    return JsonRows(path, first, names, encoding, whole, remark)


def read_json(path: Path, names: Names, *, skip: bool = False) -> RawTable:
    """Read the columns of a JSON file."""
    rows = open_json(path)
    if not rows.first:
        raise NoRowsError(f"{path}: has no rows")

    def sample(j: int) -> Sequence[Any]:
        return [row.get(rows.names[j]) for row in rows.first]

    at = choose_columns(rows.names, names, str(path), sample)
    used = {role: rows.names[j] for role, j in at.items()}
    values: dict[str, list[Any]] = {name: [] for name in used.values()}
    places: list[str] = []
    for place, row in rows:
        places.append(place)
        for name, column in values.items():
            column.append(row.get(name))

    def table(keep: Any = None) -> RawTable:
        def column(j: int) -> Any:
            out = object_array(values[rows.names[j]])
            return out if keep is None else out[keep]

        return table_of(column, at, places.__getitem__, text=True, names=names)

    def without_bad_rows() -> RawTable | None:
        bad = find_problems({role: values[used[role]] for role in used_roles(at, names, skip)})
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(places), str(path), places.__getitem__, skip=skip)
        return replace(table(keep), skipped=skipped)

    found = salvaged(table, without_bad_rows)
    layout = layout_of(rows.names, at, sample)
    return replace(found, layout=layout, remarks=rows.remarks)


def _lines(path: Path, encoding: str) -> Iterator[tuple[str, Row]]:
    return ((place, _flat(row)) for place, row in _objects(path, encoding))


def _flat(row: Row) -> Row:
    """A row whose objects are columns: user.id of {"user": {"id": 1}}.

    >>> _flat({"user": {"id": 1, "at": {"city": "Bonn"}}, "item": 2})
    {'user.id': 1, 'user.at.city': 'Bonn', 'item': 2}
    """
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    out: Row = {}
    for name, value in row.items():
        inner = _flat(value) if isinstance(value, dict) else None
        out |= {name: value} if inner is None else {f"{name}.{key}": v for key, v in inner.items()}
    return out


def _objects(path: Path, encoding: str) -> Iterator[tuple[str, Row]]:
    with open_bytes(path) as file:
        text = io.TextIOWrapper(file, encoding=encoding)
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ItemfoldError(f"{path}, line {number}: {EXPECTED} ({error})") from None
            if not isinstance(row, dict):
                raise ItemfoldError(f"{path}, line {number}: {EXPECTED}, got {line.strip()[:60]!r}")
            yield f"{path}, line {number}", row


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _rows_of(path: Path, text: str) -> tuple[list[Row], str]:
    """The rows of a whole file, and a note on how it was read."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ItemfoldError(f"{path}: {EXPECTED} ({error})") from None
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return content, ""
    if isinstance(content, dict) and (found := _rows_in(content)):
        return found
    raise ItemfoldError(f"{path}: {EXPECTED}, found other JSON")


def _rows_in(content: Row) -> tuple[list[Row], str] | None:
    """The rows of an object: its columns, the items of each user, or the only list of rows in it.

    >>> _rows_in({"ok": True, "data": {"plays": [{"user": 1, "item": 2}]}})
    ([{'user': 1, 'item': 2}], "The rows are those of 'data.plays'.")
    >>> _rows_in({"ann": ["x", "y"], "bob": ["x"]})[0][0]
    {'user': 'ann', 'item': 'x'}
    """
    names = list(content)
    if any(candidates(names, role) for role in ("user", "item")) and (rows := _columns_of(content)):
        return rows, ""
    lists = _lists_in(content)
    if len(lists) == 1:
        ((name, rows),) = lists.items()
        return rows, f"The rows are those of '{name}'."
    if rows := _items_of_users(content):
        return rows, "Each name was read as a user, and its list as the items of that user."
    rows = _columns_of(content)
    return (rows, "") if rows else None


def _lists_in(content: Row) -> dict[str, list[Row]]:
    """The lists of objects in an object, by their names."""
    found: dict[str, list[Row]] = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": rows for inner, rows in _lists_in(value).items()}
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            found[name] = value
    return found


def _items_of_users(content: Row) -> list[Row]:
    """The pairs of an object that has a list of ids, or ratings by id, for each user."""
    rows: list[Row] = []
    for user, items in content.items():
        if not isinstance(items, dict | list):
            return []
        rated = items if isinstance(items, dict) else {}
        for item in items:
            value = rated.get(item)
            if isinstance(item, dict | list) or isinstance(value, dict | list):
                return []
            rows.append({"user": user, "item": item, **({"rating": value} if rated else {})})
    return rows if len(content) > 1 else []


def _columns_of(content: Row) -> list[Row]:
    """The rows of an object that has a list or an object of equal length for each column.

    >>> _columns_of({"user": {"0": 1, "1": 2}, "item": {"0": "x", "1": "y"}})
    [{'user': 1, 'item': 'x'}, {'user': 2, 'item': 'y'}]
    """
    if not content or not all(isinstance(v, dict | list) for v in content.values()):
        return []
    columns = [list(v.values()) if isinstance(v, dict) else v for v in content.values()]
    if len({len(column) for column in columns}) != 1:
        return []
    return [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]
