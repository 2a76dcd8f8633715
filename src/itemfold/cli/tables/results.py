"""Tables and lines on runs, searches, evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.activity import by_activity
from itemfold.cli.tables.layout import add_row, interval_text, new_table, p_value, setting_value
from itemfold.cli.tables.parts import parts_table
from itemfold.data.array_types import Floats
from itemfold.evaluation.activity import stored_activity
from itemfold.evaluation.evaluate import Evaluation
from itemfold.evaluation.metrics import definitions
from itemfold.evaluation.significance import (
    Comparison,
    Interval,
    bootstrap_interval,
    bootstrap_intervals,
)
from itemfold.settings.toml_file import flat
from itemfold.training.run import Run

if TYPE_CHECKING:
    from itemfold.evaluation.tradeoff import Sweep
    from itemfold.experiments.tune import Tuned

LEGEND = (
    "recall@k is the fraction of held-out items in a list of k, ndcg@k also rewards high ranks; 1 "
    "is best. 95 %: interval of the mean over test users"
)


def finished(run: Run) -> RenderableType:
    """The metrics of a finished training run."""
    metrics = run.metrics
    n_evaluated = metrics.get("users", {}).get("judged", 0)
    notes = [Text(f"note: {note}", style="dim") for note in run.notes]
    epochs = metrics["epochs"]
    if not n_evaluated and not metrics["valid"]:
        length = f"{epochs} epochs" if epochs else "closed form"
        line = f"{length} on all {run.train.nnz:,} interactions; none are held out for evaluation"
        return Group(Text(line), *notes)
    best = metrics["best_epoch"]
    refit = f", refitted for {best}" if metrics.get("refit") and best else ""
    length = f"best epoch {best} of {epochs}{refit}" if epochs else "closed form"
    seconds = metrics["seconds"]["train"]
    line = f"{length}; {seconds:.1f} s of training; {_counted(n_evaluated, 'test users')}"
    numbers = ("validation", "test", "95 %")
    table = new_table("metric", *numbers, numbers=numbers)
    valid, test = metrics["valid"], metrics["test"]
    intervals = bootstrap_intervals({n: run.per_user[n] for n in test if n in run.per_user})
    for name in dict.fromkeys((*test, *valid)):  # validation may have another cut-off
        means = (f"{part[name]:.4f}" if name in part else "" for part in (valid, test))
        add_row(table, name, *means, _interval(intervals[name]) if name in intervals else "")
    groups = by_activity(stored_activity(metrics, run.per_user))
    shown = (table, Text(LEGEND, style="dim"), groups, parts_table(run))
    return Group(*shown, Text(line), *notes)


def chosen(run: Run) -> list[str]:
    """Lines on the settings that a run tried and chose itself."""
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


def taken_candidate(run: Run) -> int:
    """The index of the network that a run chose."""
    metric = run.config["train"]["metric"]
    values = [entry[metric] for entry in run.metrics.get("candidates", [])]
    return values.index(max(values)) if values else 0


def tuned(found: Tuned, most: int = 10) -> RenderableType:
    """The best trials of a search, and the configuration that it started from."""
    keys = list(found.best.settings)
    bare = [key.partition(".")[2] for key in keys]  # without the section where that is unambiguous
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


def evaluation(result: Evaluation) -> RenderableType:
    """Metrics with their confidence intervals."""
    table = new_table("metric", "mean", "95 %", numbers=("mean", "95 %"))
    intervals = bootstrap_intervals(result.per_user)
    for name, value in result.metrics.items():
        interval = _interval(intervals[name]) if name in intervals else ""
        add_row(table, name, f"{value:.4f}", interval)
    explained = [Text(text, style="dim") for text in definitions(result.metrics)]
    count = Text(_counted(len(result.ids), "users"))
    return Group(table, count, *explained, by_activity(result.activity))


def sweep(found: Sweep) -> RenderableType:
    """The metrics at each value of a slider, with the change of accuracy and diversity."""
    first = found.points[0].metrics
    keys = [key for key in first if key != f"ndcg@{found.k}"]
    numbers = (f"ndcg@{found.k}", "change", *(key.partition("@")[0] for key in keys))
    table = new_table(found.slider, *numbers, numbers=numbers)
    for point, ndcg in zip(found.points, found.series("ndcg"), strict=True):
        change = f"{ndcg / found.series('ndcg')[0] - 1:+.1%}" if found.series("ndcg")[0] else ""
        cells = (f"{point.metrics[key]:.4f}" for key in keys)
        add_row(table, f"{point.value:g}", f"{ndcg:.4f}", change, *cells)
    lines = [f"{found.users:,} users", *([text] if (text := loss_sentence(found)) else [])]
    explained = [Text(text, style="dim") for text in definitions(first)]
    return Group(table, *map(Text, lines), *explained)


def loss_sentence(found: Sweep, loss: float = 0.02) -> str:
    """What a small loss of accuracy buys; empty if accuracy never loses as much."""
    parts = []
    for name in ("diversity", "genre_diversity", "coverage", "gini", "popularity_bias"):
        if found.measures(name) and (at := found.at_loss(loss, name)):
            parts.append(f"{name} {at[1]:+.1%}")
            slider = at[0]
    if not parts:
        return ""
    head = f"at a loss of {loss:.0%} of NDCG@{found.k} ({found.slider} {slider:.2f}): "
    return head + ", ".join(parts)


def comparison(
    found: Comparison, values: Mapping[str, Mapping[str, Floats]], notes: Sequence[str] = ()
) -> RenderableType:
    """Means with intervals, and each run's change from the first with corrected p-values."""
    numbers = ("mean", "95 %", "change", "p (t)", "p (W)")
    table = new_table("metric", "run", *numbers, numbers=numbers)
    base = values[found.baseline]
    for metric in base:
        first = bootstrap_interval(base[metric])
        add_row(table, metric, found.baseline, f"{first.mean:.4f}", _interval(first))
        for row in (r for r in found.rows if r.metric == metric):
            change = row.test.difference / row.baseline_mean if row.baseline_mean else 0.0
            tests = (f"{change:+.1%}", p_value(row.p_t), p_value(row.p_wilcoxon))
            mean = f"{row.interval.mean:.4f}"
            add_row(table, "", row.system, mean, _interval(row.interval), *tests)
        table.add_section()
    tests_used = f"{found.paired_over} against {found.baseline}: t-test and Wilcoxon test"
    caption = "; ".join([f"{tests_used}, Holm correction", *notes])
    return Group(table, Text(caption, style="dim"))


def _interval(found: Interval) -> str:
    return interval_text(found.low, found.high)


def _counted(count: int, things: str) -> str:
    """A number of things.

    >>> _counted(1, "users"), _counted(1200, "users")
    ('1 user', '1,200 users')
    """
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def updated(run: Run) -> list[str]:
    """Lines on what an update added and did."""
    done, seconds = run.metrics["update"], run.metrics["seconds"]["train"]
    kinds = ("interactions", "users", "items")
    added = ", ".join(_counted(done[f"new_{kind}"], kind) for kind in kinds)
    lines = [f"new: {added}; known already: {done['known_interactions']:,} interactions"]
    if done["linear"]:
        lines.append(f"linear part: {done['linear']}")
    if done["epochs"]:
        lines.append(f"network: {done['epochs']} more epochs")
    users, items = run.train.shape
    lines.append(
        f"{run.train.nnz:,} interactions of {users:,} users with {items:,} items in all, "
        f"{seconds:.1f} s; nothing is held out, so there are no test metrics"
    )
    return [*lines, *(f"note: {note}" for note in run.notes)]
