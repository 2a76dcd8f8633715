"""Pages written by hand as templates, with every figure looked up in the stored results.

``results/RESULTS.template.md`` becomes RESULTS.md, any other ``results/NAME.template.md`` the page
``results/NAME.md``. They have these placeholders; figures are × 100::

    {SUITE DATA ROW METRIC}              mean over seeds; METRIC#0: of seed 0 alone
    {p SUITE DATA ROW METRIC}            the corrected p-value of the paired test with the baseline
    {part SUITE DATA ROW METRIC PART}    what a part of the model reaches alone
    {part_p SUITE DATA ROW METRIC}       the p-value against the better part: of the suite's test if
                                         that is its baseline, or the highest of the seeds
    {epoch_seconds SUITE DATA ROW}       seconds of training per epoch
    {best_seconds SUITE DATA ROW}        seconds of training until the best epoch
    {paper SUITE DATA ROW METRIC}        the published figure for that row
    {ratio SUITE DATA ROW A B}           our figure of metric A divided by that of metric B
    {paper_ratio SUITE DATA ROW A B}     the same of the published figures
    {published DATA METRIC}              the highest published figure for any row, and its source
    {above SUITE ENDING METRIC}          how many rows with that ending beat their baseline
    {significant SUITE ENDING METRIC}    how many of these do so significantly
    {exceeds SUITE,SUITE ROW ROW METRIC} on how many data sets the first row beats the second
    {gaps SUITE METRIC}                  a table of rows and data sets: the mean, and its difference
                                         from the published figure in per cent
    {short PERCENT SUITE,SUITE METRIC}   the rows more than that below on each of their data sets
    {future}                             a table of ``future.json``: systems and data sets, NDCG@20
                                         on later periods of all users and of new ones
    {future_p DATA}                      there, the p-value of the default chosen in time against it
                                         chosen at random
    {details SUITE}                      the tables of a suite's page
    {rank_table SUITE METRIC}            rows by mean rank, with the metric on each data set
    {rank_test SUITE}                    Friedman's test and the critical difference
    {mean_rank SUITE ROW}                the mean rank of a row, and its place
    {study_cells}                        what of the study of ranking losses is there
    {leaders SUITE METRIC ROW,ROW}       the best rows of each data set, and the places of others
    {changes SUITE METRIC BASE N,N}      how rows NAME-N differ from NAME-BASE, in per cent
    {against SUITE METRIC ROW}           on how many data sets each row is better than one of them
    {ahead SUITE METRIC ROW N}           the rows that are better than it on at least N data sets
    {behind SUITE METRIC ROW}            how far it is below the best row of a data set, at most
    {agreement SUITE SUITE METRIC TITLE,TITLE} how far the order of the rows of two suites agrees
    {pages}                              links to the pages of all suites
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.ranking_losses import STUDY, TRIALS_OF, Study
from itemfold.experiments.suites.ranking_losses_runs import MeanRanks, mean_ranks
from itemfold.experiments.suites.results import ResultRow, ResultTable
from itemfold.experiments.suites.suite import Suite
from results_page.formatting import GENERATED, grid, probability
from results_page.loss_comparisons import against_table, agreement, ahead, behind
from results_page.rank_page import changes, leaders, rank_table, study_cells
from results_page.remarks import best_seconds, epoch_seconds
from results_page.suite_page import table_details

ENDING = ".template.md"
PLAIN = "# Results\n\n{pages}"  # if there is no template
# Rows of the page of the future that are no systems: chosen on the test part, and parts of one.
NO_SYSTEMS = ("best popularity", "its linear part", "its network and prior", "its neighbours")
WIDTH = 105  # of paragraphs, after figures are filled in


@dataclass(frozen=True)
class Found:
    """All results.

    Attributes:
        suites: The suites with their tables.
        pages: The titles of the pages by file.
        future: What `benchmarks/future.py` measured on each data set.
    """

    suites: Mapping[str, tuple[Suite, list[ResultTable]]]
    pages: Mapping[str, str]
    future: Sequence[Mapping[str, Any]] = ()

    def rows(self, suite: str) -> Iterator[tuple[str, ResultRow]]:
        """The data set and the row of every result of a suite."""
        for table in self.suites[suite][1] if suite in self.suites else ():
            for row in table.rows:
                yield table.entry.key, row

    def row(self, suite: str, data: str, name: str) -> ResultRow:
        """One row; raises `StopIteration` if there is none."""
        return next(r for key, r in self.rows(suite) if (key, r.cell.row) == (data, name))


def template_names(results: Path) -> list[str]:
    """The names of the templates, without RESULTS."""
    names = [path.name.removesuffix(ENDING) for path in sorted(results.glob(f"*{ENDING}"))]
    return [name for name in names if name != "RESULTS"]


def fill_template(results: Path, name: str, found: Found) -> str:
    """A template with its figures filled in and its paragraphs wrapped."""
    path = results / f"{name}{ENDING}"
    text = path.read_text(encoding="utf-8").strip() if path.exists() else PLAIN

    def look_up(match: re.Match[str]) -> str:
        first, *rest = match[1].split()
        try:
            if first in LOOKUPS:
                return LOOKUPS[first](found, *rest)
            return _mean(found, first, *rest)
        except (LookupError, StopIteration, TypeError) as error:
            raise ItemfoldError(f"{path}: no result has the figure {match[0]}") from error

    filled = re.sub(r"\{([^{}]+)\}", look_up, text)
    return "\n\n".join([*map(_wrap, filled.split("\n\n")), GENERATED]) + "\n"


def _wrap(block: str) -> str:
    """A paragraph or list in lines of readable length; tables and headings are unchanged."""
    if block.startswith(("|", "#", "<", "    ")):
        return block
    return "\n".join(
        textwrap.fill(
            " ".join(item.split()),
            WIDTH,
            break_on_hyphens=False,
            break_long_words=False,
            subsequent_indent="  " if item.startswith("- ") else "",
        )
        for item in re.split(r"\n(?=- )", block)
    )


# --- placeholders --------------------------------------------------------------------------------


def _mean(found: Found, suite: str, data: str, name: str, metric: str) -> str:
    value = found.row(suite, data, name).mean(metric)
    if value is None:
        raise LookupError(metric)
    return f"{value:.2f}"


def _p(found: Found, suite: str, data: str, name: str, metric: str) -> str:
    return probability(found.row(suite, data, name).p[metric][0])


def _part(found: Found, suite: str, data: str, name: str, metric: str, *part: str) -> str:
    return f"{_part_mean(found.row(suite, data, name), ' '.join(part), metric):.2f}"


def _part_p(found: Found, suite: str, data: str, name: str, metric: str) -> str:
    row = found.row(suite, data, name)
    parts: list[str] = list(row.results[0]["parts"])
    best = max(parts, key=lambda part: _part_mean(row, part, metric))
    if best == "linear":
        return _p(found, suite, data, name, metric)
    return probability(max(result["parts"][best]["p"] for result in row.results))


def _part_mean(row: ResultRow, part: str, metric: str) -> float:
    """What a part of the model reaches alone, mean over seeds, × 100."""
    return 100 * statistics.fmean(result["parts"][part][metric] for result in row.results)


def _epoch_seconds(found: Found, suite: str, data: str, name: str) -> str:
    return f"{epoch_seconds(found.row(suite, data, name)):.2f}"


def _best_seconds(found: Found, suite: str, data: str, name: str) -> str:
    return f"{best_seconds(found.row(suite, data, name)):.1f}"


def _paper(found: Found, suite: str, data: str, name: str, metric: str) -> str:
    return f"{100 * found.row(suite, data, name).cell.paper[metric]:.2f}"


def _ratio(found: Found, suite: str, data: str, name: str, one: str, other: str) -> str:
    row = found.row(suite, data, name)
    values = row.mean(one), row.mean(other)
    if values[0] is None or values[1] is None:
        raise LookupError(one, other)
    return f"{values[0] / values[1]:.3f}".removeprefix("0")


def _paper_ratio(found: Found, suite: str, data: str, name: str, one: str, other: str) -> str:
    paper = found.row(suite, data, name).cell.paper
    return f"{paper[one] / paper[other]:.3f}".removeprefix("0")


def _published(found: Found, data: str, metric: str) -> str:
    """The first of the highest figures, in the order of the pages; a dash if there is none."""
    known = [
        row.cell
        for suite in found.suites
        for key, row in found.rows(suite)
        if key == data and metric in row.cell.paper
        if "cold_start" not in row.cell.config["split"]  # thinned: a different split
    ]
    if not known:
        return "–"
    best = max(known, key=lambda cell: cell.paper[metric])
    return f"{100 * best.paper[metric]:.2f} (*{best.row}*; {best.source})"


def _above(found: Found, suite: str, ending: str, metric: str) -> str:
    return _count(found, suite, ending, lambda row, base: _gain(row, base, metric) > 0)


def _significant(found: Found, suite: str, ending: str, metric: str) -> str:
    return _count(found, suite, ending, lambda row, _: row.mark(metric) == " ▲")


def _gain(row: ResultRow, base: ResultRow, metric: str) -> float:
    return (row.mean(metric) or 0.0) - (base.mean(metric) or 0.0)


def _count(
    found: Found, suite: str, ending: str, holds: Callable[[ResultRow, ResultRow], bool]
) -> str:
    """ "11 of 12": for how many rows with an ending, over all data sets, the condition holds."""
    outcomes = []
    for data, row in found.rows(suite):
        if row.cell.row.endswith(ending):
            base = found.suites[suite][0].baseline_of(row.cell.row)
            outcomes.append(holds(row, found.row(suite, data, base)))
    return _of(outcomes)


def _of(outcomes: list[bool]) -> str:
    if not outcomes:
        raise LookupError("no such rows")
    return f"{sum(outcomes)} of {len(outcomes)}"


def _exceeds(found: Found, suites: str, name: str, other: str, metric: str) -> str:
    outcomes = [
        _gain(row, found.row(suite, data, other), metric) > 0
        for suite in suites.split(",")
        for data, row in found.rows(suite)
        if row.cell.row == name
    ]
    return _of(outcomes)


def _gaps(found: Found, suite: str, metric: str) -> str:
    cells: dict[tuple[str, str], str] = {}
    for data, row in found.rows(suite):
        if metric in row.cell.paper:
            gap = f"{100 * _gap(row, metric):+.1f} %".replace("-", "−")
            cells[row.cell.row, data] = f"{row.mean(metric):.2f} ({gap})"
    columns = list(dict.fromkeys(data for _, data in cells))
    rows = [r for r in found.suites[suite][0].rows if any((r, c) in cells for c in columns)]
    head = ["| | " + " | ".join(columns) + " |", "| :-- |" + " --: |" * len(columns)]
    body = [f"| {r} | " + " | ".join(cells.get((r, c), "") for c in columns) + " |" for r in rows]
    return "\n".join([*head, *body])


def _short(found: Found, percent: str, suites: str, metric: str) -> str:
    best: dict[str, float] = {}
    for suite in suites.split(","):
        for _, row in found.rows(suite):
            if metric in row.cell.paper:
                name = row.cell.row
                best[name] = max(best.get(name, -1.0), _gap(row, metric))
    names = [f"*{name}*" for name, gap in best.items() if gap < -float(percent) / 100]
    return ", ".join(names) or "none"


def _gap(row: ResultRow, metric: str) -> float:
    """The relative difference of the mean from the published figure."""
    return (row.mean(metric) or 0.0) / (100 * row.cell.paper[metric]) - 1


def _future(found: Found) -> str:
    """The best of each data set is bold."""
    if not found.future:
        raise LookupError("future.json")
    named = dict.fromkeys(name for data in found.future for name in data["rows"])
    systems = [name for name in named if name not in NO_SYSTEMS]
    best = [
        max(row["all"] for name, row in data["rows"].items() if name not in NO_SYSTEMS)
        for data in found.future
    ]

    def cell(data: Mapping[str, Any], name: str, most: float) -> str:
        row = data["rows"].get(name)
        if row is None:
            return "–"
        every = f"{100 * row['all']:.2f}"
        every = f"**{every}**" if row["all"] == most else every
        return every if row["new"] is None else f"{every} / {100 * row['new']:.2f}"

    heads = [str(data["data"]).partition(":")[0] for data in found.future]
    rows = zip(found.future, best, strict=True)
    columns = [[cell(data, name, most) for name in systems] for data, most in rows]
    return grid(["", *heads], [list(row) for row in zip(systems, *columns, strict=True)])


def _future_p(found: Found, name: str) -> str:
    data = next(data for data in found.future if str(data["data"]).partition(":")[0] == name)
    return probability(data["rows"]["default, chosen at random"]["p"])


def _pages(found: Found) -> str:
    links = [f"[{title}]({path})" for path, title in found.pages.items()]
    half = -(-len(links) // 2)
    rows = zip(links[:half], [*links[half:], ""], strict=False)
    return "\n".join(["| | |", "| :-- | :-- |", *(f"| {a} | {b} |" for a, b in rows)])


def _details(found: Found, suite: str) -> str:
    described, tables = found.suites[suite]
    name = suite if described.shipped else f"results/{suite}.toml"
    return "\n\n".join(table_details(described, table, name) for table in tables)


def _ranks(found: Found, suite: str) -> MeanRanks:
    ranks = mean_ranks(found.suites[suite][1])
    if ranks is None:
        raise LookupError("no data set has all rows")
    return ranks


def _rank_table(found: Found, suite: str, metric: str) -> str:
    return rank_table(_ranks(found, suite), found.suites[suite][1], metric)


def _rank_test(found: Found, suite: str) -> str:
    ranks = _ranks(found, suite)
    if ranks.test is None:
        return f"no test: {ranks.data[0]} is the only data set so far"
    gap, p = ranks.test.critical_difference, probability(ranks.test.p)
    return (
        f"Friedman's χ² = {ranks.test.statistic:.1f}, p = {p} over {len(ranks.data)} data sets; "
        f"mean ranks that are further apart than {gap:.1f} differ (Nemenyi, 5 %)"
    )


def _mean_rank(found: Found, suite: str, row: str) -> str:
    ranks = _ranks(found, suite).ranks
    return f"{ranks[row]:.1f}, place {list(ranks).index(row) + 1} of {len(ranks)}"


def _study_cells(found: Found) -> str:
    return study_cells(Study(), *(found.suites[name][1] for name in (STUDY, TRIALS_OF)))


def _leaders(found: Found, suite: str, metric: str, rows: str) -> str:
    return leaders(found.suites[suite][1], metric, rows.split(","))


def _changes(found: Found, suite: str, metric: str, base: str, others: str) -> str:
    return changes(found.suites[suite][1], metric, base, others.split(","))


def _against(found: Found, suite: str, metric: str, base: str) -> str:
    return against_table(found.suites[suite][1], metric, base)


def _ahead(found: Found, suite: str, metric: str, base: str, least: str) -> str:
    return ahead(found.suites[suite][1], metric, base, int(least))


def _behind(found: Found, suite: str, metric: str, row: str) -> str:
    return behind(found.suites[suite][1], metric, row)


def _agreement(found: Found, one: str, other: str, metric: str, titles: str) -> str:
    first, second = (found.suites[name][1] for name in (one, other))
    return agreement(first, second, metric, titles.split(","))


LOOKUPS: dict[str, Callable[..., str]] = {
    "p": _p,
    "part": _part,
    "part_p": _part_p,
    "epoch_seconds": _epoch_seconds,
    "best_seconds": _best_seconds,
    "paper": _paper,
    "ratio": _ratio,
    "paper_ratio": _paper_ratio,
    "published": _published,
    "above": _above,
    "significant": _significant,
    "exceeds": _exceeds,
    "gaps": _gaps,
    "short": _short,
    "future": _future,
    "future_p": _future_p,
    "details": _details,
    "rank_table": _rank_table,
    "rank_test": _rank_test,
    "mean_rank": _mean_rank,
    "study_cells": _study_cells,
    "leaders": _leaders,
    "changes": _changes,
    "against": _against,
    "ahead": _ahead,
    "behind": _behind,
    "agreement": _agreement,
    "pages": _pages,
}
