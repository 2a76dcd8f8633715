"""The top of the HTML report: a verdict, five metrics and one picture of each group of runs."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from itemfold.cli.report import plots
from itemfold.cli.report.metrics import metric_table, stored_metrics
from itemfold.cli.report.table import html_table
from itemfold.cli.tables.parts import parts_alone
from itemfold.cli.tables.summary import (
    MEANING,
    cautions,
    compared_verdict,
    headlines,
    references,
    verdict,
)
from itemfold.evaluation.intervals import Interval, bootstrap_intervals
from itemfold.evaluation.metrics import headline_metrics
from itemfold.training.run import Run


def answer_section(group: Mapping[str, Run]) -> str:
    """What a reader wants to know first; empty if nothing was tested."""
    tested = {name: run for name, run in group.items() if run.metrics["test"]}
    if not tested:
        return '<p class="verdict">Nothing was held out, so there are no test metrics.</p>'
    (first, *_) = tested.values()
    is_one = len(tested) == 1
    sentence = verdict(first) if is_one else compared_verdict(tested)
    warnings = dict.fromkeys(text for run in tested.values() for text in cautions(run))
    stored = stored_metrics(tested)
    table = _one_run(first) if is_one else metric_table(tested, headline_metrics(stored))
    names = {name.partition("@")[0] for name in stored}
    meaning = "; ".join(text for name, text in MEANING.items() if name in names)
    metric = first.config["train"]["metric"]
    svg = plots.means(_means(tested, metric), metric)
    caption = f"Mean {metric} of the test users with 95 % intervals where they are known."
    return (
        f'<p class="verdict">{escape(sentence)}</p>'
        + "".join(f'<p class="warning">Warning: {escape(w)}.</p>' for w in warnings)
        + f'<figure>{svg}<figcaption class="note">{escape(caption)}</figcaption></figure>'
        + table
        + f'<p class="note">{escape(meaning)}.</p>'
    )


def _one_run(run: Run) -> str:
    table = headlines(run)
    return html_table(
        [escape(name) for name in table.columns],
        [[escape(text) for text in cells] for cells in table.texts()],
    )


def _means(runs: Mapping[str, Run], metric: str) -> dict[str, Interval]:
    """The metric of each run; of a single one, beside popularity and its parts."""
    out = {}
    for name, run in runs.items():
        if metric in run.per_user:
            label = name if len(runs) > 1 else run.metrics["model"]
            out[label] = bootstrap_intervals({metric: run.per_user[metric]})[metric]
    if len(runs) == 1:
        (run,) = runs.values()
        others = {part.name: part.value for part in parts_alone(run)}
        others |= {r.name: r.values[metric] for r in references(run) if r.name == "popularity"}
        for name, value in sorted(others.items(), key=lambda pair: -pair[1]):
            label = name if name == "popularity" else f"{name} alone"
            out[label] = Interval(value, value, value)
    return out
