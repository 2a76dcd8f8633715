"""The table of data sets: counts from the files next to those that the paper reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from itemrec.data.datasets import DATASETS, load
from itemrec.data.interactions import Interactions
from itemrec.errors import ItemrecError
from itemrec.experiments.results_page.formatting import GENERATED, grid
from itemrec.experiments.suites.overrides import Entry
from itemrec.experiments.suites.store import write_json

FILE = "datasets.json"
TITLE = "Data sets"
PAPER = {  # ITEM (TMLR 2024), statistics of the data sets: users, items, links
    "ml-latest-small": ("610", "8,957", "100k"),
    "ml-1m": ("6,022", "3,043", "1m"),
    "yelp2018": ("31,668", "38,048", "1.5m"),
    "amazon-book": ("52,643", "91,599", "2.9m"),
}
ABOUT = """
Users, items and interactions of the data that is split and trained on, counted in the files, with
the paper's counts in brackets. *ml-latest-small* is the data set that the paper calls
MovieLens-100k, with ratings of 3 and more; *amazon-cds* replaces Amazon-book, whose files
were not available.
""".strip()


def reproduce_datasets(
    results: Path,
    *,
    datasets: Sequence[str] | None = None,
    data_root: str | Path | None = None,
    console: Console,
) -> None:
    """Count, and write ``results/datasets.json``; counts of earlier calls stay in the file.

    Data sets that are not available are reported and skipped.
    """
    path = results / FILE
    table: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    everything = [name for name in DATASETS if name != "synthetic"]
    asked = everything if datasets is None else [Entry.parse(text).data for text in datasets]
    for name in dict.fromkeys(asked):
        try:
            data = load(name, data_root=data_root)
        except ItemrecError as error:
            if name not in DATASETS:
                raise
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
            continue
        table[name] = _counts(data)
        console.print(f"datasets: {name} counted", highlight=False, markup=False)
    if table:
        write_json(path, {name: table[name] for name in sorted(table)})


def _counts(data: Interactions) -> dict[str, Any]:
    return {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": len(data),
        "test": 0 if data.held_out is None else int(data.held_out.sum()),
        "fingerprint": data.fingerprint,
    }


def page(results: Path) -> str:
    """The page as Markdown, or an empty text if nothing was counted."""
    path = results / FILE
    if not path.exists():
        return ""
    body = []
    for name, counts in json.loads(path.read_text("utf-8")).items():
        own = [counts["users"], counts["items"], counts["interactions"]]
        papers = [f" ({figure})" for figure in PAPER.get(name, ())] or [""] * 3
        cells = [f"{count:,}{paper}" for count, paper in zip(own, papers, strict=True)]
        density = f"{100 * own[2] / (own[0] * own[1]):.3f} %"
        test = f"{counts['test']:,}" if counts["test"] else "–"
        body.append([name, *cells, density, test, f"`{counts['fingerprint']}`"])
    head = ["", "users", "items", "interactions", "density", "given test part", "fingerprint"]
    command = "Reproduce it: `itemrec reproduce datasets`."
    back = "[All results](../RESULTS.md)"
    return "\n\n".join([f"# {TITLE}", back, ABOUT, command, grid(head, body), GENERATED]) + "\n"
