"""How results look on a terminal: one function a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from itemrec.cli.doctor import Check
from itemrec.data.datasets import DATASETS
from itemrec.evaluation.evaluate import Evaluation
from itemrec.evaluation.significance import Comparison, Floats, Interval, bootstrap_interval
from itemrec.experiments.measured import figures
from itemrec.models import MODELS
from itemrec.serving.recommendation_table import RecommendationTable
from itemrec.serving.recommender import NOTHING, Recommendation, Recommendations
from itemrec.training.run import Run
from itemrec.validation import schema

if TYPE_CHECKING:
    from itemrec.experiments.tune import Tuned

console = Console(emoji=False)  # ":cat:" in a name stays what it is
SHOWN_REASONS = 3


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in columns:
        number = name in numbers or name == "metric"
        table.add_column(
            name, justify="right" if name in numbers else "left", no_wrap=number, overflow="fold"
        )
    return table


def _add(table: Table, *cells: str) -> None:
    """A row shown as it is: rich would take parts of an id or a name for markup and emoji."""
    table.add_row(*map(Text, cells))


def finished(run: Run) -> RenderableType:
    """What a training run has found."""
    m = run.metrics
    table = _table("metric", "validation", "test", "95 %", numbers=("validation", "test", "95 %"))
    for name, value in m["test"].items():
        interval = ""
        if name in run.per_user:
            found = bootstrap_interval(run.per_user[name])
            interval = span(found.low, found.high)
        valid = m["valid"].get(name)
        _add(table, name, "" if valid is None else f"{valid:.4f}", f"{value:.4f}", interval)
    for name in m["valid"].keys() - m["test"].keys():  # what the epoch was chosen by
        _add(table, name, f"{m['valid'][name]:.4f}", "", "")
    judged = m.get("users", {}).get("judged", 0)
    refit = f", refitted for {m['best_epoch']}" if m.get("refit") and m["best_epoch"] else ""
    told = f"best epoch {m['best_epoch']} of {m['epochs']}{refit}" if m["epochs"] else "closed form"
    line = f"{told}; {m['seconds']['train']:.1f} s of training; {judged:,} test users"
    notes = [Text(f"note: {note}", style="dim") for note in run.notes]
    if not judged and not m["valid"]:
        told = f"{m['epochs']} epochs" if m["epochs"] else "closed form"
        line = f"{told} on all {run.train.nnz:,} interactions; nothing was held out to judge by"
        return Group(Text(line), *notes)
    return Group(table, Text(line), *notes)


def tuned(found: Tuned, most: int = 10) -> RenderableType:
    """The best trials of a search, and the one that all began with."""
    keys = list(found.best.settings)
    bare = [key.partition(".")[2] for key in keys]
    names = [one if bare.count(one) == 1 else key for one, key in zip(bare, keys, strict=True)]
    numbers = (found.metric, "epoch", "seconds", *names)
    table = _table("trial", *numbers, numbers=numbers)
    good = sorted((t for t in found.trials if t.value is not None), key=lambda t: -(t.value or 0))
    for trial in [*good[:most], *(t for t in good[most:] if not t.number)]:
        name = str(trial.number) if trial.number else "as given"
        figures = (f"{trial.value:.4f}", str(trial.best_epoch), f"{trial.seconds:.1f}")
        _add(table, name, *figures, *(_told(trial.settings[key]) for key in keys))
    lines = [f"{len(found.trials)} trials, judged on validation; the test part was not met"]
    failed = [trial for trial in found.trials if trial.value is None]
    if failed:
        lines.append(f"{len(failed)} failed, such as trial {failed[0].number}: {failed[0].error}")
    return Group(table, *(Text(line, style="dim") for line in lines))


def _told(value: Any) -> str:
    return "default" if value is None else str(value)


def evaluation(result: Evaluation) -> RenderableType:
    """Metrics with their intervals."""
    table = _table("metric", "mean", "95 %", numbers=("mean", "95 %"))
    for name, value in result.metrics.items():
        interval = ""
        if name in result.per_user:
            low, high = result.interval(name)
            interval = span(low, high)
        _add(table, name, f"{value:.4f}", interval)
    return Group(table, Text(f"{len(result.ids):,} users"))


def comparison(
    found: Comparison, values: Mapping[str, Mapping[str, Floats]], notes: Sequence[str] = ()
) -> RenderableType:
    """Means with intervals, and each run's change from the first with corrected p-values."""
    numbers = ("mean", "95 %", "change", "p (t)", "p (W)")
    table = _table("metric", "run", *numbers, numbers=numbers)
    base = values[found.baseline]
    for metric in base:
        _add(table, metric, found.baseline, *_interval(bootstrap_interval(base[metric])))
        for row in (r for r in found.rows if r.metric == metric):
            change = row.test.difference / row.baseline_mean if row.baseline_mean else 0.0
            tests = (f"{change:+.1%}", p_value(row.p_t), p_value(row.p_wilcoxon))
            _add(table, "", row.system, *_interval(row.interval), *tests)
        table.add_section()
    told = f"paired over users against {found.baseline}: t-test and Wilcoxon's, Holm's correction"
    return Group(table, Text("; ".join([told, *notes]), style="dim"))


