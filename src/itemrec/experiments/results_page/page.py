"""All generated pages: templates with figures, a page and a plot per suite, data sets, lists.

``python -m itemrec.experiments.results_page.page [RESULTS_FOLDER] [RESULTS.md]`` sorts the store
and writes them; `make results` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from itemrec.errors import ItemrecError
from itemrec.experiments.results_page import dataset_table, qualitative, suite_page
from itemrec.experiments.results_page.formatting import heading, title
from itemrec.experiments.results_page.plot import Point, panels
from itemrec.experiments.results_page.summary import Found, filled_in, templates
from itemrec.experiments.results_page.tables import Table, read_tables, suite_of
from itemrec.experiments.suites.store import read, tidy
from itemrec.experiments.suites.suite import Suite
from itemrec.files import write_text

SUMMARY = "RESULTS.md"
ORDER = [  # of the pages; others come last, by name
    *(
        "hybrid",
        "inductive",
        "transductive",
        "backbones-inductive",
        "backbones-transductive",
        "systems",
        "differences",
    ),
    *("sampling-inductive", "sampling-transductive", "negatives", "cost", "tau", "losses"),
    *("cold-start", "unseen", "rolling"),
]

# the picture of RESULTS.md and README.md: row → name, each from the first suite that has it
MAIN_SUITES = ("inductive", "transductive", "hybrid")
MAIN_SYSTEMS = {
    "lightgcn": "BPR",
    "item": "ITEM",
    "item-log": "item-log",
    "ease": "EASE",
    "rlae": "RLAE",
    "hybrid": "hybrid, the default",
}
MAIN_METRIC = "ndcg@20"


def generate(results: Path) -> dict[str, str]:
    """Every generated file by its path: RESULTS.md, and the others under ``results``."""
    if not results.is_dir():
        raise ItemrecError(f"'results' must be a folder of results, got '{results}'")
    files, pages = {}, {}
    suites = _read_suites(results)
    for name, (suite, tables) in suites.items():
        files[f"{name}.md"] = suite_page.page(suite, tables, results.name)
        files[f"plots/{name}.svg"] = suite_page.plot(suite, tables)
        pages[f"{results.name}/{name}.md"] = suite.title
    if picture := overview(suites):
        files["plots/overview.svg"] = picture
    if text := dataset_table.page(results):
        files["datasets.md"] = text
        pages[f"{results.name}/datasets.md"] = dataset_table.TITLE
    text, picture = qualitative.page(results)
    if text:
        files |= {"qualitative.md": text, "plots/qualitative.svg": picture}
        pages[f"{results.name}/qualitative.md"] = qualitative.TITLE
    for name in templates(results):
        text = filled_in(results, name, Found(suites, pages))
        files[f"{name}.md"] = text
        pages[f"{results.name}/{name}.md"] = text.partition("\n")[0].removeprefix("# ")
    return {SUMMARY: filled_in(results, "RESULTS", Found(suites, pages)), **files}


def _read_suites(results: Path) -> dict[str, tuple[Suite, list[Table]]]:
    """The suites that have results, with their tables."""
    store = read(results)
    places = {name: place for place, name in enumerate(ORDER)}
    out = {}
    for name in sorted(store.files, key=lambda name: (places.get(name, len(ORDER)), name)):
        suite = suite_of(results, name)
        if tables := read_tables(suite, store):
            out[name] = (suite, tables)
    return out


def overview(suites: Mapping[str, tuple[Suite, list[Table]]]) -> str:
    """An SVG; nothing where the main suites have no results."""
    found: dict[str, dict[str, Point]] = {}
    for table in (table for name in MAIN_SUITES if name in suites for table in suites[name][1]):
        points, lines = found.setdefault(heading(table.entry), {}), table.lines
        for row, line in ((line.cell.row, line) for line in lines if line.cell.row in MAIN_SYSTEMS):
            if (mean := line.mean(MAIN_METRIC)) is not None:
                spread = line.spread(MAIN_METRIC) or 0.0
                points.setdefault(row, Point(MAIN_SYSTEMS[row], mean, spread, marked=True))
    data = {
        split: [points[row] for row in MAIN_SYSTEMS if row in points]
        for split, points in found.items()
        if points
    }
    return panels("The main systems on all splits", title(MAIN_METRIC), data, "BPR") if data else ""


def write(results: Path, target: Path) -> list[Path]:
    """Sort the store and write all pages and plots; returns the files written."""
    tidy(results)
    files = generate(results)
    paths = [target if name == SUMMARY else results / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return paths


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:3]]
    try:
        for file in write(*[*given, *[Path("results"), Path(SUMMARY)][len(given) :]]):
            print(file)
    except ItemrecError as error:
        sys.exit(f"itemrec: {error}")
