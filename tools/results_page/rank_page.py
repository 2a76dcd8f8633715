"""The figure and the tables of the study of ranking losses."""

from __future__ import annotations

from collections.abc import Sequence

from itemfold.experiments.suites.ranking_losses_runs import MeanRanks
from itemfold.experiments.suites.results import ResultTable
from results_page.formatting import grid
from results_page.plot import BASE, COLOUR, STYLE, Point, digest, svg_of


def rank_plot(found: MeanRanks, title: str) -> str:
    """An SVG of mean ranks; losses within the critical difference of the best are filled."""
    import matplotlib
    from matplotlib.figure import Figure

    names, ranks = list(found.ranks), list(found.ranks.values())
    gap = found.test.critical_difference if found.test else 0.0
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 1.0 + 0.24 * len(names)), layout="constrained")
        axes = figure.subplots()
        for place, rank in enumerate(ranks):
            near = found.test is None or rank - ranks[0] <= gap
            fill = COLOUR if near else "white"
            axes.plot(rank, place, "o", color=COLOUR, markerfacecolor=fill, markersize=5.5)
        if found.test is not None:
            axes.plot([ranks[0], ranks[0] + gap], [-0.9, -0.9], color=BASE, linewidth=1.6)
            axes.text(ranks[0], -1.1, f"critical difference {gap:.1f}", color=BASE, fontsize=8)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(names) - 0.5, -1.8)
        of = f"{len(found.data)} data set{'s' if len(found.data) > 1 else ''}"
        axes.set_xlabel(f"mean rank over {of}, 1 is best")
        text = svg_of(figure, title)
    points = {"ranks": [Point(name, rank, gap, False) for name, rank in found.ranks.items()]}
    return f"{text}<!-- figures {digest('rank', points)} -->\n"


def rank_table(found: MeanRanks, tables: Sequence[ResultTable], metric: str) -> str:
    """Losses by mean rank, with a metric on each data set."""
    by_data = {t.entry.key: {row.cell.row: row for row in t.rows} for t in tables}
    body = [
        [name, f"{rank:.1f}", *(by_data[data][name].text(metric) for data in found.data)]
        for name, rank in found.ranks.items()
    ]
    return grid(["loss", "mean rank", *found.data], body)
