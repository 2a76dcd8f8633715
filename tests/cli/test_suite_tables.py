"""`reproduce` prints p-values, and the figures that were stored before beside the new ones."""

import json
import statistics
from pathlib import Path

import pytest
from command import call

from itemfold.cli.tables.suites import repetition
from itemfold.experiments.suites.results import read_tables
from itemfold.experiments.suites.store import read_store
from itemfold.experiments.suites.suite import load_suite

SUITE = """
title = "mine"
description = "two models"
baseline = "popularity"
columns = ["recall@20", "ndcg@20"]
seeds = 2
data = ["synthetic:users=80,items=60,interactions=1200"]
protocol = "inductive"

[[row]]
name = "popularity"
model = { name = "popularity" }

[[row]]
name = "itemknn"
model = { name = "itemknn" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("suite")
    (root / "mine.toml").write_text(SUITE)
    return root


def reproduce(folder: Path, *options: object) -> str:
    places = ("--results", folder / "res", "--per-user", folder / "users")
    return call("reproduce", folder / "mine.toml", *places, *options).stdout


def changed(folder: Path, by: dict[str, float]) -> Path:
    """A copy of the results whose NDCG differs."""
    out = folder / "-".join(map(str, ("changed", *by.values())))
    out.mkdir(exist_ok=True)
    lines = [json.loads(line) for line in (folder / "res/mine.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("digest")  # as in results of earlier releases
        if line["kind"] == "run":
            line["test"]["ndcg@20"] += by.get(line["model"], 0.0)
    (out / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def stored(folder: Path, row: str) -> list[float]:
    lines = [json.loads(line) for line in (folder / "res/mine.jsonl").read_text().splitlines()]
    return [
        100 * line["test"]["ndcg@20"]
        for line in lines
        if line["kind"] == "run"
        if line["model"] == row
    ]


def rows(text: str) -> dict[str, dict[str, object]]:
    return {row["row"]: row for row in json.loads(text)["tables"][0]["rows"]}


def test_new_figures_stand_beside_the_stored_ones(folder):
    first = rows(reproduce(folder, "--format", "json"))
    assert "stored" not in first["itemknn"]  # nothing was stored before
    values = {name: stored(folder, name) for name in first}
    for name, row in first.items():
        assert row["NDCG@20"] == pytest.approx(statistics.fmean(values[name]))
        assert row["NDCG@20 deviation"] == pytest.approx(statistics.stdev(values[name]))
    assert 0 <= first["itemknn"]["p"] <= 1
    assert "stored" not in rows(reproduce(folder, "--format", "json"))["itemknn"]  # nothing is new
    spread = statistics.stdev(values["itemknn"]) / 100
    for by, verdict in (
        (1.9 * spread, "inside"),
        (-1.9 * spread, "inside"),
        (2.1 * spread, "outside"),
    ):
        against = changed(folder, {"itemknn": by})
        found = rows(reproduce(folder, "--format", "json", "--against", against))
        assert found["itemknn"]["band"] == verdict
        expected = statistics.fmean(values["itemknn"]) + 100 * by
        assert found["itemknn"]["stored"] == pytest.approx(expected)
        assert found["popularity"]["stored"] is None


def test_a_closed_form_whose_seeds_are_equal_may_differ_by_rounding(folder):
    figures = read_tables(load_suite(folder / "mine.toml"), read_store(folder / "res"))[0].rows
    (row,) = (row for row in figures if row.cell.row == "itemknn")
    now = statistics.fmean(run["test"]["ndcg@20"] for run in row.results)
    for difference, verdict in ((3e-7, "inside"), (3e-4, "outside")):
        test = {"ndcg@20": now + difference}
        before = {(r["data"], r["row"], int(r["seed"])): {**r, "test": test} for r in row.results}
        found = repetition(row, "ndcg@20", before)
        assert found is not None
        assert found.verdict == verdict


def test_a_plot_and_a_table_for_a_paper(folder, tmp_path):
    shown = reproduce(folder, "--format", "latex", "--plot", tmp_path / "p.svg")
    assert r"\begin{tabular}{lrrrr}" in shown
    assert r"$\pm$" in shown
    assert "itemknn" in (tmp_path / "p.svg").read_text()


def test_misuse_is_one_sentence(folder):
    for options, message in (
        (("datasets", "--format", "csv"), "'--format' and '--plot' are for one suite"),
        ((folder / "mine.toml", "--against", folder / "no"), "'--against' must be an existing"),
    ):
        (line,) = call("reproduce", *options, code=2).stderr.strip().splitlines()
        assert message in line
