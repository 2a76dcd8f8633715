"""Reader of pandas, polars and Arrow frames, and the skipping of bad rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from itemfold.data.columns.bad_rows import find_problems, kept_rows
from itemfold.data.columns.choice import Names, choose_columns
from itemfold.data.columns.layout import layout_of
from itemfold.data.columns.raw_table import RawTable, table_of
from itemfold.errors import ItemfoldError, NoRowsError

SAMPLE = 200  # rows that are looked at to recognise columns


def read_frame(
    frame: Any, names: Names, place: str = "the frame", *, skip: bool = False
) -> RawTable:
    """Read the columns of a pandas or polars frame; with `skip`, bad rows are left out."""
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    if len(frame) == 0:
        raise NoRowsError(f"{place}: has no rows")
    columns = [str(c) for c in frame.columns]
    real, head = list(frame.columns), frame.head(SAMPLE)

    def sample(j: int) -> list[Any]:
        is_unique = columns.count(columns[j]) == 1  # otherwise pandas returns a frame
        return list(head[real[j]].to_list()) if is_unique else []

    at = choose_columns(columns, names, place, sample)

    def where(row: int) -> str:
        return f"{place}, row {row + 1}"

    def table(rows: Any) -> RawTable:
        return table_of(lambda j: rows[real[j]], at, where, text=False, names=names)

    def without_bad_rows() -> RawTable | None:
        values = {role: frame[real[at[role]]].to_list() for role in used_roles(at, names, skip)}
        bad = find_problems(values)
        if not bad:
            return None
        keep, skipped = kept_rows(bad, len(frame), place, where, skip=skip)
        kept = frame.filter(keep.tolist()) if hasattr(frame, "with_columns") else frame[keep]
        return replace(table(kept), skipped=skipped)

    found = salvaged(lambda: table(frame), without_bad_rows)
    return replace(found, layout=layout_of(columns, at, sample))


def arrow_frame(table: Any) -> Any:
    """A frame from anything with Arrow's C stream: a pyarrow table or reader, a DuckDB relation."""
    try:
        import polars as pl
    except ImportError:
        import pyarrow as pa

        return pa.table(table).to_pandas()
    return pl.DataFrame(table)


def used_roles(at: dict[str, int], names: Names, skip: bool) -> list[str]:
    """The roles whose values must be valid; other columns may be dropped."""
    return [r for r in at if skip or r in ("user", "item") or names.get(r) is not None]


def salvaged(
    strict: Callable[[], RawTable], without_bad_rows: Callable[[], RawTable | None]
) -> RawTable:
    """The table that `strict` reads, or, if it fails on bad rows, the table without them."""
    try:
        table = strict()
    except ItemfoldError:
        if (kept := without_bad_rows()) is None:
            raise
        return kept
    return (without_bad_rows() or table) if table.left_out else table


def first_line(error: BaseException) -> str:
    """The first line of an engine's error, to quote in a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
