"""Repeat consumption: pairs are held out again where they occur again, and lists keep them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command import call
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir

DAY = 86400
START = 1_600_000_000


def visits(seed: int = 0, users: int = 40, places: int = 30, rows: int = 1500) -> pl.DataFrame:
    """Everyone has five favourite places, to which most visits go."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, rows)
    favourite = (user * 7 + rng.integers(0, 5, rows) * 3) % places
    item = np.where(rng.random(rows) < 0.8, favourite, rng.integers(0, places, rows))
    return pl.DataFrame(
        {"user": user, "item": item, "time": START + rng.integers(0, 100, rows) * DAY}
    )


def pairs_of(matrix: Any, users: Any, items: Any) -> set[tuple[int, int]]:
    rows, columns = matrix.nonzero()
    return {(int(users[r]), int(items[c])) for r, c in zip(rows, columns, strict=True)}


def expected(frame: pl.DataFrame, test: float, valid: float) -> list[set[tuple[int, int]]]:
    """Pairs of the three periods, by a loop over the rows."""
    times = np.sort(frame["time"].to_numpy())
    start = times[round((1 - test) * len(times))]
    before = times[times < start]
    begin = before[round((1 - valid) * len(before))]
    parts: list[set[tuple[int, int]]] = [set(), set(), set()]
    for row in frame.iter_rows(named=True):
        period = 0 if row["time"] < begin else 1 if row["time"] < start else 2
        parts[period].add((row["user"], row["item"]))
    return parts


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.1, 0.2, 0.3]))
def test_a_pair_is_in_every_period_in_which_it_occurs(seed: int, test: float) -> None:
    frame = visits(seed)
    split = ir.split_by_time(ir.read(frame), test=test, repeats=True)
    train, valid, later = expected(frame, test, 0.25)
    items = split.item_ids.ids
    assert pairs_of(split.train, split.user_ids.ids, items) == train
    known = {user for user, _ in train}
    found = pairs_of(split.valid.target, split.valid.ids, items)
    assert {pair for pair in found if pair[0] in known} == {p for p in valid if p[0] in known}
    past = {user for user, _ in train | valid}
    found = pairs_of(split.test.target, split.test.ids, items)
    assert {pair for pair in found if pair[0] in past} == {p for p in later if p[0] in past}
    history = pairs_of(split.test.history, split.test.ids, items)
    assert {p for p in history if p[0] in past} == {
        p for p in train | valid if p[0] in {user for user, _ in found}
    }
    refit = split.refit()
    assert (refit.train.data == 1).all()
    assert pairs_of(refit.train, refit.user_ids.ids, items) == train | valid


def test_no_time_after_training_reaches_the_weights_by_recency() -> None:
    frame = visits()
    split = ir.split_by_time(ir.read(frame), repeats=True)
    times = np.sort(frame["time"].to_numpy())
    start = times[round(0.8 * len(times))]
    before = times[times < start]
    begin = before[round(0.75 * len(before))]
    assert split.times.of(split.train, split.user_ids).max() < begin
    assert split.times.of(split.test.history, split.test.ids).max() < start


def test_a_repeated_target_is_ranked_and_found() -> None:
    """EASE without repeats cannot list what a user has seen; with them that is the best guess."""
    data = ir.read(visits())
    with_repeats = ir.split_by_time(data, repeats=True)
    run = ir.train(with_repeats, ir.models.EASE(l2=20.0))
    plain = ir.train(ir.split_by_time(data), ir.models.EASE(l2=20.0))
    assert run.metrics["test"]["recall@5" if "recall@5" in run.metrics["test"] else "recall@20"]
    found = ir.evaluate(run, with_repeats, k=5).metrics["ndcg@5"]
    assert found > 1.3 * ir.evaluate(plain, ir.split_by_time(data), k=5).metrics["ndcg@5"]
    held = with_repeats.test
    scores = run.model.scores(held.history, held.users).numpy()
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]  # nothing is masked
    hits = [
        len(set(row.tolist()) & set(held.target[[n]].indices.tolist()))
        for n, row in enumerate(best)
    ]
    n_target = np.diff(held.target.indptr)
    expected_recall = np.mean(np.array(hits) / n_target)
    assert ir.evaluate(run, with_repeats, k=5).metrics["recall@5"] == pytest.approx(expected_recall)


