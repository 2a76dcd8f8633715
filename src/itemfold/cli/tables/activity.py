"""Tables of results by user activity."""

from __future__ import annotations

from collections.abc import Iterable

from itemfold.cli.tables.formats import Cell, Figure, ResultTable, measured
from itemfold.evaluation.activity import THIRDS, ByActivity
from itemfold.evaluation.compare import ActivityComparison

ITEMS = "items: length of the history"
NEW = "new: first seen in the test period, known by their first interactions there"


def by_activity(found: ByActivity) -> list[ResultTable]:
    """A table of means and intervals by group of users; empty if there are fewer than three."""
    if len(found) < 3:
        return []
    names, metrics = [group.name for group in found], list(next(iter(found.values())))
    rows = []
    for group, values in found.items():
        cells: list[Cell] = [_shown_name(group.name, names), group.items, group.users]
        for interval in (values[metric] for metric in metrics):
            cells += measured(interval)
        rows.append(tuple(cells))
    heads = [head for metric in metrics for head in (metric, "95 %")]
    return [
        ResultTable(
            ("group", "items", "users", *heads),
            tuple(rows),
            title="by activity",
            notes=(groups_note(names),),
        )
    ]


def compared_by_activity(compared: ActivityComparison) -> ResultTable:
    """A table of the relative change of each run from the first run, by group of users."""
    names = [group.name for group in compared.groups]
    rows: list[tuple[Cell, ...]] = []
    for group in compared.groups:
        own = [row for row in compared.found.rows if row.metric == group.name]
        name, first = _shown_name(group.name, names), Figure.number(own[0].baseline_mean)
        rows.append((name, group.items, group.users, compared.found.baseline, first, "", ""))
        for row in own:
            figures = Figure.number(row.interval.mean), Figure.number(row.change, "+.1%")
            again = (Figure.again(name), Figure.again(group.items), Figure.again(group.users))
            rows.append((*again, row.system, *figures, Figure.p(row.p_t)))
    caption = f"{groups_note(names)}; Holm correction over all groups"
    columns = ("group", "items", "users", "run", compared.metric, "change", "p (t)")
    return ResultTable(columns, tuple(rows), words=4, title="by activity", notes=(caption,))


def is_indented(name: str, names: Iterable[str]) -> bool:
    """Whether the name of a group is indented, as a subset of the known users."""
    return name in THIRDS and "new" in names


def groups_note(names: Iterable[str]) -> str:
    """A note that defines the columns and groups of a table."""
    return f"{ITEMS}; {NEW}" if "new" in names else ITEMS


def _shown_name(name: str, names: Iterable[str]) -> str:
    return f"  {name}" if is_indented(name, names) else name
