"""Tables and lines on runs, searches, evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.activity import by_activity
from itemfold.cli.tables.formats import Cell, Figure, ResultTable, measured
from itemfold.cli.tables.layout import add_row, counted, new_table
from itemfold.evaluation.compare import ComparedRuns
from itemfold.evaluation.evaluation import Evaluation
from itemfold.evaluation.intervals import bootstrap_interval, bootstrap_intervals
from itemfold.evaluation.metrics import definitions
from itemfold.training.run import Run

if TYPE_CHECKING:
    from itemfold.evaluation.tradeoff import Sweep
    from itemfold.experiments.tune import Tuned

LOSS = 0.02  # of NDCG, for which a table says what a slider changes


def tuned(found: Tuned, most: int = 10) -> RenderableType:
    """A table of the best trials of a search, and of its first configuration."""
    keys = list(found.best.settings)
    bare = [key.partition(".")[2] for key in keys]  # the section is left out if that is unambiguous
    short = (one if bare.count(one) == 1 else key for one, key in zip(bare, keys, strict=True))
    numbers = (found.metric, "epoch", "seconds", *short)
    table = new_table("trial", *numbers, numbers=numbers)
    done = [trial for trial in found.trials if trial.value is not None]
    ranked = sorted(done, key=lambda trial: -(trial.value or 0))
    for trial in [*ranked[:most], *(trial for trial in ranked[most:] if trial.number == 0)]:
        name = str(trial.number) if trial.number else "as given"
        figures = (f"{trial.value:.4f}", str(trial.best_epoch), f"{trial.seconds:.1f}")
        values = (trial.settings[key] for key in keys)
        add_row(table, name, *figures, *("default" if v is None else str(v) for v in values))
    lines = [f"{len(found.trials)} trials, evaluated on validation; the test part was not used"]
    if failed := [trial for trial in found.trials if trial.value is None]:
        lines.append(f"{len(failed)} failed, such as trial {failed[0].number}: {failed[0].error}")
    return Group(table, *(Text(line, style="dim") for line in lines))


def evaluation(result: Evaluation, notes: Sequence[str] = ()) -> list[ResultTable]:
    """Tables of metrics with confidence intervals, in total and by group of users."""
    intervals = bootstrap_intervals(result.per_user)
    rows = [
        (name, *(measured(intervals[name]) if name in intervals else (Figure.number(value), "")))
        for name, value in result.metrics.items()
    ]
    explained = definitions(result.metrics)
    below = (counted(len(result.ids), "users"), *result.notes, *notes, *explained)
    table = ResultTable(("metric", "mean", "95 %"), tuple(rows), notes=below)
    return [table, *by_activity(result.activity)]


def sweep(found: Sweep) -> ResultTable:
    """A table of the metrics at each value of a slider, with the change of NDCG."""
    first, base = found.points[0].metrics, found.series("ndcg")[0]
    keys = [key for key in first if key != f"ndcg@{found.k}"]
    rows = []
    for point, ndcg in zip(found.points, found.series("ndcg"), strict=True):
        change: Cell = Figure.number(ndcg / base - 1, "+.1%") if base else ""
        cells = (Figure.number(point.metrics[key]) for key in keys)
        rows.append((Figure.number(point.value, "g"), Figure.number(ndcg), change, *cells))
    columns = ("slider", f"ndcg@{found.k}", "change", *(k.partition("@")[0] for k in keys))
    lines = [f"{found.users:,} users", *([text] if (text := loss_sentence(found)) else [])]
    title = f"slider: {found.slider}"
    return ResultTable(columns, tuple(rows), title=title, notes=(*lines, *definitions(first)))


def loss_sentence(found: Sweep) -> str:
    """What a small loss of accuracy buys; empty if accuracy never loses as much."""
    parts = []
    for name in ("diversity", "genre_diversity", "coverage", "gini", "popularity_bias"):
        if found.measures(name) and (at := found.at_loss(LOSS, name)):
            parts.append(f"{name} {at[1]:+.1%}")
            slider = at[0]
    if not parts:
        return ""
    head = f"at a loss of {LOSS:.0%} of NDCG@{found.k} ({found.slider} {slider:.2f}): "
    return head + ", ".join(parts)


def comparison(compared: ComparedRuns) -> ResultTable:
    """Means with intervals, and each run's change from the first with corrected p-values."""
    rows: list[tuple[Cell, ...]] = []
    found, notes = compared.tests, compared.notes
    base = compared.values[found.baseline]
    for metric in base:
        first = bootstrap_interval(base[metric])
        rows.append((metric, found.baseline, *measured(first), "", "", ""))
        for row in (r for r in found.rows if r.metric == metric):
            tests = (Figure.number(row.change, "+.1%"), Figure.p(row.p_t), Figure.p(row.p_wilcoxon))
            rows.append((Figure.again(metric), row.system, *measured(row.interval), *tests))
    tests_used = f"{found.paired_over} against {found.baseline}: t-test and Wilcoxon test"
    caption = "; ".join([f"{tests_used}, Holm correction", *notes])
    columns = ("metric", "run", "mean", "95 %", "change", "p (t)", "p (W)")
    return ResultTable(columns, tuple(rows), words=2, notes=(caption,))


def updated(run: Run) -> list[str]:
    """Lines on what an update added and did."""
    done, seconds = run.metrics["update"], run.metrics["seconds"]["train"]
    kinds = ("interactions", "users", "items")
    added = ", ".join(counted(done[f"new_{kind}"], kind) for kind in kinds)
    lines = [f"new: {added}; known already: {done['known_interactions']:,} interactions"]
    if done["linear"]:
        lines.append(f"linear part: {done['linear']}")
    if done["epochs"]:
        lines.append(f"network: {counted(done['epochs'], 'more epochs')}")
    users, items = run.interactions.shape
    lines.append(
        f"{run.interactions.nnz:,} interactions of {users:,} users with {items:,} items in all, "
        f"{seconds:.1f} s; nothing is held out, so there are no test metrics"
    )
    return [*lines, *(f"note: {note}" for note in run.notes)]
