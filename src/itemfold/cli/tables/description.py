"""A data set on a terminal, and the negatives that PageRank sampling would draw."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from itemfold.data.describe import Description
from itemfold.sampling.ppr_diagnostics import PPRReport

WIDTH = 40  # of the longest bar of a histogram, in characters


def description(found: Description) -> RenderableType:
    """Counts, two small histograms, what was assumed, and the warnings."""
    parts: list[RenderableType] = [_facts(found)]
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


def _facts(found: Description) -> Table:
    titles = f" ({found.titles:,} with a title)" if found.titles else ""
    source = "hidden of the test users" if found.user_split else "from the test file"
    held_out = f" ({found.held_out:,} {source})" if found.held_out else ""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    table.add_row("data", Text(found.name))  # a file name is not markup
    table.add_row("fingerprint", found.fingerprint)
    table.add_row("users", f"{found.users:,}")
    table.add_row("items", f"{found.items:,}{titles}")
    table.add_row("interactions", f"{found.interactions:,}{held_out}")
    for name, part in (found.user_split or {}).items():
        hidden = f", {part.hidden:,} hidden" if part.hidden else ""
        shown = f"{part.shown:,} interactions{' shown' if part.hidden else ''}"
        table.add_row(f"{name} users", f"{part.users:,} ({shown}{hidden})")
    if found.test_draw is not None:
        table.add_row("test draw", f"variance {found.test_draw:.2f} (1: a random draw)")
    table.add_row("density", f"{found.density:.4%}")
    if found.first is not None:
        table.add_row("time", f"{found.first} to {found.last}")
    if found.ratings is not None:
        counts = ", ".join(f"{value}: {count:,}" for value, count in found.ratings.items())
        table.add_row("ratings", counts)
    if found.weights is not None:
        quantiles = "  ".join(f"{q} {value:g}" for q, value in found.weights.quantiles.items())
        table.add_row("weights", f"{found.weights.made_of}, divided by their mean")
        table.add_row("", f"quantiles  {quantiles}")
        table.add_row("", f"effective sample size {found.weights.effective:,.0f} interactions")
    return table


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
        eighths = max(round(8 * WIDTH * count / most), 1 if count else 0)
        bar = "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
        shown = unit.removesuffix("s") if count == 1 else unit
        lines.append(f"{bin_:>17} {bar} {count:,}" + (f" {shown}" if not lines else ""))
    return "\n".join(lines)


def ppr_negatives(found: PPRReport) -> RenderableType:
    """PageRank of items without interaction, and the draws of several sampler settings."""
    values = Table(
        title=f"Personalised PageRank of items without interaction ({found.users} users)"
    )
    values.add_column("rank")
    values.add_column("median value", justify="right")
    for rank, value in found.spread.items():
        values.add_row(str(rank), f"{value:.2e}")
    draws = Table(title="Negatives drawn with each setting")
    for name in ("setting", "near items", "effective items", "false negatives", "× uniform"):
        draws.add_column(name, justify="left" if name == "setting" else "right")
    draws.add_row("uniform", "0.00 %", "all", f"{found.uniform:.4%}", "1.00")
    for name, row in found.settings.items():
        draws.add_row(
            name,
            f"{row.near:.2%}",
            f"{row.effective_items:,.0f}",
            f"{row.false_negatives:.4%}",
            f"{row.against_uniform:.2f}",
        )
    return Group(values, draws)
