"""Inputs of `prepare` that DuckDB does not read as `read` does, such as JSON, lists and matrices:
they are copied, some rows at a time, to a parquet file with a text column for each role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from itemfold.data.columns.choice import choose_columns
from itemfold.data.columns.raw_table import object_array
from itemfold.data.columns.values import is_missing
from itemfold.data.feedback.reading import is_feedback
from itemfold.data.preparing.inputs import (
    COMPRESSIONS,
    ENCODINGS,
    Input,
    InputTable,
    literal,
    open_parquet,
    open_text,
    parquet,
)
from itemfold.data.preparing.work import Work
from itemfold.data.readers.baskets import basket_pairs, is_basket_file
from itemfold.data.readers.delimited import header_of, sniff_table, text_records
from itemfold.data.readers.files import RowRules
from itemfold.data.readers.json_table import is_json, open_json
from itemfold.data.readers.packed import checked_encoding, encoding_note, packing_of
from itemfold.data.readers.parquet import is_parquet
from itemfold.data.readers.text_format import Record, TextFormat
from itemfold.data.readers.wide import is_wide, wide_entries
from itemfold.errors import ItemfoldError

BATCH = 50_000  # rows that are copied at once
Found = tuple[list[str], Iterator[Sequence[Any]], tuple[str, ...]]  # roles, rows, remarks


def open_input(
    connection: Any, input_: Input, rules: RowRules, work: Work, number: int
) -> InputTable:
    """The columns of a file, which is first copied if DuckDB cannot read it."""
    path, names = input_.path, rules.names
    if is_parquet(path):
        return open_parquet(connection, input_, names)
    if is_feedback(path):
        raise ItemfoldError(
            f"{path}: is feedback of `itemfold serve`; other commands read it as it is"
        )
    if is_json(path):
        roles, rows, remarks = _json_rows(path, rules)
    else:
        form, records = sniff_table(path, names, rules.header)
        form = replace(form, encoding=checked_encoding(path, form.encoding))
        found = _text_rows(path, rules, form, records)
        if found is None:
            return open_text(input_, names, form, records)
        roles, rows, remarks = found
    if input_.partition:
        raise ItemfoldError(
            f"{path}: columns from folders called name=value need parquet, or text with a "
            "separator such as a comma or a tab"
        )
    target = work.fresh(f"copy-{number}.parquet")
    _copy(connection, roles, rows, target)
    columns = {role: (f'"{role}"', "VARCHAR") for role in roles}
    return InputTable(path, parquet(target), columns, is_text=True, remarks=remarks)


def _text_rows(
    path: Path, rules: RowRules, form: TextFormat, records: list[Record]
) -> Found | None:
    """The rows of a text file, as `read_file` reads it; None if DuckDB reads it alike."""
    names, note = rules.names, encoding_note(form.encoding)
    if (rules.header is None or not form.even) and is_basket_file(form, records):
        pairs, remark = basket_pairs(path, names, form, skip=rules.skip)
        return ["user", "item"], pairs, (remark, *note)
    if is_wide(names, form, records):
        entries, remark = wide_entries(path, form, skip=rules.skip)
        rated = any(rating != 1 for *_, rating in wide_entries(path, form)[0])
        roles = ["user", "item", "rating"][: 3 if rated else 2]
        return roles, (entry[: len(roles)] for entry in entries), (remark, *note)
    if packing_of(path) in COMPRESSIONS and form.encoding in ENCODINGS and form.sep != " ":
        return None
    header = header_of(path, names, form, records)

    def rows() -> Iterator[Sequence[Any]]:
        for line, fields in text_records(path, header):
            problem = header.ragged(fields)
            if problem and not rules.skip:
                raise ItemfoldError(f"{path}, line {line}: {problem}")
            yield [None if problem else fields[j] for j in header.at.values()]

    return list(header.at), rows(), note


def _json_rows(path: Path, rules: RowRules) -> Found:
    rows = open_json(path)
    at = choose_columns(
        rows.names, rules.names, str(path), lambda j: [row.get(rows.names[j]) for row in rows.first]
    )
    names = [rows.names[j] for j in at.values()]
    return list(at), ([row.get(name) for name in names] for _, row in rows), rows.remarks


def _copy(connection: Any, roles: list[str], rows: Iterator[Sequence[Any]], target: Path) -> None:
    """Write rows as a parquet file of texts; what is no id and no number is missing."""
    declared = ", ".join(f'"{role}" VARCHAR' for role in roles)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE copied ({declared})")
    while some := list(islice(rows, BATCH)):
        columns = zip(*(map(_text, row) for row in some), strict=True)
        batch = dict(zip(roles, map(object_array, map(list, columns)), strict=True))
        connection.register("batch", batch)
        connection.execute("INSERT INTO copied SELECT * FROM batch")
        connection.unregister("batch")
    connection.execute("SET preserve_insertion_order = true")
    connection.execute(f"COPY copied TO {literal(str(target))} (FORMAT parquet)")
    connection.execute("DROP TABLE copied")


def _text(value: Any) -> str | None:
    if is_missing(value) or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else str(value)
