"""Tables of results by activity: new users, and light, middle and heavy ones."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.layout import add_row, interval_text, new_table, p_value
from itemfold.evaluation.activity import THIRDS, ActivityGroup, ByActivity
from itemfold.evaluation.compare import ActivityComparison

ITEMS = "items: length of the history"
NEW = "new: first seen in the test period, known by their first interactions there"


def by_activity(found: ByActivity) -> RenderableType:
    """Means and intervals of each group of users; empty if all users are alike."""
    if len(found) < 3:
        return Group()
    metrics = list(next(iter(found.values())))
    heads = [head for metric in metrics for head in (metric, "95 %")]
    table = new_table("group", "items", "users", *heads, numbers=("items", "users", *heads))
    for group, values in found.items():
        cells = []
        for interval in (values[metric] for metric in metrics):
            cells += [f"{interval.mean:.4f}", interval_text(interval.low, interval.high)]
        add_row(table, group_name(group, found), group.items, f"{group.users:,}", *cells)
    return Group(table, Text(groups_note(found), style="dim"))


def compared_by_activity(compared: ActivityComparison) -> RenderableType:
    """The change of each run from the first in each group; empty if all users are alike."""
    if not compared.groups:
        return Group()
    numbers = ("items", "users", compared.metric, "change", "p (t)")
    table = new_table("group", "items", "users", "run", *numbers[2:], numbers=numbers)
    for group in compared.groups:
        rows = [row for row in compared.found.rows if row.metric == group.name]
        name = group_name(group, compared.groups)
        first = f"{rows[0].baseline_mean:.4f}"
        add_row(table, name, group.items, f"{group.users:,}", compared.found.baseline, first)
        for row in rows:
            change = row.test.difference / row.baseline_mean if row.baseline_mean else 0.0
            cells = (f"{row.interval.mean:.4f}", f"{change:+.1%}", p_value(row.p_t))
            add_row(table, "", "", "", row.system, *cells)
        table.add_section()
    caption = f"{groups_note(compared.groups)}; Holm correction over all groups"
    return Group(table, Text(caption, style="dim"))


def group_name(group: ActivityGroup, groups: Iterable[ActivityGroup]) -> str:
    """The name of a group, indented if it is a part of the known users."""
    has_new = any(other.name == "new" for other in groups)
    return f"  {group.name}" if has_new and group.name in THIRDS else group.name


def groups_note(groups: Iterable[ActivityGroup]) -> str:
    """What the columns and groups of a table mean."""
    return "; ".join([ITEMS, *(NEW for group in groups if group.name == "new")])