def test_lists_of_a_run_with_repeats_keep_what_a_user_has_seen(tmp_path: Path) -> None:
    visits().write_csv(tmp_path / "visits.csv")
    text = call(
        "train", tmp_path / "visits.csv", "--repeats", "--model", "ease", "--out", tmp_path / "r"
    ).output
    run = ir.Run.load(tmp_path / "r")
    assert run.config["split"]["repeats"] is True
    assert run.config["split"]["strategy"] == "time"
    assert "--repeats" not in text
    recommender = ir.Recommender(run)
    user = run.user_ids.ids.tolist()[3]
    seen = set(run.item_ids.ids[run.interactions[[3]].indices].tolist())
    listed = {pick.item for pick in recommender.recommend(user, k=5)}
    assert listed & seen
    assert not {pick.item for pick in recommender.recommend(user, k=5, exclude_seen=True)} & seen
    told = json.loads(call("recommend", tmp_path / "r", "--user", user, "-k", "5", "--json").stdout)
    assert {pick["item"] for pick in told["items"]} == listed
    assert "ndcg@20" in call("evaluate", tmp_path / "r").output
    call("train", "--final", tmp_path / "r", "--out", tmp_path / "final")
    final = ir.Recommender.load(tmp_path / "final")
    assert final.repeats
    assert final.interactions.nnz == len(ir.read(visits()))


def test_repeats_are_suggested_where_they_are_frequent() -> None:
    frame = visits()
    (note,) = [note for note in ir.split_by_time(ir.read(frame)).notes if "--repeats" in note]
    times = np.sort(frame["time"].to_numpy())
    start = times[round(0.8 * len(times))]
    before = {(r["user"], r["item"]) for r in frame.iter_rows(named=True) if r["time"] < start}
    later = [(r["user"], r["item"]) for r in frame.iter_rows(named=True) if r["time"] >= start]
    share = sum(pair in before for pair in later) / len(later)
    assert note.startswith(f"{share:.0%} of the interactions in the test period repeat")
    once = ir.load("synthetic:users=60,items=80,interactions=900")
    assert not [note for note in ir.split_by_time(once).notes if "--repeats" in note]
    assert not [n for n in ir.split_by_time(ir.read(frame), repeats=True).notes if "--repeats" in n]


def test_what_repeats_cannot_be_combined_with_is_one_sentence() -> None:
    frame = visits().with_columns(plays=pl.lit(2))
    with pytest.raises(ir.ItemfoldError, match="'repeats' cannot be combined with weights"):
        ir.split_by_time(ir.read(frame, weight="plays"), repeats=True)
    with pytest.raises(ir.ItemfoldError, match="'valid_by' must be time with 'repeats'"):
        ir.split_by_time(ir.read(frame), repeats=True, valid_by="random")
    with pytest.raises(ir.ItemfoldError, match="'repeats' must be true or false, got 'yes'"):
        ir.split_by_time(ir.read(frame), repeats="yes")


def test_filters_keep_the_earlier_rows_of_the_pairs_that_stay() -> None:
    frame = visits()
    data = ir.read(frame)
    core = data.where(np.arange(len(data)) % 3 > 0)
    pairs = set(
        zip(
            core.user_ids.ids[core.users].tolist(),
            core.item_ids.ids[core.items].tolist(),
            strict=True,
        )
    )
    rows = sum((r["user"], r["item"]) in pairs for r in frame.iter_rows(named=True))
    assert len(core.earlier.times) == rows - len(core)
    whole = {(u, i): [] for u, i in pairs}
    for r in frame.iter_rows(named=True):
        if (r["user"], r["item"]) in pairs:
            whole[r["user"], r["item"]].append(float(r["time"]))
    found = {(u, i): [] for u, i in pairs}
    ids = list(
        zip(
            core.user_ids.ids[core.users].tolist(),
            core.item_ids.ids[core.items].tolist(),
            strict=True,
        )
    )
    for n, pair in enumerate(ids):
        found[pair].append(float(core.times[n]))
    for n, time in zip(core.earlier.pairs.tolist(), core.earlier.times.tolist(), strict=True):
        found[ids[n]].append(time)
    assert {p: sorted(t) for p, t in found.items()} == {p: sorted(t) for p, t in whole.items()}


def test_the_default_model_is_trained_with_repeats() -> None:
    split = ir.split_by_time(ir.read(visits(users=25, rows=800)), repeats=True)
    run = ir.train(split, ir.models.Hybrid(gnn="none"), budget=5)
    assert ir.Recommender(run).repeats
    fitted = ir.keep_all(ir.read(visits()), valid=0.1, repeats=True)
    assert fitted.valid.repeats


def test_a_fitted_recommender_keeps_what_a_user_has_seen() -> None:
    found = ir.fit(visits(), ir.models.EASE(l2=20.0), repeats=True, progress=False)
    assert found.interactions.nnz == len(ir.read(visits()))
    seen = set(found.run.item_ids.ids[found.interactions[[3]].indices].tolist())
    user = found.run.user_ids.ids.tolist()[3]
    assert seen & {pick.item for pick in found.recommend(user, k=5)}
    assert seen & set(found.recommend_frame([user], k=5)["item_id"].to_list())
