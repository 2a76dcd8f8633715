"""The first phase of `prepare`: check the rows of all files, stage them, and collect their facts.

Bad rows are marked, not removed, because the used columns are known only when all files are read.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from itemfold.data.columns.bad_rows import HOW_TO_SKIP, ProblemCount, find_problems
from itemfold.data.columns.choice import Names
from itemfold.data.columns.time_units import EARLIEST, LATEST, UNITS, unit_of
from itemfold.data.preparing import expressions as sql
from itemfold.data.preparing.inputs import InputTable, literal, parquet, reason_of
from itemfold.data.preparing.work import StepFacts, Work
from itemfold.data.readers.delimited import text_records
from itemfold.errors import ItemfoldError, NoRowsError

IDS = ("user", "item")
BATCH = 10_000  # bad rows that are fetched at once


@dataclass(frozen=True)
class StagingPlan:
    """The columns of the files, and which of them must be valid."""

    tables: list[InputTable]
    names: Names
    skip: bool
    in_order: bool  # whether the order of rows matters
    needs: dict[str, str]  # required column → the setting that requires it

    @property
    def roles(self) -> list[str]:
        """The roles that every file has a column for."""
        return list(self.tables[0].columns)

    @property
    def numbers(self) -> list[str]:
        """The roles of numeric columns."""
        return [role for role in self.roles if role not in IDS]

    @property
    def needed(self) -> list[str]:
        """The roles whose values must be valid; other columns may be left out as a whole."""
        wanted = (role for role in self.roles if self.names.get(role) is not None)
        return self.roles if self.skip else list(dict.fromkeys((*IDS, *wanted)))

    def held_as(self, role: str) -> str:
        """The type that holds the ids of a role: integer, large, float or text."""
        return sql.kind_of_ids(self.tables, role)


def groups_of(
    tables: Sequence[InputTable], most_bytes: int, most_files: int
) -> list[list[InputTable]]:
    """Group files so that each step reads at most so many bytes and files."""
    groups: list[list[InputTable]] = []
    size = 0
    for table in tables:
        own = table.path.stat().st_size
        if not groups or size + own > most_bytes or len(groups[-1]) == most_files:
            groups.append([])
            size = 0
        groups[-1].append(table)
        size += own
    return groups


def stage(
    connection: Any, plan: StagingPlan, group: list[InputTable], work: Work, part: int
) -> StepFacts:
    """Write the checked rows of some files as one parquet file; returns their facts."""
    import duckdb

    path = work.fresh(f"rows-{part}.parquet")
    rejects = [f"rejects_{n}" for n in range(len(group))]
    selects = (_checked(plan, table, name) for table, name in zip(group, rejects, strict=True))
    connection.execute(f"SET preserve_insertion_order = {str(plan.in_order).lower()}")
    target = f"{literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)"
    try:
        connection.execute(f"COPY ({' UNION ALL '.join(selects)}) TO {target}")
    except (
        duckdb.InvalidInputException,
        duckdb.ConversionException,
        duckdb.IOException,
    ) as error:
        if write_problem(error) is not None:  # of our own file, not of the input
            raise
        raise _unreadable(plan, group, error) from error
    facts = _facts(connection, plan, parquet(path))
    ragged = 0
    if plan.skip:
        for name in (n for n, table in zip(rejects, group, strict=True) if table.header):
            counted = f"SELECT count(DISTINCT (scan_id, line)) FROM {name}"
            ragged += connection.execute(counted).fetchone()[0]
            connection.execute(f"DROP TABLE {name}; DROP TABLE {name}_scan")
    if ragged or facts["bad"]:
        facts["problems"] = _problems(connection, plan, group, ragged).kinds
    return facts


def write_problem(error: Exception) -> int | None:
    """The code of the system's error if DuckDB could not write a file, else None.

    >>> write_problem(ValueError("Could not write all bytes to file: No space left on device"))
    28
    """
    text = str(error)
    if "max_temp_directory_size" in text:
        return errno.ENOSPC
    codes = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS)
    code = next((code for code in codes if os.strerror(code) in text), None)
    failed = re.search("could not write|write failed", text, re.IGNORECASE)
    return code or (errno.ENOSPC if failed else None)


def used_rows(plan: StagingPlan, bad: int) -> str:
    """SQL condition that selects the valid rows of the staged files."""
    marks = " OR ".join(f"{role}_bad" for role in plan.needed)
    return f"NOT ({marks})" if bad else "true"


def _source(plan: StagingPlan, table: InputTable, rejects: str = "") -> str:
    """SQL table of a file; lines with a wrong number of fields are left out, or raise."""
    if table.header is None:
        return table.relation
    if not plan.skip:
        return f"{table.relation})"
    stored = (
        f"store_rejects = true, rejects_table = '{rejects}', rejects_scan = '{rejects}_scan', "
        "rejects_limit = 0"
    )
    return f"{table.relation}, {stored if rejects else 'ignore_errors = true'})"


def _checked(plan: StagingPlan, table: InputTable, rejects: str = "", more: str = "") -> str:
    """SQL query for the rows of a file, with a mark for each bad value."""
    values, marks = [], []
    for role, (column, kind) in table.columns.items():
        if role in IDS:
            held_as = plan.held_as(role)
            values.append(f"{sql.id_value(column, kind, held_as)} AS {role}")
            marks.append(f"{sql.id_problem(role, held_as)} AS {role}_bad")
            if table.is_text:  # a text that is more than its id
                values.append(f"{column} AS {role}_raw")
                marks.append(f"{role}_raw <> {role} AS {role}_wide")
        else:
            values.append(f"{sql.number_value(column, kind, role)} AS {role}")
            marks.append(f"{sql.number_problem(role, role)} AS {role}_bad")
    kept = ", ".join([*plan.roles, *marks, *(["*"] if more else [])])
    inner = f"SELECT {', '.join(values)}{more} FROM {_source(plan, table, rejects)}"
    return f"SELECT {kept} FROM ({inner})"


def _facts(connection: Any, plan: StagingPlan, staged: str) -> StepFacts:
    """Counts of rows and bad values, and whether ids are integers."""
    bad = " OR ".join(f"{role}_bad" for role in plan.needed)
    wanted = {"rows": "count(*)", "bad": f"count(*) FILTER ({bad})"}
    for role in plan.numbers:
        wanted[f"{role}_bad"] = f"count(*) FILTER ({role}_bad)"
    if "time" in plan.roles:
        good = f"NOT ({bad}) AND NOT time_bad"
        wanted["latest"] = f"max(time) FILTER ({good})"
        for unit, per in UNITS.items():
            inside = f"time >= {EARLIEST * per!r} AND time < {LATEST * per!r}"
            wanted[f"time_{unit}"] = f"count(*) FILTER ({good} AND {inside})"
    for role in IDS:
        held_as, integers = plan.held_as(role), {}  # conditions for ids to become integers
        if held_as == "text" and plan.tables[0].is_text:
            exact = f"coalesce(CAST(TRY_CAST({role} AS BIGINT) AS VARCHAR) = {role}, false)"
            integers["plain"] = f"regexp_full_match({role}, '{sql.PLAIN}')"
            integers["dotted"] = f"regexp_full_match({role}, '{sql.DOTTED}')"
            integers["exact"] = f"{exact} AND NOT {role}_wide"
        elif held_as == "float":
            integers["plain"] = f"{role} = floor({role}) AND abs({role}) < {2.0**53!r}"
        elif held_as == "large":
            integers["plain"] = f"{role} < {2**63}"
        else:
            wanted[f"{role}_plain"] = str(held_as == "integer").lower()
        for name, condition in integers.items():
            all_good = f"bool_and({condition}) FILTER (NOT ({bad}))"
            wanted[f"{role}_{name}"] = f"coalesce({all_good}, true)"
    listed = ", ".join(f"{expression} AS {name}" for name, expression in wanted.items())
    values = connection.execute(f"SELECT {listed} FROM {staged}").fetchone()
    return dict(zip(wanted, values, strict=True))


def check_needs(plan: StagingPlan, left_out: dict[str, str]) -> None:
    """Raise if a setting needs a column that is missing or was left out."""
    for role, setting in plan.needs.items():
        if role in left_out:
            raise ItemfoldError(f"{left_out[role]}; {HOW_TO_SKIP}")
        if role not in plan.roles:
            what = {"time": "timestamps"}.get(role, f"{role}s")
            raise ItemfoldError(f"'{setting}' needs {what}, and these files have none")


def summarise(connection: Any, plan: StagingPlan, parts: Sequence[StepFacts]) -> StepFacts:
    """Facts of all rows; raises if no row is valid, or if a required column was left out."""
    total = {name: sum(part[name] for part in parts) for name in ("rows", "bad")}
    skipped: dict[str, int] = {}
    for part in parts:
        for kind, count in part.get("problems", {}).items():
            skipped[kind] = skipped.get(kind, 0) + count
    place = str(plan.tables[0].path) if len(plan.tables) == 1 else "the files"
    if not total["rows"] and not skipped:
        raise NoRowsError(f"{place}: {'have' if len(plan.tables) > 1 else 'has'} no rows")
    if total["rows"] == total["bad"]:
        reasons = "; ".join(f"{kind} ({count:,})" for kind, count in skipped.items())
        raise ItemfoldError(f"{place}: no row can be used; {reasons}")
    left_out = {
        role: first_problem(connection, plan, role)
        for role in plan.numbers
        if role not in plan.needed and any(part[f"{role}_bad"] for part in parts)
    }
    check_needs(plan, left_out)
    latest = [part["latest"] for part in parts if part.get("latest") is not None]
    unit = "seconds"
    if "time" in plan.roles and "time" not in left_out:
        dates = {name: sum(part.get(f"time_{name}", 0) for part in parts) for name in UNITS}
        unit = unit_of(dates, place)
    return {
        "rows": total["rows"] - total["bad"],
        "bad": total["bad"],
        "skipped": skipped,
        "left_out": left_out,
        "latest": max(latest) / UNITS[unit] if latest else None,
        "time_unit": unit,
        "dotted": [role for role in IDS if are_dotted(parts, role)],
        **{f"{role}_whole": _are_integers(parts, role, bool(skipped)) for role in IDS},
    }


def _are_integers(parts: Sequence[StepFacts], role: str, has_skipped: bool) -> bool:
    """Whether all ids are integers, by the rules of `read`."""
    if are_dotted(parts, role) or all(part[f"{role}_plain"] for part in parts):
        return True
    return not has_skipped and all(part.get(f"{role}_exact", False) for part in parts)


def are_dotted(parts: Sequence[StepFacts], role: str) -> bool:
    """Whether all ids are integers with ".0"."""
    return all(part.get(f"{role}_dotted", False) for part in parts)


# --- bad rows ------------------------------------------------------------------------------------


def first_problem(connection: Any, plan: StagingPlan, role: str) -> str:
    """The place and the problem of the first bad value in a column."""
    for table in plan.tables:
        if table.header is not None:
            found = _line_problems(table, [role])
        else:
            found = _row_problems(connection, plan, table, [role])
        for place, problem in found:
            return f"{place}: {problem}"
    return ""


def _problems(
    connection: Any, plan: StagingPlan, group: list[InputTable], ragged: int
) -> ProblemCount:
    """The problems of some files by kind; raises unless bad rows are left out."""
    count = ProblemCount()
    for table in group:
        if table.header is not None and not plan.skip:  # line by line, to name the lines
            found = _line_problems(table, plan.needed)
        else:
            found = _row_problems(connection, plan, table, plan.needed)
        for place, problem in found:
            count.add(place, problem)
    if not plan.skip:
        raise count.error()
    if ragged:
        first = next(table for table in group if table.header is not None)
        assert first.header is not None
        count.add(str(first.path), first.header.ragged([]), ragged)
    return count


def _row_problems(
    connection: Any, plan: StagingPlan, table: InputTable, roles: list[str]
) -> Iterator[tuple[str, str]]:
    """(place, problem) of the rows of a file with a bad value in these columns."""
    raw = "".join(f", {table.columns[role][0]} AS given_{role}" for role in roles)
    number = ", file_row_number AS place" if table.header is None else ", 0 AS place"
    bad = " OR ".join(f"{role}_bad" for role in roles)
    wanted = ", ".join(f"given_{role}" for role in roles)
    order = "ORDER BY place" if table.header is None else ""
    checked = _checked(plan, table, more=raw + number)
    cursor = connection.execute(f"SELECT place, {wanted} FROM ({checked}) WHERE {bad} {order}")
    while found := cursor.fetchmany(BATCH):
        for place, *values in found:
            where = f"{table.path}, row {place + 1}" if table.header is None else str(table.path)
            columns = {role: [value] for role, value in zip(roles, values, strict=True)}
            yield where, find_problems(columns).get(0, "a value cannot be read")


def _line_problems(table: InputTable, roles: list[str]) -> Iterator[tuple[str, str]]:
    """(place, problem) of the bad lines of a text file; slow, for files that have some."""
    assert table.header is not None
    header = table.header
    at = {role: header.at[role] for role in roles if role not in table.fixed}
    fixed = {role: [table.fixed[role]] for role in roles if role in table.fixed}
    for line, fields in text_records(table.path, header):
        problem = header.ragged(fields)
        if not problem:
            own = {role: [fields[position]] for role, position in at.items()}
            problem = find_problems(fixed | own).get(0, "")
        if problem:
            yield f"{table.path}, line {line}", problem


def _unreadable(plan: StagingPlan, group: list[InputTable], error: Exception) -> ItemfoldError:
    """The error for files that DuckDB cannot read; names the bad lines, if any are found."""
    count = ProblemCount()
    for table in group:
        if table.header is not None:
            for place, problem in _line_problems(table, plan.needed):
                count.add(place, problem)
    if count.kinds:
        return count.error()
    listed = str(group[0].path) if len(group) == 1 else f"{group[0].path} and others"
    return ItemfoldError(f"{listed}: cannot be read ({reason_of(error)})")
