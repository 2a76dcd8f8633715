"""The section of the HTML report on activity: new users, and light, middle and heavy ones."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from itemfold.cli.report import plots
from itemfold.cli.report.table import html_table
from itemfold.cli.tables.activity import NEW, is_indented
from itemfold.cli.tables.layout import interval_text, p_value
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import ByActivity, merged_group, shown_metrics, stored_activity
from itemfold.evaluation.compare import compare_by_activity
from itemfold.training.run import Run


def activity_section(group: Mapping[str, Run]) -> str:
    """Metrics, a plot and paired tests by activity; empty if all users are alike."""
    found = {name: stored_activity(run.metrics, run.per_user) for name, run in group.items()}
    found = {name: of_run for name, of_run in found.items() if len(of_run) > 2}
    if not found:
        return ""
    metrics = [
        metric
        for metric in shown_metrics(next(iter(next(iter(found.values())).values())))
        if all(metric in values for of_run in found.values() for values in of_run.values())
    ]
    note = "Light, middle and heavy are thirds of the users by the length of their history."
    if any(group.name == "new" for of_run in found.values() for group in of_run):
        note = note.replace("the users", "the known users") + f" {NEW[0].upper()}{NEW[1:]}."
    svg = "".join(plots.by_activity(found, metric) for metric in metrics[:1])
    caption = f"Mean {metrics[0]} with 95 % intervals." if metrics else ""
    return (
        "<h3>By activity</h3>"
        + _table(found, metrics)
        + f'<p class="note">{escape(note)}</p>'
        + f'<figure>{svg}<figcaption class="note">{escape(caption)}</figcaption></figure>'
        + _tests({name: group[name] for name in found}, metrics)
    )


def _table(found: Mapping[str, ByActivity], metrics: list[str]) -> str:
    names = list(dict.fromkeys(group.name for of_run in found.values() for group in of_run))
    by_name = {run: {g.name: (g, v) for g, v in of_run.items()} for run, of_run in found.items()}
    rows = []
    for metric in metrics:
        for name in names:
            merged = merged_group(name, found.values())
            indent = "&emsp;" if is_indented(name, names) else ""
            cells = [escape(metric if name == names[0] else ""), indent + escape(merged.label)]
            users = {of_run[name][0].users for of_run in by_name.values() if name in of_run}
            cells.append("–".join(f"{n:,}" for n in sorted({min(users), max(users)})))
            for of_run in by_name.values():
                if name not in of_run:
                    cells.append("–")
                    continue
                interval = of_run[name][1][metric]
                bounds = interval_text(interval.low, interval.high)
                cells.append(f"{interval.mean:.4f} <small>{bounds}</small>")
            rows.append(cells)
    return html_table(["metric", "group", "users", *map(escape, found)], rows, text=2)


def _tests(runs: Mapping[str, Run], metrics: list[str]) -> str:
    """Paired tests in each group; empty for one run, or for runs that cannot be paired."""
    if len(runs) < 2 or not metrics:
        return ""
    try:
        compared = compare_by_activity(runs, metrics[0])
    except ItemfoldError:  # the section on paired tests says why
        return ""
    rows = []
    for group in compared.groups:
        for row in (row for row in compared.found.rows if row.metric == group.name):
            cells = [escape(group.label), escape(row.system), f"{group.users:,}"]
            cells += [f"{row.test.difference:+.4f}", f"{row.change:+.1%}", escape(p_value(row.p_t))]
            rows.append(cells)
    head = ["group", "run", "users", "difference", "change", "p, t-test"]
    note = f"{compared.metric}: {compared.found.paired_over} against {compared.found.baseline}, "
    note += "Holm correction over all groups."
    return html_table(head, rows, text=2) + f'<p class="note">{escape(note)}</p>'
