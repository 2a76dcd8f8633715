"""Runs are compared over the users they share, whatever the order of their files."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

import itemfold as ir
from itemfold.evaluation.compare import compare_runs
from itemfold.evaluation.paired_values import common_values
from itemfold.evaluation.significance import crossed_test
from itemfold.training.run_folder import load_runs

DATA = ir.load("synthetic:users=120,items=90,interactions=1800")


@pytest.fixture(scope="module")
def runs() -> dict[str, ir.Run]:
    split = ir.split_interactions(DATA)
    return {
        "popular": ir.train(split, ir.models.Popularity()),
        "ease": ir.train(split, ir.models.EASE()),
    }


def test_values_are_paired_by_user(runs):
    order = np.random.default_rng(0).permutation(len(runs["ease"].per_user["user"]))[:70]
    mixed = replace(runs["ease"], per_user={k: v[order] for k, v in runs["ease"].per_user.items()})
    values, common = common_values({"popular": runs["popular"], "ease": mixed})
    assert len(common) == 70
    by_user = {
        name: dict(zip(run.per_user["user"].tolist(), run.per_user["ndcg@20"], strict=True))
        for name, run in runs.items()
    }
    users = [u for u in runs["popular"].per_user["user"].tolist() if u in mixed.per_user["user"]]
    for name in runs:
        assert values[name]["ndcg@20"].tolist() == [by_user[name][u] for u in users]


def test_p_values_are_those_of_scipy_with_holm(runs):
    compared = compare_runs(runs, ["NDCG@20"])
    found, values, notes = compared.tests, compared.values, compared.notes
    expected = scipy.stats.ttest_rel(values["ease"]["ndcg@20"], values["popular"]["ndcg@20"])
    assert found.row("ease", "ndcg@20").p_t == pytest.approx(expected.pvalue, rel=1e-6)
    assert notes == (f"{len(values['ease']['ndcg@20'])} users in common",)


def test_what_cannot_be_compared_is_rejected(runs):
    other = ir.train(
        ir.split_interactions(ir.load("synthetic:users=90,items=60,interactions=900")),
        ir.models.EASE(),
    )
    unseen = ir.train(ir.split_users(DATA), ir.models.EASE())
    for runs_, message in (
        ({"a": runs["ease"]}, "at least two"),
        ({"a": runs["ease"], "b": other}, "same data"),
        ({"a": runs["ease"], "b": unseen}, "one protocol"),
        (
            {"a": runs["ease"], "b": replace(runs["ease"], per_user={})},
            "must have per-user values",
        ),
    ):
        with pytest.raises(ir.ItemfoldError, match=message):
            compare_runs(runs_)
    with pytest.raises(ir.ItemfoldError, match=r"'metrics' must be stored in all .*, got 'ndcg@7'"):
        compare_runs(runs, ["ndcg@7"])


def test_other_splits_are_noted(runs):
    again = ir.train(ir.split_interactions(DATA, seed=1), ir.models.EASE())
    notes = compare_runs({"a": runs["ease"], "b": again}).notes
    assert "split differently" in notes[1]


def test_run_names_are_the_shortest_unique_path_suffixes(runs, tmp_path):
    for folder in ("x/ease", "y/ease"):
        runs["ease"].save(tmp_path / folder)
    assert list(load_runs([str(tmp_path / f) for f in ("x/ease", "y/ease")])) == [
        "x/ease",
        "y/ease",
    ]
    with pytest.raises(ir.ItemfoldError, match="given twice"):
        load_runs([str(tmp_path / "x/ease")] * 2)


@pytest.mark.parametrize("key", ["best_epoch", "seconds", "test"])
def test_a_run_without_its_figures_is_rejected_by_file_and_key(runs, tmp_path, key):
    metrics = {name: value for name, value in runs["ease"].metrics.items() if name != key}
    replace(runs["ease"], metrics=metrics).save(tmp_path / "r")
    with pytest.raises(ir.ItemfoldError, match=rf"r/metrics.json is damaged: it has no '{key}'"):
        load_runs([str(tmp_path / "r")])


def test_runs_that_differ_in_seeds_only_are_one_system_tested_over_both():
    systems = {"flat": ir.models.EASE(l2=1e6), "ease": ir.models.EASE(l2=50.0)}
    runs = {
        f"{name}-{seed}": ir.train(ir.split_interactions(DATA, seed=seed), model, seed=seed)
        for name, model in systems.items()
        for seed in range(3)
    }
    compared = compare_runs(runs, ["ndcg@20"])
    found, values, notes = compared.tests, compared.values, compared.notes
    assert found.baseline == "flat-0"
    assert [row.system for row in found.rows] == ["ease-0"]
    assert notes == ("seeds: flat-0 3, ease-0 3",)
    users = sorted({u for run in runs.values() for u in run.per_user["user"].tolist()})
    table = np.full((3, len(users)), np.nan)
    for seed in range(3):
        own, base = (
            dict(zip(run.per_user["user"].tolist(), run.per_user["ndcg@20"], strict=True))
            for run in (runs[f"ease-{seed}"], runs[f"flat-{seed}"])
        )
        for column, user in enumerate(users):
            if user in own and user in base:
                table[seed, column] = own[user] - base[user]
    row = found.rows[0]
    assert row.test.seeds == 3
    assert row.p_t == pytest.approx(crossed_test(table).p_t)
    assert "users and seeds" in found.paired_over
    assert row.interval.mean == pytest.approx(np.nanmean(values["ease-0"]["ndcg@20"]))


def test_seeds_that_are_not_paired_prove_nothing():
    runs = {
        f"{name}-{seed}": ir.train(ir.split_interactions(DATA, seed=seed), model, seed=seed)
        for name, model, seed in (
            ("popular", ir.models.Popularity(), 0),
            ("popular", ir.models.Popularity(), 1),
            ("ease", ir.models.EASE(), 2),
        )
    }
    found = compare_runs(runs, ["ndcg@20"])
    assert found.tests.rows[0].p_t == 1.0
    assert found.notes[-1] == "ease-2 shares no seed with popular-0, so it is not tested"


def test_a_run_and_its_copy_are_compared_run_by_run(runs):
    found = compare_runs({**runs, "again": runs["ease"]}, ["ndcg@20"])
    assert [row.system for row in found.tests.rows] == ["ease", "again"]
