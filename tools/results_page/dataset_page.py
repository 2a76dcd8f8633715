"""The page of data sets: counts from the files next to those that the paper reports."""

from __future__ import annotations

import json
from pathlib import Path

from results_page.formatting import BACK, GENERATED, grid

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


def dataset_page(results: Path) -> str:
    """The page as Markdown, or an empty text if nothing was counted."""
    path = results / "datasets.json"
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
    command = "Reproduce it: `itemfold reproduce datasets`."
    return "\n\n".join([f"# {TITLE}", BACK, ABOUT, command, grid(head, body), GENERATED]) + "\n"
