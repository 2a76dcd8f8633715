"""The sections of the HTML report with metrics of runs, of their parts, and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from itemfold.cli.report.table import html_table
from itemfold.cli.tables.layout import interval_text, p_value
from itemfold.cli.tables.parts import part_warning, parts_alone
from itemfold.errors import ItemfoldError
from itemfold.evaluation.compare import compare_runs
from itemfold.evaluation.intervals import bootstrap_intervals
from itemfold.evaluation.metrics import best_value, definitions
from itemfold.training.run import Run

ACCURACY = (
    "recall is the fraction of a user's held-out items T that are in a list of k; capped_recall "
    "divides by min(|T|, k) instead of |T|, precision by k; hit is 1 if there is any. ndcg, ap and "
    "mrr also reward high ranks. From 0 to 1: more is better."
)


def stored_metrics(runs: Mapping[str, Run]) -> list[str]:
    """The names of all test metrics of some runs, in their order."""
    return list(dict.fromkeys(m for run in runs.values() for m in run.metrics["test"]))


def metric_table(
    runs: Mapping[str, Run], metrics: Sequence[str], more: Sequence[list[str]] = ()
) -> str:
    """Test metrics with intervals, a column for each run and the best in bold; then more rows."""
    tests = {name: run.metrics["test"] for name, run in runs.items()}
    intervals = {
        name: bootstrap_intervals({m: run.per_user[m] for m in metrics if m in run.per_user})
        for name, run in runs.items()
    }
    rows = []
    for metric in metrics:
        best = best_value(metric, [test[metric] for test in tests.values() if metric in test])
        cells = [escape(metric)]
        for name, test in tests.items():
            if metric not in test:
                cells.append("–")
                continue
            text = f"{test[metric]:.4f}"
            text = f"<b>{text}</b>" if test[metric] == best and len(runs) > 1 else text
            if found := intervals[name].get(metric):
                text += f"<br><small>{interval_text(found.low, found.high)}</small>"
            cells.append(text)
        rows.append(cells)
    return html_table(["metric", *map(escape, runs)], [*rows, *more])


def metrics_section(group: Mapping[str, Run]) -> str:
    """Every test metric of each run, and what the metrics mean."""
    metrics = stored_metrics(group)
    seconds = (f"{run.metrics['seconds']['train']:.1f}" for run in group.values())
    epochs = (str(run.metrics["best_epoch"]) for run in group.values())
    table = metric_table(group, metrics, [["training, s", *seconds], ["epochs", *epochs]])
    n_users = next(iter(group.values())).metrics.get("users", {}).get("judged", 0)
    note = f"Means over {n_users:,} test users with bootstrap 95 % intervals; best in bold."
    meaning = (f"<li>{escape(line)}</li>" for line in (ACCURACY, *definitions(metrics)))
    return (
        f'<h3>Test metrics</h3>{table}<p class="note">{note}</p>'
        f'<ul class="note">{"".join(meaning)}</ul>'
    )


def parts_section(group: Mapping[str, Run]) -> str:
    """The parts of every hybrid, with a warning if one is better than the sum; may be empty."""
    out = []
    for name, run in group.items():
        if parts := parts_alone(run):
            whole = parts[0].whole
            rows = [] if whole is None else [["the sum of the parts", f"{whole:.4f}", "", ""]]
            for part in parts:
                change = "" if part.change is None else f"{part.change:+.1%}"
                p = escape(p_value(part.p))
                rows.append([f"{escape(part.name)} alone", f"{part.value:.4f}", change, p])
            out.append(f"<h4>{escape(name)}</h4>" if len(group) > 1 else "")
            if warning := part_warning(run):
                out.append(f'<p class="warning">Warning: {escape(warning)}.</p>')
            out.append(html_table(["", run.config["train"]["metric"], "change", "p, t-test"], rows))
    if not out:
        return ""
    note = "Each part alone on test, against the sum: relative change and paired t-test over users."
    return f'<h3>Parts of the hybrid</h3>{"".join(out)}<p class="note">{note}</p>'


def tests_section(group: Mapping[str, Run]) -> str:
    """Paired tests against the first run; empty for a single one."""
    if len(group) < 2:
        return ""
    try:
        compared = compare_runs(group)
    except ItemfoldError as error:
        return f'<p class="note">No paired test: {escape(str(error))}.</p>'
    found, rows = compared.tests, []
    for row in found.rows:
        cells = [escape(row.metric), escape(row.system), f"{row.test.difference:+.4f}"]
        cells += [f"{row.change:+.1%}", *(escape(p_value(p)) for p in (row.p_t, row.p_wilcoxon))]
        rows.append(cells)
    head = ["metric", "run", "difference", "change", "p, t-test", "p, Wilcoxon"]
    over = found.paired_over[0].upper() + found.paired_over[1:]
    note = f"{over} against {found.baseline}, Holm correction; {'; '.join(compared.notes)}."
    return (
        "<h3>Paired tests</h3>"
        + html_table(head, rows, text=2)
        + f'<p class="note">{escape(note)}</p>'
    )
