"""Paired tests where the per-user values of only some rows are available."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from results_page.remarks import compared_over
from scipy import stats

from itemfold.experiments.suites.paired_tests import write_tests
from itemfold.experiments.suites.store import Line, append_lines, read_store, row_line
from itemfold.experiments.suites.suite import load_suite
from itemfold.experiments.suites.user_values import values_path, write_values

DATA = "yelp2018/transductive"
SUITE = load_suite("negatives")
USERS = np.arange(40)


def scores(row: str) -> np.ndarray:
    shift = {"uniform": 0.0, "tempered": 0.01, "strong": 0.2}[row]
    return shift + np.random.default_rng(len(row)).random(len(USERS))


def run_of(row: str) -> Line:
    return {"kind": "run", "id": f"{row}-run", "test": {}, "config": {}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three rows of one seed, all tested: *uniform* is the baseline."""
    folder = tmp_path / "results"
    for row in ("uniform", "tempered", "strong"):
        append_lines(folder, "negatives", run_of(row), row_line(DATA, row, 0, f"{row}-run"))
        values = {"user": USERS, "ndcg@20": scores(row)}
        write_values(values_path(tmp_path / "all", f"{row}-run"), values, f"{row}-run")
    assert write_tests(SUITE, DATA, read_store(folder), tmp_path / "all") == []
    return folder


def p_values(home: Path) -> dict[str, float]:
    rows = read_store(home).tests("negatives", DATA)["rows"]
    return {row: tested["ndcg@20"]["p_t"] for row, tested in rows.items()}


def expected(rows: list[str]) -> dict[str, float]:
    """scipy's paired t-test, times the number of tests that are not smaller (Holm, 1979)."""
    p = {row: stats.ttest_rel(f32(row), f32("uniform")).pvalue for row in rows}
    order = sorted(p, key=p.__getitem__)
    steps = [min(1.0, p[row] * (len(p) - n)) for n, row in enumerate(order)]
    return dict(zip(order, np.maximum.accumulate(steps).tolist(), strict=True))


def f32(row: str) -> np.ndarray:
    return scores(row).astype(np.float32).astype(np.float64)


def test_p_values_are_corrected_over_rows(home: Path) -> None:
    assert p_values(home) == pytest.approx(expected(["tempered", "strong"]))


def test_a_row_without_values_keeps_its_test(home: Path, tmp_path: Path) -> None:
    before = p_values(home)
    for row in ("uniform", "tempered"):
        source, target = (values_path(tmp_path / n, f"{row}-run") for n in ("all", "some"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    notes = write_tests(SUITE, DATA, read_store(home), tmp_path / "some")
    assert p_values(home) == pytest.approx(before)
    assert "left unchanged for strong" in notes[0]


def test_a_newer_run_without_values_loses_its_test(home: Path, tmp_path: Path) -> None:
    newer = {**run_of("strong"), "id": "newer"}
    append_lines(home, "negatives", newer, row_line(DATA, "strong", 0, "newer"))
    write_tests(SUITE, DATA, read_store(home), tmp_path / "all")
    assert p_values(home) == pytest.approx(expected(["tempered"]))


def test_nothing_is_written_without_values(home: Path, tmp_path: Path) -> None:
    before = read_store(home).tests("negatives", DATA)
    notes = write_tests(SUITE, DATA, read_store(home), tmp_path / "nowhere")
    assert read_store(home).tests("negatives", DATA) == before
    assert "left unchanged for" in notes[0]


@pytest.mark.parametrize(("kept", "tested"), [(1, None), (2, [0, 1]), (3, [0, 1, 2])])
def test_a_row_is_tested_over_the_seeds_whose_values_are_at_hand(
    tmp_path: Path, kept: int, tested: list[int] | None
) -> None:
    folder, values = tmp_path / "results", tmp_path / "values"
    for row, seed in itertools.product(("uniform", "strong"), range(3)):
        name = f"{row}-{seed}"
        append_lines(
            folder, "negatives", {**run_of(row), "id": name}, row_line(DATA, row, seed, name)
        )
        if row == "strong" or seed < kept:
            found = {"user": USERS, "ndcg@20": scores(row) + seed / 100}
            write_values(values_path(values, name), found, name)
    notes = write_tests(SUITE, DATA, read_store(folder), values)
    if tested is None:
        assert read_store(folder).tests("negatives", DATA) == {}
        assert "left unchanged for strong" in notes[0]
        return
    assert notes == []
    stored = read_store(folder).tests("negatives", DATA)
    assert stored["rows"]["strong"]["seeds"] == tested
    caption = compared_over(SUITE, stored, {row: dict.fromkeys(range(3), "") for row in SUITE.rows})
    assert caption == "users and seeds" + (", over 2 of 3 seeds for *strong*" if kept == 2 else "")


def test_an_older_test_over_users_is_brought_to_seeds_without_values(tmp_path: Path) -> None:
    """The variance of users, from the stored effect, plus that of the means of seeds."""
    folder, rng = tmp_path / "results", np.random.default_rng(0)
    values = {row: rng.random((3, 40)) + shift for row, shift in (("uniform", 0), ("strong", 0.3))}
    for row, seed in itertools.product(values, range(3)):
        run = {**run_of(row), "id": f"{row}-{seed}", "test": {"ndcg@20": values[row][seed].mean()}}
        append_lines(folder, "negatives", run, row_line(DATA, row, seed, run["id"]))
    d = values["strong"] - values["uniform"]
    over_users = stats.ttest_1samp(d.mean(0), 0)
    figures = {
        "users": 40,
        "difference": d.mean(),
        "effect_size": d.mean() / d.mean(0).std(ddof=1),
        "p_t": over_users.pvalue,
        "p_wilcoxon": 0.001,
        "uncorrected": {"p_t": over_users.pvalue, "p_wilcoxon": 0.001},
    }
    tests: Line = {"kind": "tests", "data": DATA, "baseline": "uniform"}
    tests["rows"] = {"strong": {"seeds": [0, 1, 2], "ndcg@20": figures}}
    tests["runs"] = {f"{row}-{seed}": f"{row}-{seed}" for row in values for seed in range(3)}
    append_lines(folder, "negatives", tests)
    for _ in range(2):  # the second call finds it done
        write_tests(SUITE, DATA, read_store(folder), tmp_path / "nowhere")
        stored = read_store(folder).tests("negatives", DATA)
        found = stored["rows"]["strong"]["ndcg@20"]
        users, between = d.mean(0).var(ddof=1) / 40, d.mean(1).var(ddof=1) / 3
        half = found["p_t"] / 2
        radius = stats.t.isf(half, 2) ** 2 * between + stats.t.isf(half, 39) ** 2 * users
        assert d.mean() ** 2 == pytest.approx(radius, rel=1e-6)
        assert found["p_t"] > over_users.pvalue
        assert (found["seeds"], found["bound"]) == (3, True)
    ids = {row: dict.fromkeys(range(3), "") for row in SUITE.rows}
    expected = "users and seeds, with an upper bound of the variance"
    assert compared_over(SUITE, stored, ids) == expected
