"""All generated files: RESULTS.md, a page and a plot per suite, data sets, example lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.ranking_losses import STUDY
from itemfold.experiments.suites.ranking_losses_runs import mean_ranks
from itemfold.experiments.suites.results import ResultTable, metric_title, read_tables
from itemfold.experiments.suites.store import read_store, tidy
from itemfold.experiments.suites.suite import Suite, load_suite
from itemfold.files import write_text
from results_page import dataset_page, example_page
from results_page.plot import Point, panels
from results_page.rank_page import rank_picture
from results_page.suite_page import suite_page, suite_plot
from results_page.templates import Found, fill_template, template_names

SUMMARY = "RESULTS.md"
ORDER = (  # of the pages; others come last, by name
    *("hybrid", "inductive", "transductive", "backbones-inductive", "backbones-transductive"),
    *("systems", "differences", "sampling-inductive", "sampling-transductive", "negatives"),
    *("cost", "tau", "losses", STUDY, "published-losses"),
    *("cold-start", "unseen", "strong", "rolling"),
)

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
        raise ItemfoldError(f"'results' must be a folder of results, got '{results}'")
    files, pages = {}, {}
    suites = _read_suites(results)
    for name, (suite, tables) in suites.items():
        files[f"{name}.md"] = suite_page(suite, tables, results.name)
        files[f"plots/{name}.svg"] = suite_plot(suite, tables)
        if not (name.startswith(STUDY) and suite.curve):  # the page of the study links to its parts
            pages[f"{results.name}/{name}.md"] = suite.title
    if STUDY in suites and (ranks := mean_ranks(suites[STUDY][1])):
        files[f"plots/{STUDY}-ranks.svg"] = rank_picture(ranks, *suites[STUDY])
    if picture := _overview(suites):
        files["plots/overview.svg"] = picture
    if text := dataset_page.dataset_page(results):
        files["datasets.md"] = text
        pages[f"{results.name}/datasets.md"] = dataset_page.TITLE
    text, picture = example_page.example_page(results)
    if text:
        files |= {"qualitative.md": text, "plots/qualitative.svg": picture}
        pages[f"{results.name}/qualitative.md"] = example_page.TITLE
    future = results / "future.json"
    found = Found(suites, pages, json.loads(future.read_text("utf-8")) if future.exists() else ())
    for name in template_names(results):
        text = fill_template(results, name, found)
        files[f"{name}.md"] = text
        pages[f"{results.name}/{name}.md"] = text.partition("\n")[0].removeprefix("# ")
    return {SUMMARY: fill_template(results, "RESULTS", found), **files}


def _read_suites(results: Path) -> dict[str, tuple[Suite, list[ResultTable]]]:
    """The suites that have results, with their tables.

    A user's own suite is read from the copy next to its results.
    """
    store = read_store(results)
    places = {name: place for place, name in enumerate(ORDER)}
    out = {}
    for name in sorted(store.files, key=lambda name: (places.get(name, len(ORDER)), name)):
        copy = results / f"{name}.toml"
        suite = load_suite(copy if copy.exists() else name)
        if tables := read_tables(suite, store):
            out[name] = (suite, tables)
    return out


def _overview(suites: Mapping[str, tuple[Suite, list[ResultTable]]]) -> str:
    """An SVG of the main systems; empty if the main suites have no results."""
    found: dict[str, dict[str, Point]] = {}
    for table in (table for name in MAIN_SUITES if name in suites for table in suites[name][1]):
        points = found.setdefault(table.entry.title, {})
        for row in table.rows:
            name, mean = row.cell.row, row.mean(MAIN_METRIC)
            if name in MAIN_SYSTEMS and mean is not None:
                spread = row.spread(MAIN_METRIC) or 0.0
                points.setdefault(name, Point(MAIN_SYSTEMS[name], mean, spread, marked=True))
    data = {
        split: [points[name] for name in MAIN_SYSTEMS if name in points]
        for split, points in found.items()
        if points
    }
    if not data:
        return ""
    return panels("The main systems on all splits", metric_title(MAIN_METRIC), data, "BPR")


def write(results: Path, target: Path) -> list[Path]:
    """Sort the store and write all pages and plots; returns the files written."""
    tidy(results)
    files = generate(results)
    paths = [target if name == SUMMARY else results / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return paths