def p_value(p: float) -> str:
    """A p-value as people write it.

    >>> p_value(0.00001), p_value(0.0123)
    ('<.001', '.012')
    """
    return "<.001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def span(low: float, high: float) -> str:
    """An interval."""
    return f"{low:.4f}–{high:.4f}"


def _interval(found: Interval) -> tuple[str, str]:
    return f"{found.mean:.4f}", span(found.low, found.high)


def recommendations(found: Recommendations) -> RenderableType:
    """A list by title, with the largest reasons."""
    explained = any(pick.reasons for pick in found)
    titled = any(pick.title for pick in found)
    title, reason = ["title"] * titled, ["because of"] * explained
    table = _table("", "item", *title, "score", *reason)
    for place, pick in enumerate(found, start=1):
        cells = [str(place), str(pick.item), *[pick.title] * titled, f"{pick.score:.4f}"]
        _add(table, *cells, *[because(pick)] * explained)
    parts: list[RenderableType] = [table]
    if not len(found):
        parts = [Text(f"{NOTHING} (--seen lets the history come back)", style="yellow")]
    elif found.fallback:
        parts.insert(0, Text(f"{found.fallback}.", style="yellow"))
    if found.unknown:
        parts.append(Text(unknown(found.unknown), style="yellow"))
    if explained:
        told = "each part is the exact share of a history item in the score"
        if any(pick.own and abs(pick.own) > 1e-4 * abs(pick.score) for pick in found):
            told += "; 'own' is what the user's own trained vector adds"
        parts.append(Text(told, style="dim"))
    return Group(*parts)


def written(lists: RecommendationTable, k: int, path: Path, run: Run) -> RenderableType:
    """Where the lists of all users went, and who has none."""
    parts = [Text(f"{len(lists.users):,} users, up to {k} items each: {path}")]
    if lists.unknown:
        parts.append(Text(unknown(lists.unknown), style="yellow"))
    if missing := run.dataset["users"] - len(run.user_ids):
        told = (
            f"{missing:,} users were held out to judge this run; train --final learns them as well"
        )
        parts.append(Text(told, style="yellow"))
    return Group(*parts)


def unknown(ids: Sequence[Any]) -> str:
    """Which ids of a history or a filter had no effect."""
    return f"not known to this model and left out: {', '.join(map(str, ids))}"


def because(pick: Recommendation) -> str:
    """The largest shares of a score, what the others add, and the user's own part."""
    parts = [f"{r.title or r.item} {r.share:+.3f}" for r in pick.reasons[:SHOWN_REASONS]]
    others = pick.reasons[SHOWN_REASONS:]
    if others:
        many = "others" if len(others) > 1 else "other"
        parts.append(f"{len(others)} {many} {sum(r.share for r in others):+.3f}")
    if pick.own is not None and abs(pick.own) > 1e-4 * abs(pick.score):
        parts.append(f"own {pick.own:+.3f}")
    return ", ".join(parts)


def models() -> RenderableType:
    """Every model with its paper, what it can do and what was measured."""
    measured = figures()
    table = _table("model", "year", "unseen users", "explains", "paper, settings, NDCG@20")
    for name, model in MODELS.items():
        settings = ", ".join(f"{k}={v}" for k, v in schema(model).items())
        told = [escape(model.paper), *([f"[dim]{escape(settings)}[/]"] if settings else [])]
        found = measured.get(name, {})
        known = [f"{data} {100 * test['ndcg@20']:.2f}" for data, test in found.items()]
        told += [f"[cyan]{escape(', '.join(known))}[/]"] if known else []
        can = ("yes" if able else "no" for able in (model.inductive, model.explains))
        table.add_row(name, str(model.year or ""), *can, "\n".join(told))
    caption = (
        "NDCG@20 × 100 on test data, repeated by `itemrec reproduce systems`; RESULTS.md has more. "
        "All of them train and score on a CPU and on a GPU."
    )
    return Group(table, f"[dim]{caption}[/]")


def health(checks: Sequence[Check]) -> RenderableType:
    """What `doctor` found."""
    colours = {"ok": "green", "missing": "yellow", "wrong": "bold red"}
    table = Table.grid(padding=(0, 2))
    for check in checks:
        state = Text(check.state, style=colours[check.state])
        table.add_row(check.name, state, Text(check.told))
    return table


def datasets() -> RenderableType:
    """Every named data set with its home and size."""
    numbers = ("users", "items", "interactions")
    table = _table("data set", *numbers, "what, home, licence", numbers=numbers)
    for name, entry in DATASETS.items():
        sizes = (entry.users, entry.items, entry.interactions)
        shown = [f"{size:,}" if size else "any" for size in sizes]
        told = f"{escape(entry.about)}\n{escape(entry.home)}\n[dim]{escape(entry.licence)}[/]"
        table.add_row(name, *shown, told)
        table.add_section()
    return table
