"""Example recommendations: lists of a few unseen users by title, ITEM above BPR, hits marked.

The users are not picked by hand: sorted by how much better ITEM's NDCG@20 is than BPR's, they are
those at 10 %, 50 % and 90 % of the order.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from itemrec.config_file import Config
from itemrec.data.split import Split
from itemrec.evaluation.ranking import mask_history, padded_scores, top_items
from itemrec.experiments.build import make_split, run_config
from itemrec.experiments.config import changes
from itemrec.experiments.results_page.formatting import GENERATED
from itemrec.experiments.suites.overrides import Entry
from itemrec.experiments.suites.store import identity, write_json
from itemrec.experiments.suites.suite import load_suite
from itemrec.experiments.suites.worker import hardware, load_data
from itemrec.training.run import Run

FILE = "qualitative.json"
TITLE = "Recommended lists"
SUITE = "inductive"
SYSTEMS = {"ITEM": "item", "BPR": "lightgcn"}  # as shown → row of the suite
DATA = "ml-latest-small"
QUANTILES = (0.1, 0.5, 0.9)
K = 20
ABOUT = """
The 20 items recommended to three unseen users of one split; held-out items are marked as hits.
The upper list is of LightGCN with ITEM, the lower one of LightGCN with BPR, trained as the rows
*item* and *lightgcn* of the [table of unseen users](inductive.md). All test users are sorted by how
much better ITEM's NDCG@20 is than BPR's; the three are those at 10 %, 50 % and 90 % of that order.
""".strip()


def reproduce_qualitative(
    results: Path,
    *,
    datasets: Sequence[str] | None = None,
    data_root: str | Path | None = None,
    device: str = "auto",
    console: Console,
) -> None:
    """Train both and write ``results/qualitative.json``, unless it exists with these settings."""
    entry = Entry((Entry.parse(datasets[0]).data if datasets else DATA), "inductive")
    cells = {cell.row: cell for cell in load_suite(SUITE).cells([entry.key])}
    configs = {name: cells[row].seeded(0) for name, row in SYSTEMS.items()}
    path = results / FILE
    if path.exists():
        stored = json.loads(path.read_text("utf-8"))["configs"]
        if not any(changes(stored[name], config) for name, config in configs.items()):
            console.print("qualitative: done", highlight=False)
            return
    runs: dict[str, Run] = {}
    for name, config in configs.items():
        console.print(f"qualitative: training {name} on {entry.key}", highlight=False, markup=False)
        here = {part: dict(settings) for part, settings in config.items()}
        here["train"]["device"] = device
        if data_root is not None:
            here["data"]["data_root"] = str(data_root)
        data = load_data(here)
        runs[name] = run_config(here, data=data)
    split = make_split(configs["ITEM"], data)
    write_json(path, example_lists(runs, split) | about(split, configs, entry, device))


def about(split: Split, configs: dict[str, Config], entry: Entry, device: str) -> dict[str, Any]:
    """The data, settings and hardware behind the lists."""
    made = {"data": entry.key, "dataset": split.dataset, "configs": configs}
    return {**made, "hardware": hardware(device, 1)}


def example_lists(runs: dict[str, Run], split: Split) -> dict[str, Any]:
    """The users shown and their lists: titles, and whether each item is a hit."""
    users = list(next(iter(runs.values())).per_user["user"])
    first, second = (run.per_user["ndcg@20"] for run in runs.values())
    order = np.argsort(first - second, kind="stable")
    shown = []
    for quantile in QUANTILES:
        user = users[order[round(quantile * (len(order) - 1))]]
        row = int(np.flatnonzero(split.test.ids == user)[0])
        taken = set(split.test.target[[row]].indices.tolist())
        lists = {}
        for name, run in runs.items():
            history = split.test.history[[row]]
            scores = padded_scores(run.model, history, split.test.users[row : row + 1])
            top = top_items(mask_history(scores, history), K)[0].tolist()
            lists[name] = {
                "ndcg@20": round(float(run.per_user["ndcg@20"][users.index(user)]), 6),
                "items": [{"title": title(split, i), "hit": i in taken} for i in top if i >= 0],
            }
        known = int(np.diff(split.test.history.indptr)[row])
        counts = {"history": known, "targets": len(taken)}
        shown.append({"user": str(user), "quantile": quantile, **counts, "lists": lists})
    return {"users": shown}


def title(split: Split, item: int) -> str:
    """An item's title, or its id if it has none."""
    named = "" if split.titles is None else str(split.titles[item])
    return named or str(split.item_ids.external(np.array([item]))[0])


# --- the page ------------------------------------------------------------------------------------


def page(results: Path) -> tuple[str, str]:
    """Text and picture, both empty if there is nothing to show."""
    path = results / FILE
    if not path.exists():
        return "", ""
    content = json.loads(path.read_text("utf-8"))
    parts = [f"# {TITLE}", "[All results](../RESULTS.md)", ABOUT]
    parts.append("Reproduce it: `itemrec reproduce qualitative`.")
    parts.append(f"![{TITLE}](plots/qualitative.svg)")
    data = content["dataset"]
    parts.append(f"{content['data']}, split 0, fingerprint `{data['fingerprint']}`.")
    return "\n\n".join([*parts, GENERATED]) + "\n", picture(content)


CELL, HEIGHT, LABEL, ACROSS = 96, 46, 92, 10  # width and height of items; label width; per line
HIT = ("#d9f0d9", "#2e7d32")  # fill, edge
MISS = ("#f9e2e0", "#c0392b")


def picture(content: dict[str, Any]) -> str:
    """An SVG: per user and system two lines of ten items, hits green with a tick, others red."""
    out: list[str] = []
    y = 6
    for user in content["users"]:
        head = f"user {user['user']}: {user['history']} items known, {user['targets']} held out"
        out.append(text(4, y + 14, head, 12, weight="bold"))
        y += 22
        for name, one in user["lists"].items():
            hits = sum(item["hit"] for item in one["items"])
            out.append(text(4, y + 16, name, 12, weight="bold"))
            out.append(text(4, y + 32, f"{hits} hits of {len(one['items'])}", 10))
            out.append(text(4, y + 46, f"NDCG@20 {100 * one['ndcg@20']:.1f}", 10))
            for place, item in enumerate(one["items"]):
                down, across = divmod(place, ACROSS)
                out += cell(LABEL + across * CELL, y + down * HEIGHT, place + 1, item)
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


def cell(x: int, y: int, rank: int, item: dict[str, Any]) -> list[str]:
    """One item: its rank, a tick if it is a hit, its title in at most three lines."""
    fill, edge = HIT if item["hit"] else MISS
    box = f'x="{x}" y="{y}" width="{CELL - 4}" height="{HEIGHT - 4}" rx="3"'
    out = [f'<rect {box} fill="{fill}" stroke="{edge}"/>']
    mark = f"{rank} ✓" if item["hit"] else str(rank)
    lines = textwrap.wrap(item["title"], 17, max_lines=3, placeholder=" …") or [""]
    out.append(text(x + 3, y + 9, mark, 7, colour=edge))
    return out + [text(x + 3, y + 19 + 10 * n, line, 9) for n, line in enumerate(lines)]


def text(
    x: int, y: int, words: str, size: int, *, weight: str = "", colour: str = "#111111"
) -> str:
    """A line of text."""
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{bold}>{escape(words)}</text>'
