"""Means and deviations over several seeds or folds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from itemfold.cli.tables.formats import Cell, Figure, ResultTable
from itemfold.errors import ItemfoldError
from itemfold.evaluation.metrics import headline_metrics
from itemfold.experiments.repeats import Repeats, deviation

MEANING = {
    "seeds": "each has its own split and training",
    "folds": "every user or interaction is tested once",
    "time windows": "each model is trained on everything before its window",
}


def check_repeats(seeds: int | None, folds: int | None, *, final: bool, tracks: bool) -> None:
    """Raise if options are incompatible, before data is read."""
    if seeds is not None and folds is not None:
        raise ItemfoldError("'--seeds' and '--folds' each repeat the training: choose one")
    name, number = ("--folds", folds) if seeds is None else ("--seeds", seeds)
    if number is None or number < 2:
        raise ItemfoldError(f"'{name}' must be at least 2, got {number}")
    if final:
        raise ItemfoldError(f"'{name}' needs a test part, which '--final' does not hold out")
    if tracks:
        raise ItemfoldError(f"'{name}' and '--track' cannot be combined: remove one")


def repeated_table(found: Repeats, metrics: Sequence[str] | None = None) -> ResultTable:
    """A table of headline metrics: mean ± standard deviation, range, and popularity."""
    first = next(iter(found.runs.values()))
    names = headline_metrics(first.metrics["test"]) if metrics is None else metrics
    has_popularity = "popularity" in first.metrics
    rows = []
    for name in names:
        values = found.values(name)
        span = f"{min(values):.4f}–{max(values):.4f}"
        cells: list[Cell] = [name, spread(values)]
        cells.append(Figure(span, ((" lowest", min(values)), (" highest", max(values)))))
        others = found.values(name, "popularity")
        rows.append((*cells, *([spread(others) if others else ""] * has_popularity)))
    columns = ("metric", found.model, "range", *["popularity"] * has_popularity)
    note = f"mean ± standard deviation over {len(found.runs)} {found.kind}; {MEANING[found.kind]}"
    return ResultTable(columns, tuple(rows), notes=(note,))


def spread(values: list[float]) -> Figure:
    """A mean with the standard deviation over runs."""
    mean, by = statistics.fmean(values), deviation(values)
    text = f"{mean:.4f}" + ("" if by is None else f" ± {by:.4f}")
    return Figure(text, (("", mean), (" deviation", by)))


def repeated_verdict(found: Repeats) -> str:
    """A sentence: in how many runs the model is better than popularity, and by how much."""
    metric = str(next(iter(found.runs.values())).config["train"]["metric"])
    own, popular = found.values(metric), found.values(metric, "popularity")
    if not own or len(own) != len(popular):
        return f"{found.model}: {len(found.runs)} {found.kind}."
    wins = sum(a > b for a, b in zip(own, popular, strict=True))
    change = statistics.fmean(own) / statistics.fmean(popular) - 1 if any(popular) else 0.0
    return (
        f"{found.model} is better than popularity in {metric} in {wins} of {len(own)} "
        f"{found.kind}, {change:+.1%} on average."
    )
