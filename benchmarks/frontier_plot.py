"""Points of frontier.py as a plot and as a table, and the default model's share of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

OWN = "itemfold"
MARKS = ("<!-- frontier -->", "<!-- end of frontier -->")

Point = dict[str, Any]


def timed(points: list[Point]) -> tuple[list[Point], list[Point]]:
    """Points of the default model and of the others, by seconds; without runs none."""
    ready = sorted((p for p in points if p["runs"]), key=lambda p: p["seconds"])
    return [p for p in ready if p["system"] == OWN], [p for p in ready if p["system"] != OWN]


def best_until(points: list[Point], seconds: float) -> Point | None:
    """The best of the points that need at most these seconds."""
    return max((p for p in points if p["seconds"] <= seconds), key=quality, default=None)


def quality(point: Point) -> float:
    """NDCG@20."""
    return float(point["ndcg@20"])


def worst_share(points: list[Point], start: float) -> float:
    """The default model's best over the best peer, both until the same moment, at its least.

    Moments count from ``start`` on, or from the first point of the default model if that is later.
    The share changes only where one of them is done.
    """
    own, peers = timed(points)
    if not own:
        return 1.0
    start = max(start, own[0]["seconds"])
    shares = [1.0]
    for moment in {max(start, p["seconds"]) for p in (*own, *peers)}:
        ours, theirs = best_until(own, moment), best_until(peers, moment)
        if ours is not None and theirs is not None:
            shares.append(quality(ours) / quality(theirs))
    return min(shares)


def with_table(text: str, data: dict[str, Any], start: float) -> str:
    """The page with a row a data set between the marks."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    lines = [
        "| data | best of the others: seconds, NDCG@20 | itemfold by budget: seconds, NDCG@20 "
        f"| least share from {start:g} s on |",
        "|---|---|---|---:|",
    ]
    for name, row in data.items():
        own, peers = timed(row["points"])
        if own and peers:
            steps = [p for p in peers if p is best_until(peers, p["seconds"])]
            theirs = [f"{p['system']} {written(p)}" for p in steps]
            ours = [f"{budget_of(p)} {written(p)}" for p in own]
            worst = worst_share(row["points"], start)
            cells = (name, "<br>".join(theirs), "<br>".join(ours), f"{worst:.3f}")
            lines.append(f"| {' | '.join(cells)} |")
    return f"{before}{MARKS[0]}\n\n" + "\n".join(lines) + f"\n\n{MARKS[1]}{after}"


def budget_of(point: Point) -> str:
    """The budget of a point of the default model."""
    budget = point["settings"]["budget"]
    return "none" if budget is None else f"{budget} s"


def written(point: Point) -> str:
    """Seconds and NDCG@20 × 100."""
    return f"{point['seconds']:.1f} s {100 * quality(point):.2f}"


def plot(path: Path, name: str, points: list[Point]) -> None:
    """NDCG@20 by seconds, with the upper envelope of the other libraries."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "itemfold", "font.size": 14})
    import matplotlib.pyplot as plt

    own, peers = timed(points)
    if not own and not peers:
        return
    figure, axes = plt.subplots(figsize=(7.2, 4.6))
    last = 3 * max(p["seconds"] for p in (*own, *peers))
    first = min(p["seconds"] for p in (*own, *peers))
    if peers:
        steps, values = columns(peers)
        best = np.maximum.accumulate(values)
        axes.step([*steps, last], [*best, best[-1]], where="post", color="#888888", lw=1.5,
                  ls="--", label="best of the others")  # fmt: skip
        axes.plot(steps, values, "o", color="#555555", ms=6)
        label(axes, peers, last)
    if own:
        seconds, values = columns(own)
        best = np.maximum.accumulate(values)
        axes.step([*seconds, last], [*best, best[-1]], where="post", color="#1f5fa8", lw=1.5)
        axes.plot(seconds, values, "o", color="#1f5fa8", ms=8, label="itemfold, by --budget")
    axes.set_xscale("log")
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if first / 2 <= t <= last]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(first / 1.3, last)
    axes.set_xlabel("seconds on two cores, from the start of the process")
    axes.set_ylabel("NDCG@20 × 100, test")
    axes.set_title(name)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def columns(points: list[Point]) -> tuple[list[float], list[float]]:
    """Seconds and NDCG@20 × 100 of points."""
    return [p["seconds"] for p in points], [100 * quality(p) for p in points]


def label(axes: Any, points: list[Point], last: float) -> None:
    """The name of each system beside its point; names that would overlap are moved down."""
    low, high = axes.get_ylim()
    taken: list[tuple[float, float]] = []
    for p in sorted(points, key=quality, reverse=True):
        x, y = np.log10(p["seconds"]) / np.log10(last), (100 * quality(p) - low) / (high - low)
        y += 0.015 if p is best_until(points, p["seconds"]) else -0.02  # above the line, if on it
        while any(abs(x - other) < 0.3 and abs(y - height) < 0.06 for other, height in taken):
            y -= 0.06
        taken.append((x, y))
        axes.text(p["seconds"] * 1.1, low + y * (high - low), p["system"], fontsize=12,
                  color="#333333")  # fmt: skip
