"""Users are grouped by activity, and the groups' figures are those of their users."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.evaluation.activity import (
    ActivityGroup,
    activity_groups,
    activity_record,
    by_activity,
    shown_metrics,
    stored_activity,
)
from itemfold.evaluation.compare import compare_by_activity
from itemfold.evaluation.intervals import bootstrap_interval, bootstrap_intervals
from itemfold.evaluation.significance import crossed_test

DATA = ir.load("synthetic:users=200,items=80,interactions=3000")
THIRDS = ("light", "middle", "heavy")
lengths = st.lists(st.integers(0, 12), min_size=1, max_size=60)


def masks(history: list[int], new: list[bool] | None = None) -> dict[str, np.ndarray]:
    is_new = None if new is None else np.array(new)
    return {g.name: m for g, m in activity_groups(np.array(history), is_new).items()}


# --- the groups ----------------------------------------------------------------------------------


@given(lengths)
def test_thirds_are_those_of_scipys_mean_ranks(history):
    rank = scipy.stats.rankdata(history, method="average")
    third = np.floor(3 * (rank - 0.5) / len(history) + 1e-9).astype(int)
    found = masks(history)
    parts = [found[name] for name in THIRDS if name in found]
    if len(set(third)) == 1:
        assert parts == []
    else:
        assert [set(np.flatnonzero(m)) for m in parts] == [
            set(np.flatnonzero(third == value)) for value in sorted(set(third))
        ]


@given(
    lengths.flatmap(
        lambda h: st.tuples(st.just(h), st.lists(st.booleans(), min_size=len(h), max_size=len(h)))
    )
)
def test_groups_are_a_partition_and_equal_lengths_stay_together(drawn):
    history, new = np.array(drawn[0]), np.array(drawn[1])
    found = activity_groups(history, new)
    by_name = {group.name: mask for group, mask in found.items()}
    assert by_name["all"].all()
    if new.any():
        assert (by_name["new"] == new).all()
        assert (by_name.get("known", np.zeros(len(new), bool)) == ~new).all()
    parts = [by_name[name] for name in THIRDS if name in by_name]
    if parts:
        assert (np.sum(parts, axis=0) == ~new).all()  # every known user once, no new one
        for lower, upper in pairwise(parts):
            assert history[lower].max() < history[upper].min()
    for group, mask in found.items():
        assert group.users == mask.sum() > 0
        assert (group.least, group.most) == (history[mask].min(), history[mask].max())


@pytest.mark.parametrize(
    ("history", "sizes"),
    [
        ([1, 2, 3, 4, 5, 6], {"light": 2, "middle": 2, "heavy": 2}),
        ([1] * 90 + list(range(2, 12)), {"light": 90, "heavy": 10}),
        ([1] * 10 + [5] * 90, {"light": 10, "heavy": 90}),
        ([7] * 5, {}),
        ([3], {}),
    ],
)
def test_ties(history, sizes):
    found = {name: int(mask.sum()) for name, mask in masks(history).items()}
    assert found == {"all": len(history)} | sizes


def test_labels():
    for least, most, label in ((1, 4, "1–4 items"), (1, 1, "1 item"), (0, 0, "0 items")):
        assert ActivityGroup("light", 9, least, most).label == f"light ({label})"


# --- their figures -------------------------------------------------------------------------------


@given(lengths, st.integers(0, 5))
def test_means_and_intervals_are_those_of_the_users_alone(history, seed):
    rng = np.random.default_rng(seed)
    new = rng.random(len(history)) < 0.3
    values = rng.random(len(history))
    columns = {"history": np.array(history), "new": new, "hit@1": values}
    found = by_activity(columns, ["hit@1"])
    for group, mask in activity_groups(columns["history"], new).items():
        expected = bootstrap_interval(values[mask])
        got = found[group]["hit@1"]
        assert vars(got) == pytest.approx(vars(expected))
        assert got.mean == pytest.approx(sum(values[mask].tolist()) / mask.sum())


def test_intervals_of_several_metrics_are_those_of_each():
    rng = np.random.default_rng(0)
    columns = {"a": rng.random(300), "b": rng.random(300) < 0.1, "c": rng.random(300)}
    columns["c"][5] = np.nan
    found = bootstrap_intervals(columns, seed=3)
    assert list(found) == ["a", "b", "c"]
    for name, values in columns.items():
        assert vars(found[name]) == pytest.approx(vars(bootstrap_interval(values, 3)))
    assert np.isnan(bootstrap_intervals({"none": []})["none"].mean)
    with pytest.raises(ir.ItemfoldError, match="same number of users"):
        bootstrap_intervals({"a": [1.0], "b": [1.0, 2.0]})


def test_metrics_shown():
    assert shown_metrics(["user", "history", "new", "recall@5", "ap@5"]) == ["recall@5"]
    assert shown_metrics([]) == []


# --- evaluations and runs ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> ir.Split:
    return ir.split_window(DATA)


@pytest.fixture(scope="module")
def run(split) -> ir.Run:
    return ir.train(split, ir.models.EASE())


def test_new_users_are_those_without_a_row(split, run):
    result = ir.evaluate(run, split)
    expected = [user not in set(run.user_ids.ids.tolist()) for user in result.ids.tolist()]
    assert result.is_new.tolist() == expected
    assert 0 < sum(expected) < len(expected)
    found = {group.name: interval for group, interval in result.by_activity().items()}
    values = result.per_user["ndcg@20"]
    assert found["all"].mean == pytest.approx(result.metrics["ndcg@20"])
    assert found["new"].mean == pytest.approx(values[np.array(expected)].mean())
    assert list(found) == ["all", "new", "known", *THIRDS]
    with pytest.raises(ir.ItemfoldError, match=r"'metric' must be one of recall@20, .*, got 'x'"):
        result.by_activity("x")


def test_users_of_an_inductive_split_are_grouped_by_history_only():
    inductive = ir.split_users(DATA)
    result = ir.evaluate(ir.train(inductive, ir.models.EASE()), inductive)
    assert result.is_new is None
    assert [group.name for group in result.by_activity()] == ["all", *THIRDS]
    assert "new" not in result.columns


def test_a_run_stores_its_groups(split, run, tmp_path):
    result = ir.evaluate(run, split)
    run.save(tmp_path / "r")
    loaded = ir.Run.load(tmp_path / "r")
    assert loaded.per_user["new"].tolist() == result.is_new.tolist()
    entries = json.loads((tmp_path / "r/metrics.json").read_text())["activity"]
    assert [entry["name"] for entry in entries] == ["all", "new", "known", *THIRDS]
    assert {"users", "least", "most", "ndcg@20", "recall@20"} <= entries[0].keys()
    assert entries[0]["ndcg@20"]["mean"] == run.metrics["test"]["ndcg@20"]
    assert stored_activity(loaded.metrics, loaded.per_user) == result.activity
    assert activity_record(stored_activity(loaded.metrics, loaded.per_user)) == entries


def test_an_older_folder_has_groups_but_no_new_users(run):
    columns = {name: values for name, values in run.per_user.items() if name != "new"}
    metrics = {key: value for key, value in run.metrics.items() if key != "activity"}
    found = {group.name: group for group in stored_activity(metrics, columns)}
    assert list(found) == ["all", *THIRDS]
    assert found["all"].users == len(columns["history"])
    del columns["history"]
    assert stored_activity(metrics, columns) == {}


# --- comparisons ---------------------------------------------------------------------------------


def test_groups_are_compared_by_scipys_paired_test_with_holm(split, run):
    other = ir.train(split, ir.models.Popularity())
    order = np.random.default_rng(0).permutation(len(run.per_user["user"]))
    mixed = replace(run, per_user={k: v[order] for k, v in run.per_user.items()})
    found = compare_by_activity({"popular": other, "ease": mixed})
    assert [group.name for group in found.groups] == ["new", "known", *THIRDS]
    p = []
    for group, mask in activity_groups(run.per_user["history"], run.per_user["new"]).items():
        a, b = (r.per_user["ndcg@20"][mask] for r in (run, other))
        if group.name != "all":
            assert group in found.groups
            row = found.found.row("ease", group.name)
            assert row.interval.mean == pytest.approx(a.mean())
            assert row.baseline_mean == pytest.approx(b.mean())
            assert row.test.difference == pytest.approx((a - b).mean())
            assert row.test.p_t == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, rel=1e-6)
            p.append((row.test.p_t, row.p_t))
    worst = 0.0
    for place, (raw, corrected) in enumerate(sorted(p)):
        worst = max(worst, min(1.0, (len(p) - place) * raw))
        assert corrected == pytest.approx(worst)


def test_seeds_of_a_system_are_tested_together_in_each_group():
    splits = [ir.split_interactions(DATA, seed=seed) for seed in range(2)]
    models = {"flat": ir.models.EASE(l2=1e6), "ease": ir.models.EASE(l2=50.0)}
    runs = {
        f"{name}-{seed}": ir.train(split, model, seed=seed)
        for name, model in models.items()
        for seed, split in enumerate(splits)
    }
    found = compare_by_activity(runs, "recall@20")
    assert [group.name for group in found.groups] == list(THIRDS)
    first = {}  # the history of a user in the first run that has it
    for one in runs.values():
        for user, length in zip(one.per_user["user"], one.per_user["history"], strict=True):
            first.setdefault(user, length)
    heavy = found.groups[-1]
    users = [user for user in sorted(first) if heavy.least <= first[user] <= heavy.most]
    assert len(users) == heavy.users
    table = np.full((2, len(users)), np.nan)
    for seed in range(2):
        a, b = (
            dict(zip(one.per_user["user"], one.per_user["recall@20"], strict=True))
            for one in (runs[f"ease-{seed}"], runs[f"flat-{seed}"])
        )
        for column, user in enumerate(users):
            if user in a:
                table[seed, column] = a[user] - b[user]
    assert found.found.row("ease-0", "heavy").test.p_t == pytest.approx(crossed_test(table).p_t)


def test_users_who_are_alike_have_no_groups(run):
    alike = {**run.per_user, "history": np.full_like(run.per_user["history"], 4)}
    del alike["new"]
    same = replace(run, per_user=alike)
    assert compare_by_activity({"a": same, "b": same}).groups == ()
