"""The comparison of each loss with one of them, and of the orders on two encoders."""

from dataclasses import replace

import numpy as np
import pytest
from results_page.loss_comparisons import against_table, agreement, ahead, compare
from scipy.stats import spearmanr, ttest_rel

from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.results import ResultRow, ResultTable
from itemfold.experiments.suites.suite import load_suite

METRIC = "ndcg@20"
VALUES = {  # of each seed
    "ml-1m": {"one": [0.20, 0.21, 0.19], "two": [0.22, 0.24, 0.21], "three": [0.1, 0.12, 0.1]},
    "yelp2018": {"one": [0.05, 0.06, 0.05], "two": [0.04, 0.06, 0.04], "three": [0.1, 0.2, 0.1]},
}


def tables(values: dict[str, dict[str, list[float]]]) -> list[ResultTable]:
    cell = load_suite("negatives").cells(["yelp2018"])[0]
    out = []
    for data, rows in values.items():
        entry = Entry.parse(data)
        found = [
            ResultRow(
                replace(cell, row=name, entry=entry),
                [{"seed": n, "test": {METRIC: value}} for n, value in enumerate(of_seeds)],
            )
            for name, of_seeds in rows.items()
        ]
        out.append(ResultTable(entry, found, {}, [], []))
    return out


def test_each_row_is_compared_on_every_data_set() -> None:
    found = compare(tables(VALUES), METRIC, "one")
    assert set(found) == {"two", "three"}
    of_two = found["two"]["ml-1m/transductive"]
    assert of_two.ratio == pytest.approx(0.67 / 0.60)
    assert of_two.better
    p = {name: ttest_rel(VALUES["ml-1m"][name], VALUES["ml-1m"]["one"]).pvalue for name in found}
    assert of_two.p == pytest.approx(p["two"])
    assert of_two.corrected == pytest.approx(max(p["two"], 2 * min(p.values())))  # Holm, two rows
    assert not found["two"]["yelp2018/transductive"].better


def test_rows_are_ordered_by_how_often_they_are_better() -> None:
    lines = against_table(tables(VALUES), METRIC, "one").splitlines()
    names = [line.split(" | ")[0].strip("| ") for line in lines[2:]]
    assert names == ["three", "two"]  # each better once; by the geometric mean
    change = 100 * (np.sqrt(0.67 / 0.60 * 0.14 / 0.16) - 1)
    assert lines[3].endswith(f"| {change:+.1f} |".replace("-", "−"))
    assert "+11.7" in lines[3]
    assert "−12.5" in lines[3]


def test_rows_that_are_better_often_enough_are_named() -> None:
    assert ahead(tables(VALUES), METRIC, "one", 1) == "*two*, *three*"
    assert ahead(tables(VALUES), METRIC, "one", 2) == "none"


def test_a_single_seed_has_no_test() -> None:
    values = {data: {name: of[:1] for name, of in rows.items()} for data, rows in VALUES.items()}
    found = compare(tables(values), METRIC, "one")
    assert {one.p for of_data in found.values() for one in of_data.values()} == {1.0}


def test_agreement_is_of_the_rows_that_both_have() -> None:
    first = {"ml-1m": {**VALUES["ml-1m"], "four": [0.3, 0.3, 0.31]}}
    second = {"ml-1m": {"two": [0.3, 0.3, 0.3], "one": [0.2, 0.2, 0.2], "three": [0.4, 0.4, 0.4]}}
    table = agreement(tables(first), tables({**second, "yelp2018": {}}), METRIC, ["A", "B"])
    head, _, *body = table.splitlines()
    assert head.endswith("first on A | first on B |")
    rho = spearmanr([0.22, 0.20, 0.1], [0.3, 0.2, 0.4]).statistic
    cells = body[0].strip("| ").split(" | ")
    assert cells[:3] == ["ml-1m/transductive", "3", f"{rho:.2f}".replace("-0.", "−.")]
    assert cells[-2:] == ["two", "three"]
    assert len(body) == 1
