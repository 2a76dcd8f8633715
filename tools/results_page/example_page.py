"""The page of example recommendations: a picture of the lists, hits marked."""

from __future__ import annotations

import json
import textwrap
from html import escape
from pathlib import Path
from typing import Any

from itemfold.experiments.suites.other_tables import K
from itemfold.experiments.suites.store import identity
from results_page.formatting import BACK, GENERATED

TITLE = "Recommended lists"
ABOUT = """
The 20 items recommended to three unseen users of one split; held-out items are marked as hits.
The upper list is of LightGCN with ITEM, the lower one of LightGCN with BPR, trained as the rows
*item* and *lightgcn* of the [table of unseen users](inductive.md). All test users are sorted by how
much better ITEM's NDCG@20 is than BPR's; the three are those at 10 %, 50 % and 90 % of that order.
""".strip()
CELL, HEIGHT, LABEL, ACROSS = 96, 46, 92, 10  # width and height of items; label width; per line
HIT = ("#d9f0d9", "#2e7d32")  # fill, edge
MISS = ("#f9e2e0", "#c0392b")


def example_page(results: Path) -> tuple[str, str]:
    """The page as Markdown and its picture; both empty if there are no lists."""
    path = results / "qualitative.json"
    if not path.exists():
        return "", ""
    content = json.loads(path.read_text("utf-8"))
    parts = [f"# {TITLE}", BACK, ABOUT]
    parts.append("Reproduce it: `itemfold reproduce qualitative`.")
    parts.append(f"![{TITLE}](plots/qualitative.svg)")
    data = content["dataset"]
    parts.append(f"{content['data']}, split 0, fingerprint `{data['fingerprint']}`.")
    return "\n\n".join([*parts, GENERATED]) + "\n", picture(content)


def picture(content: dict[str, Any]) -> str:
    """An SVG: per user and system two lines of ten items, hits green with a tick, others red."""
    out: list[str] = []
    y = 6
    for user in content["users"]:
        head = f"user {user['user']}: {user['history']} items known, {user['targets']} held out"
        out.append(_text(4, y + 14, head, 12, weight="bold"))
        y += 22
        for name, one in user["lists"].items():
            hits = sum(item["hit"] for item in one["items"])
            out.append(_text(4, y + 16, name, 12, weight="bold"))
            out.append(_text(4, y + 32, f"{hits} hits of {len(one['items'])}", 10))
            out.append(_text(4, y + 46, f"NDCG@20 {100 * one['ndcg@20']:.1f}", 10))
            for place, item in enumerate(one["items"]):
                down, across = divmod(place, ACROSS)
                out += _item(LABEL + across * CELL, y + down * HEIGHT, place + 1, item)
            y += HEIGHT * -(-K // ACROSS) + 8
        y += 12
    width = LABEL + ACROSS * CELL + 6
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
        f'height="{y}" role="img" aria-label="Recommended lists, hits marked" '
        'font-family="sans-serif">'
    )
    ground = f'<rect width="{width}" height="{y}" fill="#ffffff"/>'
    figures = f"<!-- figures {identity(content['users'])} -->"
    return "\n".join([head, ground, *out, "</svg>", figures]) + "\n"


def _item(x: int, y: int, rank: int, item: dict[str, Any]) -> list[str]:
    """One item: its rank, a tick if it is a hit, its title in at most three lines."""
    fill, edge = HIT if item["hit"] else MISS
    box = f'x="{x}" y="{y}" width="{CELL - 4}" height="{HEIGHT - 4}" rx="3"'
    out = [f'<rect {box} fill="{fill}" stroke="{edge}"/>']
    mark = f"{rank} ✓" if item["hit"] else str(rank)
    lines = textwrap.wrap(item["title"], 17, max_lines=3, placeholder=" …") or [""]
    out.append(_text(x + 3, y + 9, mark, 7, colour=edge))
    return out + [_text(x + 3, y + 19 + 10 * n, line, 9) for n, line in enumerate(lines)]


def _text(
    x: int, y: int, words: str, size: int, *, weight: str = "", colour: str = "#111111"
) -> str:
    """A line of text."""
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{bold}>{escape(words)}</text>'
