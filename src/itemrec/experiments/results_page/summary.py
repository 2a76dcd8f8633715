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
    {published DATA METRIC}              the highest published figure for any row, and its source
    {above SUITE ENDING METRIC}          how many rows with that ending beat their baseline
    {significant SUITE ENDING METRIC}    how many of these do so significantly
    {exceeds SUITE,SUITE ROW ROW METRIC} on how many data sets the first row beats the second
    {gaps SUITE METRIC}                  a table of rows and data sets: the mean, and its difference
                                         from the published figure in per cent
    {short PERCENT SUITE,SUITE METRIC}   the rows more than that below on each of their data sets
    {pages}                              links to the pages of all suites
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from itemrec.errors import ItemrecError
from itemrec.experiments.results_page.formatting import GENERATED, probability
from itemrec.experiments.results_page.tables import Line, Table
from itemrec.experiments.suites.suite import Suite

ENDING = ".template.md"
PLAIN = "# Results\n\n{pages}"  # if there is no template
WIDTH = 105  # of paragraphs, after figures are filled in


@dataclass(frozen=True)
class Found:
    """All results: the suites with their tables, and the titles of the pages by file."""

    suites: Mapping[str, tuple[Suite, list[Table]]]
    pages: Mapping[str, str]

    def lines(self, suite: str) -> Iterator[tuple[Table, Line]]:
        """The lines of all tables of a suite."""
        for table in self.suites[suite][1] if suite in self.suites else ():
            for line in table.lines:
                yield table, line

    def line(self, suite: str, data: str, row: str) -> Line:
        """One line; raises `LookupError` if there is none."""
        return next(
            line
            for table, line in self.lines(suite)
            if (table.entry.key, line.cell.row) == (data, row)
        )


def templates(results: Path) -> list[str]:
    """The names of the templates, RESULTS apart."""
    names = [path.name.removesuffix(ENDING) for path in sorted(results.glob(f"*{ENDING}"))]
    return [name for name in names if name != "RESULTS"]


def filled_in(results: Path, name: str, found: Found) -> str:
    """A template with its figures filled in."""
    path = results / f"{name}{ENDING}"
    text = path.read_text(encoding="utf-8").strip() if path.exists() else PLAIN

    def look_up(match: re.Match[str]) -> str:
        first, *rest = match[1].split()
        try:
            if first in LOOKUPS:
                return LOOKUPS[first](found, *rest)
            return _mean(found, first, *rest)
        except (LookupError, StopIteration, TypeError) as error:
            raise ItemrecError(f"{path} names a figure that no result has: {match[0]}") from error

    filled = re.sub(r"\{([^{}]+)\}", look_up, text)
    return "\n\n".join([*map(_wrapped, filled.split("\n\n")), GENERATED]) + "\n"


