"""Tables of results by activity: new users, and light, middle and heavy ones."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.layout import add_row, interval_text, new_table, p_value
from itemfold.evaluation.activity import THIRDS, ByActivity
from itemfold.evaluation.compare import ActivityComparison

ITEMS = "items: length of the history"
NEW = "new: first seen in the test period, known by their first interactions there"


def by_activity(found: ByActivity) -> RenderableType:
    """Means and intervals of each group of users; empty if all users are alike."""
    if len(found) < 3:
        return Group()
    names, metrics = [group.name for group in found], list(next(iter(found.values())))
    heads = [head for metric in metrics for head in (metric, "95 %")]
    table = new_table("group", "items", "users", *heads, numbers=("items", "users", *heads))
    for group, values in found.items():
        cells = []
        for interval in (values[metric] for metric in metrics):
            cells += [f"{interval.mean:.4f}", interval_text(interval.low, interval.high)]
        add_row(table, _shown_name(group.name, names), group.items, f"{group.users:,}", *cells)
    return Group(table, Text(groups_note(names), style="dim"))


def compared_by_activity(compared: ActivityComparison) -> RenderableType:
    """The change of each run from the first in each group."""
    names = [group.name for group in compared.groups]
    numbers = ("items", "users", compared.metric, "change", "p (t)")
    table = new_table("group", "items", "users", "run", *numbers[2:], numbers=numbers)
    for group in compared.groups:
        rows = [row for row in compared.found.rows if row.metric == group.name]
        name = _shown_name(group.name, names)
        first = f"{rows[0].baseline_mean:.4f}"
        add_row(table, name, group.items, f"{group.users:,}", compared.found.baseline, first)
        for row in rows:
            change = row.test.difference / row.baseline_mean if row.baseline_mean else 0.0
            cells = (f"{row.interval.mean:.4f}", f"{change:+.1%}", p_value(row.p_t))
            add_row(table, "", "", "", row.system, *cells)
        table.add_section()
    caption = f"{groups_note(names)}; Holm correction over all groups"
    return Group(table, Text(caption, style="dim"))


def is_indented(name: str, names: Iterable[str]) -> bool:
    """Whether the name of a group is indented, as a part of the known users."""
    return name in THIRDS and "new" in names


def groups_note(names: Iterable[str]) -> str:
    """What the columns and groups of a table mean."""
    return f"{ITEMS}; {NEW}" if "new" in names else ITEMS


def _shown_name(name: str, names: Iterable[str]) -> str:
    return f"  {name}" if is_indented(name, names) else name
