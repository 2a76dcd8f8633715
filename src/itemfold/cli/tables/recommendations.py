"""Recommendations on a terminal, with their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.layout import add_row, new_table
from itemfold.serving.recommendations import (
    NEGLIGIBLE,
    NOTHING,
    Recommendation,
    Recommendations,
    like_text,
)
from itemfold.training.run import Run

SHOWN_REASONS = 3


def recommendations(found: Recommendations) -> RenderableType:
    """A table of recommended items with their main reasons."""
    if not len(found):
        parts: list[RenderableType] = [
            Text(f"{NOTHING} (--seen allows items of the history)", style="yellow")
        ]
    else:
        parts = [Text(f"{found.fallback}.", style="yellow")] if found.fallback else []
        has_reasons = any(pick.reasons for pick in found)
        has_titles = any(pick.title for pick in found)
        title, reason = ["title"] * has_titles, ["because of"] * has_reasons
        table = new_table("", "item", *title, "score", *reason, numbers=("", "score"))
        for rank, pick in enumerate(found, start=1):
            cells = [str(rank), str(pick.item), *[pick.title] * has_titles, f"{pick.score:.4f}"]
            add_row(table, *cells, *[because(pick, lines=has_titles)] * has_reasons)
        parts.append(table)
    if found.unknown:
        parts.append(Text(unknown_ids(found.unknown), style="yellow"))
    if any(pick.reasons for pick in found):
        legend = "each number is the exact contribution of a history item to the score"
        if any(is_shown(pick.own, pick) for pick in found):
            legend += "; 'own' is that of the user's trained vector and the item's popularity"
        parts.append(Text(legend, style="dim"))
    for pick in (pick for pick in found if pick.is_new):
        like = f", like {like_text(pick)}" if pick.like else ""
        parts.append(Text(f"new, scored by its features: {pick.title or pick.item}{like}"))
    return Group(*parts)


def because(pick: Recommendation, *, lines: bool) -> str:
    """The largest contributions to a score, the sum of the others, and the user's own one.

    With ``lines``, each reason is on its own line, because titles are long.
    """
    reasons = [reason for reason in pick.reasons if is_shown(reason.share, pick)]
    has_one_more = len(reasons) == SHOWN_REASONS + 1  # a single remaining reason is named as well
    most = SHOWN_REASONS + has_one_more
    parts = [(reason.share, str(reason.title or reason.item)) for reason in reasons[:most]]
    if others := reasons[most:]:
        parts.append((sum(reason.share for reason in others), f"{len(others)} others"))
    if is_shown(pick.own, pick):
        parts.append((pick.own or 0.0, "own"))
    shares = [f"{share:+.3f}" for share, _ in parts]
    width = max(map(len, shares), default=0) if lines else 0
    shown = [f"{share:>{width}} {name}" for share, (_, name) in zip(shares, parts, strict=True)]
    return ("\n" if lines else ", ").join(shown)


def is_shown(share: float | None, pick: Recommendation) -> bool:
    """Whether a contribution to a score is large enough to show."""
    return share is not None and abs(share) > NEGLIGIBLE * abs(pick.score)


def written(line: str, unknown: Sequence[Any], run: Run) -> RenderableType:
    """A summary line, with notes on unknown ids and users without a list."""
    parts = [Text(line)]
    if unknown:
        parts.append(Text(unknown_ids(unknown), style="yellow"))
    if missing := run.dataset["users"] - len(run.user_ids):
        note = f"{missing:,} users are held out for evaluation and have no list"
        parts.append(Text(f"{note}; retrain on all data with train --final", style="yellow"))
    return Group(*parts)


def unknown_ids(ids: Sequence[Any]) -> str:
    """A note that lists ids unknown to the model."""
    return f"unknown to this model and skipped: {', '.join(map(str, ids))}"