def _wrapped(block: str) -> str:
    """A paragraph or list in lines of readable length; tables and headings are unchanged."""
    if block.startswith(("|", "#", "<", "    ")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(_fill(item) for item in items)


def _fill(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    words = " ".join(text.split())
    return textwrap.fill(
        words, WIDTH, break_on_hyphens=False, break_long_words=False, subsequent_indent=indent
    )


# --- placeholders --------------------------------------------------------------------------------


def _mean(found: Found, suite: str, data: str, row: str, metric: str) -> str:
    value = found.line(suite, data, row).mean(metric)
    if value is None:
        raise LookupError(metric)
    return f"{value:.2f}"


def _p(found: Found, suite: str, data: str, row: str, metric: str) -> str:
    return probability(found.line(suite, data, row).p[metric][0])


def _part(found: Found, suite: str, data: str, row: str, metric: str, *part: str) -> str:
    return f"{found.line(suite, data, row).part(' '.join(part), metric):.2f}"


def _part_p(found: Found, suite: str, data: str, row: str, metric: str) -> str:
    line = found.line(suite, data, row)
    name = line.better_part(metric)
    if name == "linear":
        return _p(found, suite, data, row, metric)
    return probability(max(result["parts"][name]["p"] for result in line.results))


def _epoch_seconds(found: Found, suite: str, data: str, row: str) -> str:
    return f"{found.line(suite, data, row).epoch_seconds():.2f}"


def _best_seconds(found: Found, suite: str, data: str, row: str) -> str:
    return f"{found.line(suite, data, row).best_seconds():.1f}"


def _paper(found: Found, suite: str, data: str, row: str, metric: str) -> str:
    return f"{100 * found.line(suite, data, row).cell.paper[metric]:.2f}"


def _published(found: Found, data: str, metric: str) -> str:
    """The first of the highest figures, in the order of the pages; a dash if there is none."""
    known = [
        line.cell
        for suite in found.suites
        for table, line in found.lines(suite)
        if table.entry.key == data and metric in line.cell.paper
        if "cold_start" not in line.cell.config["split"]  # thinned: a different split
    ]
    if not known:
        return "–"
    best = max(known, key=lambda cell: cell.paper[metric])
    return f"{100 * best.paper[metric]:.2f} (*{best.row}*; {best.source})"


def _above(found: Found, suite: str, ending: str, metric: str) -> str:
    return _count(found, suite, ending, lambda line, base: _gain(line, base, metric) > 0)


def _significant(found: Found, suite: str, ending: str, metric: str) -> str:
    return _count(found, suite, ending, lambda line, _: line.mark(metric) == " ▲")


def _gain(line: Line, base: Line, metric: str) -> float:
    return (line.mean(metric) or 0.0) - (base.mean(metric) or 0.0)


def _count(found: Found, suite: str, ending: str, holds: Callable[[Line, Line], bool]) -> str:
    """ "11 of 12": for how many rows with an ending, over all data sets, the condition holds."""
    outcomes = []
    for table, line in found.lines(suite):
        if line.cell.row.endswith(ending):
            base = found.suites[suite][0].baseline_of(line.cell.row)
            outcomes.append(holds(line, found.line(suite, table.entry.key, base)))
    return _of(outcomes)


def _of(outcomes: list[bool]) -> str:
    if not outcomes:
        raise LookupError("no such rows")
    return f"{sum(outcomes)} of {len(outcomes)}"


def _exceeds(found: Found, suites: str, row: str, other: str, metric: str) -> str:
    outcomes = []
    for suite in suites.split(","):
        for table, line in found.lines(suite):
            if line.cell.row == row:
                second = found.line(suite, table.entry.key, other)
                outcomes.append(_gain(line, second, metric) > 0)
    return _of(outcomes)


def _gaps(found: Found, suite: str, metric: str) -> str:
    known = [(table.entry.key, line) for table, line in _with_figures(found, suite, metric)]
    columns = list(dict.fromkeys(data for data, _ in known))
    cells = {(line.cell.row, data): _gap_text(line, metric) for data, line in known}
    rows = [row for row in found.suites[suite][0].rows if any((row, c) in cells for c in columns)]
    head = ["| | " + " | ".join(columns) + " |", "| :-- |" + " --: |" * len(columns)]
    body = [
        f"| {row} | " + " | ".join(cells.get((row, c), "") for c in columns) + " |" for row in rows
    ]
    return "\n".join([*head, *body])


def _short(found: Found, percent: str, suites: str, metric: str) -> str:
    best: dict[str, float] = {}
    for suite in suites.split(","):
        for _, line in _with_figures(found, suite, metric):
            row = line.cell.row
            best[row] = max(best.get(row, -1.0), _gap(line, metric))
    rows = [f"*{row}*" for row, gap in best.items() if gap < -float(percent) / 100]
    return ", ".join(rows) or "none"


def _with_figures(found: Found, suite: str, metric: str) -> Iterator[tuple[Table, Line]]:
    """The lines of a suite that have a published figure."""
    return ((t, line) for t, line in found.lines(suite) if metric in line.cell.paper)


def _gap(line: Line, metric: str) -> float:
    return (line.mean(metric) or 0.0) / (100 * line.cell.paper[metric]) - 1


def _gap_text(line: Line, metric: str) -> str:
    gap = f"{100 * _gap(line, metric):+.1f} %".replace("-", "−")
    return f"{line.mean(metric):.2f} ({gap})"


def _pages(found: Found) -> str:
    return "\n".join(f"- [{title}]({path})" for path, title in found.pages.items())


LOOKUPS: dict[str, Callable[..., str]] = {
    "p": _p,
    "part": _part,
    "part_p": _part_p,
    "epoch_seconds": _epoch_seconds,
    "best_seconds": _best_seconds,
    "paper": _paper,
    "published": _published,
    "above": _above,
    "significant": _significant,
    "exceeds": _exceeds,
    "gaps": _gaps,
    "short": _short,
    "pages": _pages,
}
