"""The description of a data set, and of the negatives that PageRank sampling draws."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from itemfold.cli.tables.formats import Cell, Figure, ResultTable, on_terminal
from itemfold.data.describe import Description
from itemfold.sampling.ppr_diagnostics import PPRReport

PPR_COLUMNS = ("setting", "near items", "effective items", "false negatives", "× uniform")
BAR_WIDTH = 40  # characters of the longest bar of a histogram


def description(found: Description) -> RenderableType:
    """Counts, degree histograms, assumptions and warnings of a data set."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    for name, value in _facts(found):
        facts.add_row(name, Text(value))  # a file name may look like markup
    parts: list[RenderableType] = [facts]
    for title, side in (("user", found.user_degrees), ("item", found.item_degrees)):
        quantiles = "  ".join(f"{q} {value:,.0f}" for q, value in side.quantiles.items())
        parts += [
            Text(f"\nInteractions per {title}: mean {side.mean:,.1f}", style="bold"),
            Text(f"quantiles  {quantiles}", style="dim"),
            Text(_bars(side.histogram, f"{title}s")),
        ]
    if found.assumptions:
        parts.append(Text("\nRead as", style="bold"))
        parts += [Text(f"- {line}") for line in found.assumptions]
    if found.warnings:
        parts.append(Text("\nWarnings", style="bold yellow"))
        parts += [Text(f"- {warning}") for warning in found.warnings]
    return Group(*parts)


def facts_table(found: Description) -> ResultTable:
    """A table of counts and quantiles, with the warnings as notes."""
    rows: list[tuple[Cell, ...]] = [(name, value) for name, value in _facts(found)]
    for title, side in (("user", found.user_degrees), ("item", found.item_degrees)):
        rows.append((f"interactions per {title}, mean", Figure.number(side.mean, ",.1f")))
        rows += [
            (f"interactions per {title}, quantile {q}", Figure.number(value, ",.0f"))
            for q, value in side.quantiles.items()
        ]
    return ResultTable(("fact", "value"), tuple(rows), words=2, notes=tuple(found.warnings))


def _facts(found: Description) -> list[tuple[str, str]]:
    titles = f" ({found.titles:,} with a title)" if found.titles else ""
    source = "hidden of the test users" if found.user_split else "from the test file"
    held_out = f" ({found.held_out:,} {source})" if found.held_out else ""
    rows = [("data", found.name)]
    rows.append(("fingerprint", found.fingerprint))
    rows.append(("users", f"{found.users:,}"))
    rows.append(("items", f"{found.items:,}{titles}"))
    rows.append(("interactions", f"{found.interactions:,}{held_out}"))
    for name, part in (found.user_split or {}).items():
        hidden = f", {part.hidden:,} hidden" if part.hidden else ""
        shown = f"{part.shown:,} interactions{' shown' if part.hidden else ''}"
        rows.append((f"{name} users", f"{part.users:,} ({shown}{hidden})"))
    if found.test_draw is not None:
        rows.append(("test draw", f"variance {found.test_draw:.2f} (1: a random draw)"))
    rows.append(("density", f"{found.density:.4%}"))
    if found.first is not None:
        rows.append(("time", f"{found.first} to {found.last}"))
    if found.ratings is not None:
        counts = ", ".join(f"{value}: {count:,}" for value, count in found.ratings.items())
        rows.append(("ratings", counts))
    if found.weights is not None:
        quantiles = "  ".join(f"{q} {value:g}" for q, value in found.weights.quantiles.items())
        rows.append(("weights", f"{found.weights.made_of}, divided by their mean"))
        rows.append(("", f"quantiles  {quantiles}"))
        rows.append(("", f"effective sample size {found.weights.effective:,.0f} interactions"))
    return rows


def _bars(histogram: Sequence[tuple[int, int, int]], unit: str) -> str:
    """One bar of block characters for each bin (from, to, count).

    >>> print(_bars([(1, 1, 10), (2, 3, 5)], "users"))  # doctest: +NORMALIZE_WHITESPACE
                      1 ████████████████████████████████████████ 10 users
                    2–3 ████████████████████ 5
    """
    most = max(count for _, _, count in histogram)
    lines: list[str] = []
    for low, high, count in histogram:
        bin_ = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        eighths = max(round(8 * BAR_WIDTH * count / most), 1 if count else 0)
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        shown = unit.removesuffix("s") if count == 1 else unit
        lines.append(f"{bin_:>17} {bar} {count:,}" + (f" {shown}" if not lines else ""))
    return "\n".join(lines)


def ppr_table(found: PPRReport) -> ResultTable:
    """A table of the negatives drawn with several settings of the PageRank sampler."""
    rows: list[tuple[Cell, ...]] = [
        ("uniform", Figure.number(0.0, ".2%"), "", Figure.number(found.uniform, ".4%"), "")
    ]
    for name, row in found.settings.items():
        figures = (
            (row.near, ".2%"),
            (row.effective_items, ",.0f"),
            (row.false_negatives, ".4%"),
            (row.against_uniform, ".2f"),
        )
        rows.append((name, *(Figure.number(value, pattern) for value, pattern in figures)))
    return ResultTable(PPR_COLUMNS, tuple(rows), title="negatives drawn with each setting")


def ppr_negatives(found: PPRReport) -> RenderableType:
    """PageRank of items without interaction, and the negatives drawn with several settings."""
    values = Table(
        title=f"Personalised PageRank of items without interaction ({found.users} users)"
    )
    values.add_column("rank")
    values.add_column("median value", justify="right")
    for rank, value in found.spread.items():
        values.add_row(str(rank), f"{value:.2e}")
    return Group(values, on_terminal(ppr_table(found)))
