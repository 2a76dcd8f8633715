"""Details of a trained run: all metrics, groups of users, parts, selected settings."""

from __future__ import annotations

from rich.console import Group, RenderableType

from itemfold.cli.tables.activity import by_activity
from itemfold.cli.tables.formats import Cell, Figure, ResultTable, measured, on_terminal
from itemfold.cli.tables.layout import setting_value
from itemfold.cli.tables.parts import parts_table
from itemfold.evaluation.activity import stored_activity
from itemfold.evaluation.intervals import bootstrap_intervals
from itemfold.evaluation.metrics import definitions
from itemfold.settings.toml_file import flat
from itemfold.training.run import Run

LEGEND = (
    "recall@k is the fraction of held-out items in a list of k, ndcg@k also rewards high ranks; 1 "
    "is best. 95 %: interval of the mean over test users"
)


def details(run: Run) -> RenderableType:
    """All metrics, users by activity, and the parts of a hybrid."""
    if not run.metrics["test"] and not run.metrics["valid"]:
        return Group()
    groups = by_activity(stored_activity(run.metrics, run.per_user))
    tables = [on_terminal(table) for table in (all_metrics(run), *groups)]
    return Group(*tables, parts_table(run))


def all_metrics(run: Run) -> ResultTable:
    """Every stored metric on validation and on test, with intervals."""
    valid, test = run.metrics["valid"], run.metrics["test"]
    intervals = bootstrap_intervals({n: run.per_user[n] for n in test if n in run.per_user})
    rows = []
    for name in dict.fromkeys((*test, *valid)):  # validation may have another cut-off
        on_valid: Cell = Figure.number(valid[name]) if name in valid else ""
        on_test: tuple[Cell, ...] = (Figure.number(test[name]), "") if name in test else ("", "")
        if name in intervals:
            on_test = measured(intervals[name])
        rows.append((name, on_valid, *on_test))
    columns = ("metric", "validation", "test", "95 %")
    return ResultTable(columns, tuple(rows), notes=(LEGEND, *definitions(test)))


def chosen(run: Run) -> list[str]:
    """Lines that list the settings that a run tried and selected."""
    metrics, metric = run.metrics, run.config["train"]["metric"]
    lines = []
    for entry in metrics.get("candidates", []):
        best = f"{metric} {entry[metric]:.4f} at epoch {entry['best_epoch']}"
        lines.append(f"tried on validation: {entry['name']}: {best}")
    if trials := metrics.get("trials"):
        values = [trial[metric] for trial in trials]
        spread = f"{metric} {min(values):.4f} to {max(values):.4f} alone"
        lines.append(f"tried on validation: {len(trials)} settings of the linear model, {spread}")
    taken = flat(metrics.get("chosen", {}))
    settings = [f"{path}={setting_value(value)}" for path, value in taken.items()]
    if settings:
        lines.append("chosen: " + ", ".join(settings))
    return lines


def selected_candidate(run: Run) -> int:
    """The index of the network that a run selected."""
    metric = run.config["train"]["metric"]
    values = [entry[metric] for entry in run.metrics.get("candidates", [])]
    return values.index(max(values)) if values else 0
