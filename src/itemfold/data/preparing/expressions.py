"""The rules of `data.columns` in SQL: how ids and numbers are parsed, and which are bad.

Python functions parse what SQL would parse differently, such as rare formats of a date.
"""

from __future__ import annotations

import math
from typing import Any

from itemfold.data.columns.dates import decided
from itemfold.data.columns.values import NOT_A_NUMBER, is_missing, to_number
from itemfold.data.preparing.inputs import InputTable
from itemfold.errors import ItemfoldError

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
LARGE = ("UBIGINT",)  # larger ones are floats in parquet
FLOATS = ("FLOAT", "DOUBLE")
# the characters that Python's strip removes
WHITE = " || ".join(f"chr({n})" for n in range(0x3001) if chr(n).isspace())
NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?"
MOMENT = r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?)?"
TWO_ORDERS = r"^\s*([0-9]{1,2})[/-]([0-9]{1,2})[/-][0-9]{2,4}"  # 3/4/2024 can be two dates
LENIENT = "ignore_errors = true"  # for a first look at a file
PLAIN = r"0|-?[1-9][0-9]{0,17}"  # an integer as Python writes it
DOTTED = rf"({PLAIN})\.0"
TYPES = {"integer": "BIGINT", "large": "UBIGINT", "float": "DOUBLE", "text": "VARCHAR"}


def add_functions(connection: Any, day_first: bool | None = None) -> None:
    """Register the Python functions that the expressions use.

    ``day_first`` says what 3/4/2024 is.
    """

    def number(role: str) -> Any:
        def convert(text: str) -> float:
            try:
                return math.nan if is_missing(text) else to_number(text, role, day_first)
            except NOT_A_NUMBER:
                return math.nan

        return convert

    connection.create_function("to_number", number("rating"), ["VARCHAR"], "DOUBLE")
    connection.create_function("to_time", number("time"), ["VARCHAR"], "DOUBLE")
    connection.create_function("to_text", lambda value: str(value), ["DOUBLE"], "VARCHAR")


def day_first(connection: Any, tables: list[InputTable]) -> bool | None:
    """Whether days come before months in the times of all files; None if all are in other forms."""
    seen: dict[bool, str] = {}
    uncertain = ""
    for table in tables:
        column, kind = table.columns.get("time", ("", ""))
        if kind != "VARCHAR" or table.fixed.get("time"):
            continue
        source = table.relation if table.header is None else f"{table.relation}, {LENIENT})"
        a, b = (f"TRY_CAST(regexp_extract({column}, '{TWO_ORDERS}', {n}) AS INT)" for n in (1, 2))
        wanted = ("a > 12", "b > 12", "a <> b")
        found = connection.execute(
            f"SELECT {', '.join(f'min(x) FILTER ({condition})' for condition in wanted)} "
            f"FROM (SELECT {column} AS x, {a} AS a, {b} AS b FROM {source}) WHERE a IS NOT NULL"
        ).fetchall()[0]
        for key, text in zip((True, False), found[:2], strict=True):
            if text is not None:
                seen.setdefault(key, text.strip())
        uncertain = uncertain or (found[2] or "").strip()
    return decided(seen, uncertain, str(tables[0].path) if len(tables) == 1 else "the files")


def kind_of_ids(tables: list[InputTable], role: str) -> str:
    """The type that holds the ids of a role in all files: integer, large, float or text."""
    kinds = set()
    for table in tables:
        name = table.columns[role][1]
        if name in INTEGERS:
            kinds.add("integer")
        elif name in LARGE:
            kinds.add("large")
        elif name in FLOATS:
            kinds.add("float")
        elif name in ("VARCHAR", "BLOB", "BOOLEAN", "UUID") or name.startswith(("DECIMAL", "ENUM")):
            kinds.add("text")
        else:
            raise ItemfoldError(f"{table.path}, row 1: {role} ids must be numbers or strings")
    if {"integer", "large"} <= kinds:  # as in frames
        return "float"
    return next(kind for kind in ("text", "float", "large", "integer") if kind in kinds)


def id_value(column: str, kind: str, held_as: str) -> str:
    """SQL for an id: a number, or a text without surrounding white space; NULL if missing."""
    if held_as != "text":
        return f"TRY_CAST({column} AS {TYPES[held_as]})"
    if kind == "BOOLEAN":
        return f"CASE WHEN {column} THEN 'True' WHEN NOT {column} THEN 'False' END"
    if kind in ("VARCHAR", "BLOB") or kind.startswith("ENUM"):
        text = _text(column, kind)  # most need no trimming, and the test for that is fast
        clean = f"{text} >= '!' AND {text} < '~' AND {text}[-1] BETWEEN '!' AND '~'"
        return f"CASE WHEN {clean} THEN {text} ELSE trim({text}, {WHITE}) END"
    return f"CAST({column} AS VARCHAR)"


def id_problem(column: str, held_as: str) -> str:
    """SQL for whether an id of `id_value` is bad."""
    if held_as == "text":
        return f"({column} IS NULL OR {column} = '' OR contains({column}, chr(0)))"
    return f"({column} IS NULL{f' OR NOT isfinite({column})' if held_as == 'float' else ''})"


def number_value(column: str, kind: str, role: str) -> str:
    """SQL for a number, or the seconds since 1970 of a time; NULL or NaN if missing."""
    units = {"TIMESTAMP_NS": ("ns", 9), "TIMESTAMP_MS": ("ms", 3), "DATE": ("us", 6)}
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        unit, digits = units.get(kind, ("us", 6))
        moment = f"CAST({column} AS TIMESTAMP)" if kind == "DATE" else column
        return f"CAST(epoch_{unit}({moment}) AS DOUBLE) / 1e{digits}"
    if kind in (*INTEGERS, *LARGE, *FLOATS, "BOOLEAN"):
        return f"CAST({column} AS DOUBLE)"
    if kind.startswith("DECIMAL"):  # through text, for the nearest number, as in Python
        return f"CAST(CAST({column} AS VARCHAR) AS DOUBLE)"
    if kind not in ("VARCHAR", "BLOB"):
        return "CAST('nan' AS DOUBLE)"
    text = _text(column, kind)
    moment = (
        f"WHEN regexp_full_match({text}, '{MOMENT}') AND TRY_CAST({text} AS TIMESTAMP) IS NOT NULL "
        f"THEN CAST(epoch_us(TRY_CAST({text} AS TIMESTAMP)) AS DOUBLE) / 1e6 "
    )
    return (
        f"CASE WHEN regexp_full_match({text}, '{NUMBER}') THEN TRY_CAST({text} AS DOUBLE) "
        f"{moment if role == 'time' else ''}"
        f"ELSE {'to_time' if role == 'time' else 'to_number'}({text}) END"
    )


def number_problem(column: str, role: str) -> str:
    """SQL for whether a number of `number_value` is bad."""
    least = f" OR {column} <= 0" if role == "weight" else ""
    return f"({column} IS NULL OR NOT abs({column}) < {2.0**62!r}{least})"


def final_id(column: str, held_as: str, whole: bool) -> str:
    """SQL for an id as `read` returns it: an integer if all ids are integers, else a text."""
    if whole:
        return column if held_as == "integer" else f"CAST({column} AS BIGINT)"
    return {"float": f"to_text({column})", "large": f"CAST({column} AS VARCHAR)"}.get(
        held_as, column
    )


def _text(column: str, kind: str) -> str:
    return f"TRY(decode({column}))" if kind == "BLOB" else f"CAST({column} AS VARCHAR)"
