"""Splits by time: training, validation and test follow each other, and new users are folded in.

The oracle is a loop over the interactions.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.default_strategy import default_strategy
from itemfold.data.splitting.split import Split
from itemfold.errors import ItemfoldError, LeakError
from itemfold.experiments.build import make_split, run_config
from itemfold.models import MODELS
from itemfold.settings.stored_config import current_config

Pair = tuple[str, int]


def growing(seed: int, count: int = 300, moments: int = 60) -> Interactions:
    """Random interactions; users and items become more with time."""
    rng = np.random.default_rng(seed)
    when = rng.integers(0, moments, count)
    user, item = (rng.integers(0, 5 + 25 * when // moments) for _ in range(2))
    names = [f"u{n}" for n in user]
    return ir.read(pl.DataFrame({"user": names, "item": item, "timestamp": when}))


def times_of(data: Interactions) -> dict[Pair, float]:
    assert data.times is not None
    users, items = data.user_ids.ids.tolist(), data.item_ids.ids.tolist()
    coded = zip(data.users, data.items, data.times, strict=True)
    return {(users[u], items[i]): float(t) for u, i, t in coded}


def pairs(split: Split, matrix: Any, ids: Any) -> set[Pair]:
    coo, items = matrix.tocoo(), split.item_ids.ids.tolist()
    names = (ids.ids if isinstance(ids, IdMap) else ids).tolist()
    return {(names[r], items[c]) for r, c in zip(coo.row, coo.col, strict=True)}


def of_user(found: set[Pair], user: str) -> set[Pair]:
    return {pair for pair in found if pair[0] == user}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 500), share=st.sampled_from([0.1, 0.2, 0.3]))
def test_each_part_is_later_and_new_users_show_their_earlier_half(seed: int, share: float) -> None:
    data = growing(seed)
    when = times_of(data)
    split = ir.split_by_time(data, valid=share, test=0.25)
    assert split.valid is not None
    train = pairs(split, split.train, split.user_ids)
    begins = max(when[pair] for pair in train)
    t1 = min(t for t in when.values() if t > begins)
    ordered = np.sort(list(when.values()))
    t2 = float(ordered[round(0.75 * len(ordered))])
    before = ordered[ordered < t2]
    assert t1 == before[min(round((1 - share) * len(before)), len(before) - 1)]
    assert train == {pair for pair, t in when.items() if t < t1}
    for held, start, end in ((split.valid, t1, t2), (split.test, t2, np.inf)):
        inside = {pair for pair, t in when.items() if start <= t < end}
        earlier = {pair for pair, t in when.items() if t < start}
        history, target = (pairs(split, m, held.ids) for m in (held.history, held.target))
        for user in held.ids.tolist():
            if past := of_user(earlier, user):
                assert of_user(history, user) == past
                assert of_user(target, user) == of_user(inside, user)
            else:
                own = sorted(of_user(inside, user), key=lambda pair: when[pair])
                middle = when[own[len(own) // 2]]
                assert of_user(history, user) == {pair for pair in own if when[pair] < middle}
                assert of_user(target, user) == {pair for pair in own if when[pair] >= middle}
        active = {user for user, _ in inside}
        assert {user for user, _ in earlier} & active <= set(held.ids.tolist())
    # a refit knows everything before the test period, with rows for users who came later
    whole = split.refit()
    assert pairs(whole, whole.train, whole.user_ids) == {p for p, t in when.items() if t < t2}
    assert whole.user_ids.ids[: split.n_users].tolist() == split.user_ids.ids.tolist()
    assert whole.test.users.tolist() == whole.user_ids.index(whole.test.ids).tolist()
    known = {user for (user, _), t in when.items() if t < t2}
    assert whole.is_new().tolist() == [user not in known for user in whole.test.ids.tolist()]
    assert split.is_new().tolist() == whole.is_new().tolist()
    whole.check()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 500), valid_by=st.sampled_from(["time", "random"]))
def test_times_are_those_of_the_interactions_and_never_of_hidden_ones(
    seed: int, valid_by: Any
) -> None:
    data = growing(seed)
    when = times_of(data)
    splits = [
        ir.split_by_time(data, valid_by=valid_by),
        ir.split_by_time(data, valid_by=valid_by, new_users="drop"),
        ir.split_window(data, windows=2, valid_by=valid_by),
        ir.split_interactions(data, seed=seed),
        ir.leave_last_out(data),
        ir.split_users(data, test=0.3),
        ir.keep_all(data, valid=0.2, valid_by=valid_by),
        ir.keep_all(data),
        ir.cold_start(ir.split_interactions(data), 0.5),
    ]
    for split in [*splits, *(s.refit() for s in splits if s.protocol == "transductive")]:
        assert split.times is not None
        parts = [(split.train, split.user_ids), (split.test.history, split.test.ids)]
        if split.valid is not None:
            parts += [(m, split.valid.ids) for m in (split.valid.history, split.valid.target)]
        if split.joining is not None:
            parts.append((split.joining.train, split.joining.ids))
        for matrix, ids in parts:
            coo, found = matrix.tocoo(), split.times.of(matrix, ids)
            names = (ids.ids if isinstance(ids, IdMap) else ids).tolist()
            items = split.item_ids.ids.tolist()
            cells = zip(coo.row, coo.col, strict=True)
            assert found.tolist() == [when[names[r], items[c]] for r, c in cells]
        known = set().union(*(pairs(split, m, ids) for m, ids in parts))
        assert pairs(split, split.times.matrix, split.times.ids) == known
        if split.test.target.nnz:
            hidden = pairs(split, split.test.target, split.test.ids)
            assert not hidden & known
            with pytest.raises(ItemfoldError, match="hidden test interactions have none"):
                split.times.of(split.test.target, split.test.ids)


def test_recency_is_a_power_of_two_of_the_age_divided_by_the_mean() -> None:
    data = growing(3)
    data = replace(data, times=data.times * 86400.0)
    when = times_of(data)
    split = ir.split_by_time(data)
    assert split.times is not None
    assert split.recent(None) is split
    for each in (split, split.refit()):
        recent = each.recent("10d")
        latest = max(when[pair] for pair in pairs(each, each.train, each.user_ids))

        def factors(matrix: Any, ids: Any, latest: float = latest, each: Split = each) -> Any:
            age = np.maximum(latest - each.times.of(matrix, ids), 0)  # type: ignore[union-attr]
            return 0.5 ** (age / (10 * 86400.0))

        mean = factors(each.train, each.user_ids).mean()
        expected = factors(each.train, each.user_ids) / mean
        np.testing.assert_allclose(recent.train.data, expected, rtol=1e-6)
        np.testing.assert_allclose(recent.train.data.mean(), 1, rtol=1e-6)
        history = factors(each.test.history, each.test.ids) / mean
        np.testing.assert_allclose(recent.test.history.data, history, rtol=1e-6)
        assert (recent.test.target.data == 1).all()
        if each.valid is not None:
            for part in ("history", "target"):
                matrix = getattr(each.valid, part)
                found = getattr(recent.valid, part).data
                np.testing.assert_allclose(found, factors(matrix, each.valid.ids) / mean, rtol=1e-6)
        recent.check()
    very = split.recent("1s").train.data
    assert very.min() == np.float32(1e-6)
    with pytest.raises(ItemfoldError, match="'half_life' needs timestamps"):
        replace(split, times=None).recent("10d")
    with pytest.raises(ItemfoldError, match="'half_life' must be a duration"):
        split.recent("soon")


@pytest.mark.parametrize("model", ["ease", "lightgcn", "hybrid"])
def test_a_run_with_new_users_in_both_periods_is_trained_saved_and_served(
    model: str, tmp_path: Path
) -> None:
    split = ir.split_by_time(growing(1, 600), valid=0.4, test=0.3)
    assert split.valid is not None
    assert split.joining is not None
    assert split.is_new("valid").any()
    assert split.is_new().any()
    small = {"lightgcn": {"dim": 8}}.get(model, {})
    training = {} if model == "ease" else {"epochs": 2, "eval_every": 1}
    run = ir.train(split, MODELS[model](**small), out=tmp_path / "r", **training)
    whole = split.refit()
    assert run.metrics["refit"]
    assert run.user_ids.ids.tolist() == whole.user_ids.ids.tolist()
    assert (run.train != whole.train).nnz == 0
    assert run.metrics["users"]["judged"] == len(split.test)
    loaded = ir.Run.load(tmp_path / "r")
    for each in (split, whole):
        found = ir.evaluate(loaded, each)
        assert found.metrics == pytest.approx(run.metrics["test"])
    joined = split.joining.ids.ids[0]
    best = ir.Recommender(loaded).recommend(str(joined), k=3)
    assert len(best) == 3
    known = {item for user, item in pairs(whole, whole.train, whole.user_ids) if user == joined}
    assert not known & {int(each.item) for each in best}
    unrefitted = ir.train(split, MODELS[model](**small), refit=False, **training)
    assert unrefitted.user_ids.ids.tolist() == split.user_ids.ids.tolist()
    ir.evaluate(unrefitted, split)


def test_models_that_cannot_fold_in_leave_new_users_out(tmp_path: Path) -> None:
    data = growing(1, 600)
    with pytest.raises(ItemfoldError, match='new_users="drop"'):
        ir.train(ir.split_by_time(data), ir.models.MF(dim=4), epochs=1)
    config = {"model": {"name": "mf", "dim": 4}, "train": {"epochs": 1}}
    run = run_config(config, tmp_path / "r", data=data)
    assert run.config["split"]["new_users"] == "drop"
    assert run.config["split"]["strategy"] == "time"
    assert any("MF cannot score them" in note for note in run.notes)
    given = {**config, "split": {"strategy": "time", "new_users": "fold-in"}}
    with pytest.raises(ItemfoldError, match='new_users="drop"'):
        run_config(given, data=data)


def test_items_that_are_new_in_the_test_period_are_counted() -> None:
    """News: each item lives for a twentieth of the time."""
    rows = [(n % 30, f"{n // 50}-{n % 7}", n) for n in range(1000)]
    columns = ["user", "item", "time"]
    data = ir.read(pl.DataFrame(rows, columns, orient="row"))
    said = " ".join(ir.split_by_time(data).notes)
    hint = "a shorter test period has fewer: --set split.test=0.05."
    assert f"which no model can find: 200 of 200 (100.0%); {hint}" in said
    assert "never occurred" not in " ".join(ir.split_by_time(data, test=0.02).notes)
    few = [(user, item if n % 3 == 0 else f"x{n % 91}", n) for user, item, n in rows]
    said = " ".join(ir.split_by_time(ir.read(pl.DataFrame(few, columns, orient="row"))).notes)
    assert "which no model can find" in said
    assert "shorter" not in said


def test_time_comes_first_unless_something_else_is_known(tmp_path: Path) -> None:
    data = growing(2)
    assert default_strategy(data) == "time"
    assert default_strategy(data, "inductive") == "users"
    assert default_strategy(replace(data, times=None)) == "interactions"
    assert default_strategy(replace(data, held_out=data.users > 5)) == "interactions"
    assert default_strategy(replace(data, source={"data": "synthetic:seed=1"})) == "interactions"
    split = make_split({}, data)
    assert split.settings["strategy"] == "time"
    how = next(note for note in split.notes if note.startswith("Split by time: train before "))
    assert "--split interactions" in how
    assert make_split({"split": split.settings}, data).settings == split.settings
    equal = replace(data, times=np.full(len(data), 7.0))
    split = make_split({}, equal)
    assert split.settings["strategy"] == "interactions"
    assert "The times are not used, and the split is random: all times are equal." in split.notes
    few = replace(data, times=(data.times > 30).astype(float))
    assert "too few different times" in " ".join(make_split({}, few).notes)
    for bad, problem in ((equal, "all times are equal"), (few, "too few different times")):
        with pytest.raises(ItemfoldError, match=f"cannot be split by time: .*{problem}"):
            make_split({"split": {"strategy": "time"}}, bad)
    for strategy in ("rolling", "last"):
        with pytest.raises(ItemfoldError, match="cannot be split by time: all times are equal"):
            make_split({"split": {"strategy": strategy}}, equal)
    days = replace(data, times=np.floor(data.times / 10))  # ties, which the seed breaks
    at = {u: np.sort(days.times[days.users == u])[-2:] for u in np.unique(days.users)}
    tied = sum(len(last) == 2 and last[0] == last[1] for last in at.values())
    assert tied
    note = f"Users whose two last items have the same time, drawn at random: {tied}."
    assert note in make_split({"split": {"strategy": "last"}}, days).notes
    baskets = replace(data, times=data.users.astype(float))  # each user came once
    assert "no user has an interaction in" in " ".join(make_split({}, baskets).notes)


def test_a_validation_part_at_random_is_drawn_from_each_users_past() -> None:
    data = growing(4, 500)
    when = times_of(data)
    split = ir.split_by_time(data, valid_by="random", valid=0.3, rounding="nearest")
    assert split.valid is not None
    assert (split.valid.users >= 0).all()
    assert split.joining is None
    past = pairs(split, split.refit().train, split.user_ids)
    start = min(t for pair, t in when.items() if pair not in past)
    assert past == {pair for pair, t in when.items() if t < start}
    for row, user in enumerate(split.valid.ids.tolist()):
        own, held = len(of_user(past, user)), split.valid.target[[row]].nnz
        assert held == min(int(np.floor(0.3 * own + 0.5)), own - 1)


def test_rows_of_held_out_users_are_checked_by_id() -> None:
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    assert split.valid is not None
    for name, held in (("test", split.test), ("validation", split.valid)):
        field = {"test": "test", "validation": "valid"}[name]
        unknown = replace(held, users=np.full(len(held), -1))
        with pytest.raises(LeakError, match=f"{name} user .* is also a training user"):
            replace(split, **{field: unknown}).check()
        swapped = replace(held, users=held.users[::-1].copy())
        with pytest.raises(LeakError, match="another user's"):
            replace(split, **{field: swapped}).check()
    few = split.test.take(np.arange(5))
    for wrong, message in (
        (split.test.take(np.array([0, 1, 0])), "must be in the test part once"),
        (replace(few, target=split.test.target), r"'target' of the test part must be \(5, "),
        (replace(few, history=few.history[:, :-1]), "'history' of the test part must be"),
        (replace(few, ids=split.test.ids), "'ids' of the test part must be those of its 5 users"),
    ):
        with pytest.raises(ItemfoldError, match=message):
            replace(split, test=wrong).check()
    with pytest.raises(ItemfoldError, match="'train' must have a row for each of 60 user ids"):
        replace(split, train=split.train[1:]).check()
    with pytest.raises(ItemfoldError, match="'protocol' must be transductive or inductive"):
        replace(split, protocol="random").check()  # type: ignore[arg-type]
    timed = ir.split_by_time(growing(1, 600))
    assert timed.joining is not None
    taken = replace(timed.joining, ids=timed.user_ids.take(np.arange(len(timed.joining.ids))))
    with pytest.raises(LeakError, match="joins training in a refit, but is already there"):
        replace(timed, joining=taken).check()


def test_a_run_keeps_the_times_of_its_interactions_and_an_update_adds_new_ones(
    tmp_path: Path,
) -> None:
    data = growing(5, 400)
    when = times_of(data)
    split = ir.split_by_time(data)
    ir.train(split, ir.models.EASE(), out=tmp_path / "r")
    run = ir.Run.load(tmp_path / "r")
    assert run.times is not None

    def stored(run: ir.Run) -> dict[Pair, float]:
        coo, users, items = run.train.tocoo(), run.user_ids.ids.tolist(), run.item_ids.ids.tolist()
        cells = zip(coo.row, coo.col, run.times, strict=True)  # type: ignore[arg-type]
        return {(str(users[r]), int(items[c])): float(t) for r, c, t in cells}

    known = stored(run)
    assert known == {pair: when[pair] for pair in known}
    seen = next(iter(known))
    fresh = pl.DataFrame(
        {
            "user": ["eve", "eve", seen[0]],
            "item": [seen[1], 999, seen[1]],
            "timestamp": [70, 80, 90],
        }
    )
    newer = ir.update(run, fresh, out=tmp_path / "newer")
    expected = {**known, ("eve", seen[1]): 70.0, ("eve", 999): 80.0, seen: 90.0}
    assert stored(newer) == stored(ir.Run.load(tmp_path / "newer")) == expected
    undated, latest = stored(ir.update(run, fresh.drop("timestamp"))), max(known.values())
    assert undated == {**expected, ("eve", seen[1]): latest, ("eve", 999): latest, seen: latest}
    assert ir.train(replace(split, times=None), ir.models.EASE()).times is None


def test_settings_of_older_runs_mean_what_was_fixed_then() -> None:
    def current(**split: Any) -> dict[str, Any]:
        return current_config({"split": split})["split"]

    assert current(strategy="interactions", seed=1)["rounding"] == "nearest"
    assert current(strategy="users", rounding="random")["rounding"] == "random"
    assert current(strategy="rolling")["valid_by"] == "random"
    assert current(strategy="time")["new_users"] == "drop"
    assert current(strategy="all", seed=0) == {"strategy": "all", "seed": 0}
    assert current(strategy="last") == {"strategy": "last"}


def test_an_older_time_split_is_made_again() -> None:
    """The oracle is the code of release 0.2: all users have rows, those without a past no part."""
    data = growing(6, 400)
    when = times_of(data)
    old = {"strategy": "time", "seed": 0, "valid": 0.1, "test": 0.2, "unseen_items": "keep"}
    split = make_split(current_config({"split": old}), data)
    assert split.user_ids.ids.tolist() == data.user_ids.ids.tolist()
    assert split.joining is None
    begins = min(when[pair] for pair in pairs(split, split.test.target, split.test.ids))
    known = {user for (user, _), t in when.items() if t < begins}
    active = {user for (user, _), t in when.items() if t >= begins}
    assert set(split.test.ids.tolist()) == known & active
    assert not split.is_new().any()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.35])
def test_random_rounding_holds_out_a_share_in_proportion(size: int, share: float) -> None:
    """The mean over many users is the share itself; the bound is six standard errors."""
    users = 4000
    rng = np.random.default_rng(size)
    rows = np.repeat(np.arange(users), size)
    columns = np.concatenate([rng.choice(20, size, replace=False) for _ in range(users)])
    frame = pl.DataFrame({"user": rows, "item": columns})
    other = pl.DataFrame({"user": np.full(20, users), "item": np.arange(20)})
    data = ir.read(pl.concat([frame, other]))
    held = ir.split_interactions(data, test=share, valid=0.0).test
    counts = np.zeros(users)
    known = held.ids < users
    counts[held.ids[known]] = np.diff(held.target.indptr)[known]
    assert counts.max() < size or size == 1  # at least one item stays
    if size == 1:
        assert counts.max() == 0
        return
    assert set(counts.tolist()) <= {np.floor(share * size), np.ceil(share * size)}
    assert abs(counts.mean() - share * size) < 6 * 0.5 / np.sqrt(users)
    nearest = ir.split_interactions(data, test=share, valid=0.0, rounding="nearest").test
    own = np.diff(nearest.target.indptr)[nearest.ids < users]
    assert set(own.tolist()) <= {min(int(np.floor(share * size + 0.5)), size - 1)}


def test_rounding_is_checked_and_stored() -> None:
    data = ir.load("synthetic:users=60,items=80,interactions=900")
    for split in (ir.split_interactions, ir.split_users, ir.split_items, ir.split_by_time):
        assert split(data).settings["rounding"] == "random"
        assert split(data, rounding="nearest").settings["rounding"] == "nearest"
        with pytest.raises(ItemfoldError, match="'rounding' must be random or nearest, got 'up'"):
            split(data, rounding="up")
    assert ir.keep_all(data, valid=0.1).settings["rounding"] == "random"


def test_a_final_model_is_validated_on_the_latest_interactions_where_there_are_times() -> None:
    data = growing(7, 400)
    when = times_of(data)
    split = ir.keep_all(data, valid=0.2)
    assert split.settings["valid_by"] == "time"
    assert split.valid is not None
    assert len(split.test) == 0
    train = pairs(split, split.train, split.user_ids)
    assert max(when[p] for p in train) < min(
        when[p] for p in pairs(split, split.valid.target, split.valid.ids)
    )
    whole = split.refit()
    assert pairs(whole, whole.train, whole.user_ids) == set(when)
    assert ir.keep_all(replace(data, times=None), valid=0.2).settings["valid_by"] == "random"
    run = ir.fit(data, ir.models.EASE(), progress=False).run
    assert run.config["split"]["valid_by"] == "time"
    assert run.train.nnz == len(data)
    known = ir.fit(data, ir.models.MF(dim=4), progress=False, budget=1).run
    assert known.config["split"]["valid_by"] == "random"
    config = {"split": {"strategy": "all", "valid": 0.1}, "model": {"name": "mf", "dim": 4}}
    final = run_config({**config, "train": {"epochs": 1}}, data=data)
    assert final.config["split"]["valid_by"] == "random"
