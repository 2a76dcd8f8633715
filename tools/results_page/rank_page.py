"""The figure and the tables of the study of ranking losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.ranking_losses import Study
from itemfold.experiments.suites.ranking_losses_runs import MeanRanks, on_shared_seeds
from itemfold.experiments.suites.results import ResultRow, ResultTable, metric_title
from itemfold.experiments.suites.suite import Suite
from results_page.formatting import grid
from results_page.plot import BASE, COLOUR, STYLE, Point, digest, panels, svg_of


def rank_picture(found: MeanRanks, suite: Suite, tables: Sequence[ResultTable]) -> str:
    """An SVG of mean ranks; of the values if there is only one data set, the best first."""
    if found.test is not None:
        return rank_plot(found, found.test.critical_difference, suite.title)
    metric = suite.plotted[0]
    table = next(table for table in tables if table.entry.key == found.data[0])
    rows = {row.cell.row: row for row in on_shared_seeds(table).rows}
    points = [
        Point(
            name, row.mean(metric) or 0.0, row.spread(metric) or 0.0, marked=bool(row.mark(metric))
        )
        for name, row in ((name, rows[name]) for name in found.ranks)
    ]
    return panels(suite.title, metric_title(metric), {table.entry.title: points}, suite.baseline)


def rank_plot(found: MeanRanks, gap: float, title: str) -> str:
    """An SVG of mean ranks, with a tick for the rank on each data set.

    Losses within the critical difference of the best are filled.
    """
    import matplotlib
    from matplotlib.figure import Figure

    names, ranks = list(found.ranks), list(found.ranks.values())
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 1.0 + 0.24 * len(names)), layout="constrained")
        axes = figure.subplots()
        for place, rank in enumerate(ranks):
            each = found.of_data[names[place]]
            axes.plot([min(each), max(each)], [place] * 2, color=BASE, alpha=0.35, linewidth=0.8)
            axes.plot(each, [place] * len(each), "|", color=BASE, markersize=7)
            fill = COLOUR if rank - ranks[0] <= gap else "white"
            axes.plot(rank, place, "o", color=COLOUR, markerfacecolor=fill, markersize=5.5)
        axes.plot([ranks[0], ranks[0] + gap], [-0.9, -0.9], color=BASE, linewidth=1.6)
        axes.text(ranks[0], -1.1, f"critical difference {gap:.1f}", color=BASE, fontsize=8)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(names) - 0.5, -1.8)
        axes.set_xticks([1, *range(5, len(names) + 1, 5)] if len(names) >= 5 else range(1, 5))
        axes.set_xlabel(f"mean rank over {len(found.data)} data sets (ticks: on each), 1 is best")
        text = svg_of(figure, title)
    points = {"ranks": [Point(name, rank, gap, False) for name, rank in found.ranks.items()]}
    return f"{text}<!-- figures {digest('rank', points)} -->\n"


def rank_table(found: MeanRanks, tables: Sequence[ResultTable], metric: str) -> str:
    """Losses by mean rank, with a metric on each data set over the seeds that all of them have."""
    shared = [on_shared_seeds(table) for table in tables]
    by_data = {t.entry.key: {row.cell.row: row for row in t.rows} for t in shared}
    body = [
        [name, f"{rank:.1f}", *(by_data[data][name].text(metric) for data in found.data)]
        for name, rank in found.ranks.items()
    ]
    return grid(["loss", "mean rank", *found.data], body)


def study_cells(study: Study, tables: Sequence[ResultTable], trials: Sequence[ResultTable]) -> str:
    """What the study asks for on each data set, and what of it is there.

    Trials that all losses have made count.
    """
    found = {table.entry.key: table for table in tables}
    tried = {table.entry.key: [row.cell.row for row in table.rows] for table in trials}
    body, names = [], study.losses
    for key in (Entry.parse(data).key for data in study.data):
        rows = {row.cell.row: row for row in found[key].rows} if key in found else {}
        of_loss = [
            sum(row.rpartition("-")[0] == name for row in tried.get(key, ())) for name in rows
        ]
        seeds = [len(row.results) for row in rows.values()]
        missing = [name for name in names if name not in rows] if rows else ["all"]
        cells = [f"{len(rows)} of {len(names)}", str(min(of_loss, default="–")), _range(seeds)]
        body.append([key, *cells, *_limits(rows.values()), ", ".join(missing) or "–"])
    heads = ["data", "losses", "trials each", "seeds each", "most epochs", "runs that reach them"]
    return grid([*heads, "missing"], body)


def _limits(rows: Iterable[ResultRow]) -> list[str]:
    """The highest number of epochs, and how many runs were stopped by it."""
    runs = [result for row in rows for result in row.results]
    limits = [run["config"]["train"]["epochs"] for run in runs]
    reached = sum(run["epochs"] >= most for run, most in zip(runs, limits, strict=True))
    return [_range(limits), f"{reached} of {len(runs)}" if runs else "–"]


def _range(counts: Sequence[int]) -> str:
    """The least and the largest count.

    >>> _range([2, 3, 3]), _range([5, 5]), _range([])
    ('2–3', '5', '–')
    """
    if not counts:
        return "–"
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least}–{most}"


def leaders(tables: Sequence[ResultTable], metric: str, shown: Sequence[str]) -> str:
    """For each data set the three best losses, and the places of some others."""
    lines = []
    for table in map(on_shared_seeds, tables):
        rows = [row for row in table.rows if row.mean(metric) is not None]
        order = sorted(rows, key=lambda row: -(row.mean(metric) or 0.0))
        places = {row.cell.row: n for n, row in enumerate(order, 1)}
        best = ", ".join(f"*{row.cell.row}* {row.mean(metric):.2f}" for row in order[:3])
        others = "; ".join(
            f"*{name}* place {places[name]} of {len(order)}" for name in shown if name in places
        )
        lines.append(f"- {table.entry.title}: {best}; {others}.")
    return "\n".join(lines)


def changes(tables: Sequence[ResultTable], metric: str, base: str, others: Sequence[str]) -> str:
    """How a metric of rows NAME-OTHER differs from that of NAME-BASE, in per cent."""
    found: dict[str, dict[str, dict[str, float]]] = {}  # name → data → number → value
    for table in tables:
        for row in table.rows:
            name, _, number = row.cell.row.rpartition("-")
            found.setdefault(name, {}).setdefault(table.entry.key, {})[number] = (
                row.mean(metric) or 0.0
            )

    def cell(values: dict[str, float]) -> str:
        if base not in values:
            return "–"
        return ", ".join(
            f"{100 * (values[other] / values[base] - 1):+.0f}"
            for other in others
            if other in values
        ).replace("-", "−")

    data = [table.entry.key for table in tables]
    body = [[name, *(cell(of.get(key, {})) for key in data)] for name, of in found.items()]
    return grid(["loss", *data], body)
