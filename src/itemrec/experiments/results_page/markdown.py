"""Markdown that several tables are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def grid(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table, figures to the right."""
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
