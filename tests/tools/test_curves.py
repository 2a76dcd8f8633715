"""Curves of a suite: a row NAME-3 is the third point of a curve; figures are those stored."""

import re
from pathlib import Path

import pytest
from results_page.curves import curves_of
from results_page.pages import generate

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.results import read_tables
from itemfold.experiments.suites.store import append_lines, read_store, row_line
from itemfold.experiments.suites.suite import load_suite

DATA = "ml-latest-small/transductive"
NOTE = "Test users who were never there before: 3."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Stored results of two models on two windows."""
    home = tmp_path / "results"
    for cell in load_suite("rolling").cells():
        name, _, window = cell.row.rpartition("-")
        if name == "item-log" or window not in "12":
            continue
        run = {
            "kind": "run",
            "id": cell.row,
            "dataset": {"fingerprint": "f", "users": 7, "items": 8, "interactions": 9},
            "best_epoch": 1,
            "epochs": 2,
            "refit": True,
            "judged": 40 + int(window),
            "notes": [NOTE],
            "seconds": {"train": 1.0},
            "valid": {},
            "test": {"recall@20": 0.1, "ndcg@20": 0.2 + int(window) / 100},
            "config": cell.seeded(0),
            "hardware": {"device": "CPU", "cpu": "C", "cores": 2, "jobs": 1, "torch": "2"},
        }
        append_lines(home, "rolling", run, row_line(DATA, cell.row, 0, cell.row))
    return home


def test_the_page_has_a_table_and_a_plot_of_curves(folder: Path) -> None:
    files = generate(folder)
    page = files["rolling.md"]
    assert "| NDCG@20 × 100 | window 1 | window 2 |" in page
    assert "| ease | 21.00 | 22.00 |" in page
    assert "| hybrid | 21.00 | 22.00 |" in page
    assert f"- window 2: 42 test users. {NOTE}" in page
    plot = files["plots/rolling.svg"]
    assert plot.startswith("<svg")
    assert {"ease", "hybrid", "window"} <= set(re.findall(r">([a-z]+)</text>", plot))
    assert plot == generate(folder)["plots/rolling.svg"]


def test_rows_are_points_by_number(folder: Path) -> None:
    suite = load_suite("rolling")
    (table,) = read_tables(suite, read_store(folder))
    assert {name: sorted(points) for name, points in curves_of(table).items()} == {
        "ease": [1, 2],
        "hybrid": [1, 2],
    }


def test_a_curve_needs_numbered_rows(tmp_path: Path) -> None:
    text = 'curve = "window"\ndata = ["ml-1m"]\n[[row]]\nname = "{}"\nmodel = "ease"\n'
    (tmp_path / "own.toml").write_text(text.format("ease"))
    with pytest.raises(ItemfoldError, match="must be called NAME-NUMBER, got 'ease'"):
        load_suite(tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text(text.format("ease-7"))
    assert load_suite(tmp_path / "own.toml").curve == "window"
