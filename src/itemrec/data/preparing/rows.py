"""The first phase: rows of all files with checked values, and what is known of each column.

Values stay in the types of `expressions`; a row that cannot be used is marked, since only at the
end it is known whether it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from itemrec.data.bad_rows import ProblemCount, find_problems
from itemrec.data.columns import Names
from itemrec.data.interactions import HOW_TO_SKIP
from itemrec.data.preparing import expressions as sql
from itemrec.data.preparing.inputs import Table, literal, parquet, reason_of
from itemrec.data.preparing.work import Facts, Work
from itemrec.data.readers.delimited import text_records
from itemrec.errors import ItemrecError, NoRowsError

IDS = ("user", "item")
BATCH = 10_000  # bad rows that are looked at together


@dataclass(frozen=True)
class Plan:
    """Which columns there are, how ids are held, and which columns must be good."""

    tables: list[Table]
    names: Names
    skip: bool
    in_order: bool  # whether the order of rows matters
    needs: dict[str, str]  # columns that must be there, and the settings that need them

    @property
    def roles(self) -> list[str]:
        """The columns of every file."""
        return list(self.tables[0].columns)

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [role for role in self.roles if role not in IDS]

    @property
    def needed(self) -> list[str]:
        """The columns whose values must be good; another one may be left out as a whole."""
        wanted = (role for role in self.roles if self.names.get(role) is not None)
        return self.roles if self.skip else list(dict.fromkeys((*IDS, *wanted)))

    def held_as(self, role: str) -> str:
        """How the ids of a role are held."""
        return sql.kind_of_ids(self.tables, role)


def groups_of(tables: Sequence[Table], most_bytes: int, most_files: int) -> list[list[Table]]:
    """Files that are read in one step: few, or small ones."""
    groups: list[list[Table]] = []
    size = 0
    for table in tables:
        own = table.path.stat().st_size
        if not groups or size + own > most_bytes or len(groups[-1]) == most_files:
            groups.append([])
            size = 0
        groups[-1].append(table)
        size += own
    return groups


def stage(connection: Any, plan: Plan, group: list[Table], work: Work, part: int) -> Facts:
    """Write the rows of some files as one parquet file; returns what is known of them."""
    path = work.fresh(f"rows-{part}.parquet")
    rejects = [f"rejects_{n}" for n in range(len(group))]
    selects = (_checked(plan, table, name) for table, name in zip(group, rejects, strict=True))
    connection.execute(f"SET preserve_insertion_order = {str(plan.in_order).lower()}")
    target = f"{literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)"
    try:
        connection.execute(f"COPY ({' UNION ALL '.join(selects)}) TO {target}")
    except connection_errors() as error:
        raise _unreadable(plan, group, error) from error
    facts = _facts(connection, plan, parquet(path))
    ragged = 0
    if plan.skip and group[0].header is not None:
        for name in rejects:
            counted = f"SELECT count(DISTINCT (scan_id, line)) FROM {name}"
            ragged += connection.execute(counted).fetchone()[0]
            connection.execute(f"DROP TABLE {name}; DROP TABLE {name}_scan")
    if ragged or facts["bad"]:
        facts["problems"] = _problems(connection, plan, group, ragged).kinds
    return facts


def used_rows(plan: Plan, bad: int) -> str:
    """The condition that rows of the staged files must meet."""
    marks = " OR ".join(f"{role}_bad" for role in plan.needed)
    return f"NOT ({marks})" if bad else "true"


def connection_errors() -> tuple[type[Exception], ...]:
    """What DuckDB raises if it cannot read a file."""
    import duckdb

    return (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.IOException)


def _source(plan: Plan, table: Table, rejects: str = "") -> str:
    """What DuckDB reads; lines with another number of fields are left out or raise."""
    if table.header is None:
        return table.relation
    if not plan.skip:
        return f"{table.relation})"
    stored = (
        f"store_rejects = true, rejects_table = '{rejects}', rejects_scan = '{rejects}_scan', "
        "rejects_limit = 0"
    )
    return f"{table.relation}, {stored if rejects else 'ignore_errors = true'})"


def _checked(plan: Plan, table: Table, rejects: str = "", more: str = "") -> str:
    """The rows of a file with a mark for each value that cannot be used."""
    values, marks = [], []
    for role, (column, kind) in table.columns.items():
        if role in IDS:
            held_as = plan.held_as(role)
            values.append(f"{sql.id_value(column, kind, held_as)} AS {role}")
            marks.append(f"{sql.id_problem(role, held_as)} AS {role}_bad")
            if table.header is not None:  # a text that is more than its id
                values.append(f"{column} AS {role}_raw")
                marks.append(f"{role}_raw <> {role} AS {role}_wide")
        else:
            values.append(f"{sql.number_value(column, kind, role)} AS {role}")
            marks.append(f"{sql.number_problem(role, role)} AS {role}_bad")
    kept = ", ".join([*plan.roles, *marks, *(["*"] if more else [])])
    inner = f"SELECT {', '.join(values)}{more} FROM {_source(plan, table, rejects)}"
    return f"SELECT {kept} FROM ({inner})"


def _facts(connection: Any, plan: Plan, staged: str) -> Facts:
    """Counts of rows and problems, and whether ids are whole numbers."""
    bad = " OR ".join(f"{role}_bad" for role in plan.needed)
    wanted = {"rows": "count(*)", "bad": f"count(*) FILTER ({bad})"}
    for role in plan.numbers:
        wanted[f"{role}_bad"] = f"count(*) FILTER ({role}_bad)"
    if "time" in plan.roles:
        wanted["latest"] = f"max(time) FILTER (NOT ({bad}) AND NOT time_bad)"
    for role in IDS:
        good = f"FILTER (NOT ({bad}))"
        held_as = plan.held_as(role)
        if held_as == "text" and plan.tables[0].header is not None:
            plain = f"regexp_full_match({role}, '{sql.PLAIN}')"
            exact = f"coalesce(CAST(TRY_CAST({role} AS BIGINT) AS VARCHAR) = {role}, false)"
            wanted[f"{role}_plain"] = f"coalesce(bool_and({plain}) {good}, true)"
            wanted[f"{role}_exact"] = (
                f"coalesce(bool_and({exact} AND NOT {role}_wide) {good}, true)"
            )
        elif held_as == "float":
            whole = f"{role} = floor({role}) AND abs({role}) < {2.0**53!r}"
            wanted[f"{role}_plain"] = f"coalesce(bool_and({whole}) {good}, true)"
        elif held_as == "large":
            whole = f"{role} < {2**63}"
            wanted[f"{role}_plain"] = f"coalesce(bool_and({whole}) {good}, true)"
        else:
            wanted[f"{role}_plain"] = str(held_as == "integer").lower()
    listed = ", ".join(f"{expression} AS {name}" for name, expression in wanted.items())
    values = connection.execute(f"SELECT {listed} FROM {staged}").fetchone()
    return dict(zip(wanted, values, strict=True))


def check_needs(plan: Plan, left_out: dict[str, str]) -> None:
    """Raise if a setting needs a column that the files do not have, or that was left out."""
    for role, setting in plan.needs.items():
        if role in left_out:
            raise ItemrecError(f"{left_out[role]}; {HOW_TO_SKIP}")
        if role not in plan.roles:
            what = {"time": "timestamps"}.get(role, f"{role}s")
            raise ItemrecError(f"'{setting}' needs {what}, these files have none")


def summary(connection: Any, plan: Plan, parts: Sequence[Facts]) -> Facts:
    """What is known of all rows together; raises if there are none, or if a column is missing."""
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
        raise ItemrecError(f"{place}: no row can be used; {reasons}")
    left_out = {
        role: first_problem(connection, plan, role)
        for role in plan.numbers
        if role not in plan.needed and any(part[f"{role}_bad"] for part in parts)
    }
    check_needs(plan, left_out)
    latest = [part["latest"] for part in parts if part.get("latest") is not None]
    return {
        "rows": total["rows"] - total["bad"],
        "bad": total["bad"],
        "skipped": skipped,
        "left_out": left_out,
        "latest": max(latest) if latest else None,
        **{f"{role}_whole": _are_whole(parts, role, bool(skipped)) for role in IDS},
    }


def _are_whole(parts: Sequence[Facts], role: str, spoilt: bool) -> bool:
    """Whether all ids are integers, by the rules of `read`."""
    plain = all(part[f"{role}_plain"] for part in parts)
    return plain or (not spoilt and all(part.get(f"{role}_exact", False) for part in parts))


# --- rows that cannot be used --------------------------------------------------------------------


def first_problem(connection: Any, plan: Plan, role: str) -> str:
    """The sentence on the first value of a column that cannot be used."""
    for table in plan.tables:
        if table.header is not None:
            found = _line_problems(table, [role])
        else:
            found = _row_problems(connection, plan, table, [role])
        for place, problem in found:
            return f"{place}: {problem}"
    return ""


def _problems(connection: Any, plan: Plan, group: list[Table], ragged: int) -> ProblemCount:
    """The problems of some files by kind; they are an error unless bad rows are left out."""
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
        assert group[0].header is not None
        count.add(str(group[0].path), group[0].header.ragged([]), ragged)
    return count


def _row_problems(
    connection: Any, plan: Plan, table: Table, roles: list[str]
) -> Iterator[tuple[str, str]]:
    """(place, problem) of the rows of a file of which a value in these columns is bad."""
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


def _line_problems(table: Table, roles: list[str]) -> Iterator[tuple[str, str]]:
    """(place, problem) of the lines of a text file; slow, and only for files that have any."""
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


def _unreadable(plan: Plan, group: list[Table], error: Exception) -> ItemrecError:
    """The error for files that DuckDB cannot read: by line, where one can be named."""
    count = ProblemCount()
    for table in group:
        if table.header is not None:
            for place, problem in _line_problems(table, plan.needed):
                count.add(place, problem)
    if count.kinds:
        return count.error()
    listed = str(group[0].path) if len(group) == 1 else f"{group[0].path} and others"
    return ItemrecError(f"{listed}: cannot be read ({reason_of(error)})")
