import operator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.sources import read
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.splitters import SPLITS, keep_all, split_interactions, split_users
from itemfold.data.splitting.thinning import cold_start
from itemfold.data.splitting.time_splits import leave_last_out, split_by_time
from itemfold.errors import ItemfoldError, LeakError
from itemfold.evaluation.evaluate import evaluate
from itemfold.models import Model


def interactions(n_users: int = 30, n_items: int = 40, n: int = 400, seed: int = 0) -> Interactions:
    """Random unique pairs in random order; every user has one, ids are not the rows."""
    rng = np.random.default_rng(seed)
    keys = rng.choice(n_users * n_items, min(n, n_users * n_items), replace=False)
    first = np.arange(n_users) * n_items + rng.integers(0, n_items, n_users)
    keys = rng.permutation(np.union1d(keys, first))
    return Interactions(
        users=(keys // n_items).astype(np.int32),
        items=(keys % n_items).astype(np.int32),
        user_ids=IdMap(np.array([f"u{i}" for i in range(n_users)])),
        item_ids=IdMap(np.arange(n_items, dtype=np.int64) * 10 + 7),
        times=rng.integers(0, 50, len(keys)),
        titles=np.array([f"title {i * 10 + 7}" for i in range(n_items)]),
    )


def pairs(matrix: sp.csr_array, users: Any, items: Any) -> set[tuple[Any, Any]]:
    coo = matrix.tocoo()
    return {(users[r], items[c]) for r, c in zip(coo.row, coo.col, strict=True)}


def parts(split: Split) -> list[set[tuple[Any, Any]]]:
    """The interactions of each part by external ids, including the fold-in parts."""
    items = split.item_ids.ids.tolist()
    items += [] if split.new_items is None else split.new_items.ids.tolist()
    out = [pairs(split.train, split.user_ids.ids.tolist(), items)]
    for held in (split.valid, split.test):
        if held is not None:
            out.append(pairs(held.target, held.ids.tolist(), items))
            if split.protocol == "inductive":
                out.append(pairs(held.history, held.ids.tolist(), items))
    return out


def everything(data: Interactions) -> set[tuple[Any, Any]]:
    users, items = data.user_ids.ids.tolist(), data.item_ids.ids.tolist()
    return {(users[u], items[i]) for u, i in zip(data.users, data.items, strict=True)}


def same(a: Split, b: Split) -> bool:
    return parts(a) == parts(b)


@pytest.mark.parametrize("strategy", sorted(SPLITS.keys() - {"all", "items", "rolling"}))
@settings(max_examples=15, deadline=None)
@given(st.integers(4, 25), st.integers(3, 30), st.integers(20, 300), st.integers(0, 9))
def test_parts_are_disjoint_and_losses_are_noted(
    strategy: str, n_users: int, n_items: int, n: int, seed: int
) -> None:
    data = interactions(n_users, n_items, n, seed)
    try:
        split = SPLITS[strategy](data, seed=seed, unseen_items="keep")
    except ItemfoldError as error:
        assert "leaves no" in str(error) or "must hold out" in str(error)  # noqa: PT017
        return
    found = parts(split)
    union = set().union(*found)
    assert sum(map(len, found)) == len(union)
    assert union <= everything(data)
    if strategy in ("interactions", "last"):
        assert union == everything(data)
    elif union != everything(data):
        assert split.notes
    split.check()


def test_a_split_cannot_be_thinned_twice() -> None:
    thin = cold_start(split_users(interactions()), 0.5)
    with pytest.raises(ItemfoldError, match="must not be thinned already"):
        cold_start(thin, 0.5)


@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_keep_all_includes_given_test_parts(protocol: Any) -> None:
    data = interactions(50, 30, 700)
    data = replace(data, held_out=np.arange(len(data)) % 3 == 0)
    split = keep_all(data, protocol=protocol)
    assert [part for part in parts(split) if part] == [everything(data)]
    assert split.protocol == protocol
    assert split.valid is None
    with pytest.raises(ItemfoldError, match="'protocol' must be transductive or inductive"):
        keep_all(data, protocol="both")  # type: ignore[arg-type]


def test_user_split_rebuilds_the_whole_and_training_users_keep_everything() -> None:
    data = interactions(50, 30, 700)
    split = split_users(data, seed=3, unseen_items="keep")
    assert set().union(*parts(split)) == everything(data)
    degree = dict.fromkeys(data.user_ids.ids.tolist(), 0)
    for user, _ in everything(data):
        degree[user] += 1
    held = split.valid, split.test
    assert [len(h.ids) for h in held if h] == [5, 5]
    assert split.n_users == 40
    for row, user in enumerate(split.user_ids.ids.tolist()):
        assert split.train.indptr[row + 1] - split.train.indptr[row] == degree[user]
    for h in held:
        assert h is not None
        assert (h.users == -1).all()
        for row, user in enumerate(h.ids.tolist()):
            shown = h.history.indptr[row + 1] - h.history.indptr[row]
            assert 1 <= shown < degree[user]
            assert abs(shown - 0.8 * degree[user]) < 1 or shown == degree[user] - 1


@pytest.mark.parametrize("split", [split_interactions, split_users])
def test_histories_of_one_item_cannot_be_split_and_the_reason_is_reported(split: Any) -> None:
    rows = [(f"u{n}", f"i{n % 4}") for n in range(40)]
    data = read(pd.DataFrame(rows, columns=["user", "item"]))
    with pytest.raises(ItemfoldError, match=r"no user with a test item: .* longest history has 1$"):
        split(data, seed=0)


@pytest.mark.parametrize("seed", range(8))
def test_few_short_histories_have_something_to_validate_on(seed: int) -> None:
    data = read(pd.DataFrame({"user": [1, 1, 2, 2, 3], "item": [1, 2, 1, 3, 1]}))
    for split in (keep_all(data, valid=0.1, seed=seed), split_interactions(data, seed=seed)):
        held = split.test if split.valid is None else split.valid
        assert held.target.nnz > 0
        assert set(held.ids.tolist()) <= {1, 2}
    assert keep_all(data, valid=0.0, seed=seed).valid is None


@pytest.mark.parametrize("times", [None, np.arange(9.0)])
def test_nothing_to_validate_on_is_explained(times: Any) -> None:
    data = replace(read(pd.DataFrame({"user": range(9), "item": [0, 1, 2] * 3})), times=times)
    with pytest.raises(ItemfoldError, match=r"validation item: .* the longest history has 1"):
        keep_all(data, valid=0.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(6, 25), st.integers(5, 40), st.integers(5, 100), st.integers(0, 9))
def test_every_held_out_user_keeps_a_fold_in_item_after_unseen_items_left(
    n_users: int, n_items: int, n: int, seed: int
) -> None:
    data = interactions(n_users, n_items, n, seed)
    try:
        split = split_users(data, seed=seed, test=0.3, valid=0.3)
    except ItemfoldError as error:
        assert "leaves no user" in str(error)  # noqa: PT017
        return
    assert (np.bincount(split.train.indices, minlength=split.n_items) > 0).all()
    assert split.titles is not None
    assert split.titles.tolist() == [f"title {i}" for i in split.item_ids.ids.tolist()]
    for held in (split.valid, split.test):
        if held is not None:
            assert (np.diff(held.history.indptr) >= 1).all()
            assert (np.diff(held.target.indptr) >= 1).all()


def test_given_test_part_is_used_and_validation_comes_out_of_training() -> None:
    data = interactions()
    held_out = np.random.default_rng(1).random(len(data)) < 0.2
    split = split_interactions(replace(data, held_out=held_out), seed=0, valid=0.2)
    users, items = data.user_ids.ids.tolist(), data.item_ids.ids.tolist()
    coded = zip(data.users, data.items, held_out, strict=True)
    given_test = {(users[u], items[i]) for u, i, h in coded if h}
    train, valid, test = parts(split)
    assert test == given_test
    assert train | valid == everything(data) - given_test
    assert 0.15 < len(valid) / len(train | valid) < 0.25
    refit = split.refit()
    assert refit.valid is None
    assert parts(refit) == [train | valid, test]
    assert (refit.train.data == 1).all()
    refit.check()


def test_histories_hold_all_interactions_known_at_evaluation() -> None:
    split = split_interactions(interactions(), seed=2)
    items, users = split.item_ids.ids.tolist(), split.user_ids.ids.tolist()
    train, valid, _ = parts(split)
    assert split.valid is not None
    for held, known in ((split.valid, train), (split.test, train | valid)):
        assert held.ids.tolist() == [users[u] for u in held.users]
        ids = held.ids.tolist()
        assert pairs(held.history, ids, items) == {p for p in known if p[0] in set(ids)}


def test_time_split_puts_no_later_interaction_before_an_earlier_part() -> None:
    data = interactions()
    assert data.times is not None
    split = split_by_time(data, valid=0.2, test=0.2)
    users, items = data.user_ids.ids.tolist(), data.item_ids.ids.tolist()
    coded = zip(data.users, data.items, data.times, strict=True)
    when = {(users[u], items[i]): t for u, i, t in coded}
    latest = [max(when[p] for p in part) for part in parts(split)]
    earliest = [min(when[p] for p in part) for part in parts(split)]
    assert latest[0] < earliest[1]
    assert latest[1] < earliest[2]


def test_last_item_is_the_test_item() -> None:
    data = interactions()
    assert data.times is not None
    split = leave_last_out(data)
    _, valid, test = parts(split)
    users, items = data.user_ids.ids.tolist(), data.item_ids.ids.tolist()
    for row, user in enumerate(users):
        interactions_of_user = [
            (t, items[i])
            for u, i, t in zip(data.users, data.items, data.times, strict=True)
            if u == row
        ]
        interactions_of_user.sort()
        last = [item for owner, item in test if owner == user]
        before = [item for owner, item in valid if owner == user]
        assert len(last) == (len(interactions_of_user) >= 2)
        assert len(before) == (len(interactions_of_user) >= 3)
        when = {item: t for t, item in interactions_of_user}
        assert all(when[item] == interactions_of_user[-1][0] for item in last)
        assert all(when[item] == interactions_of_user[-2][0] for item in before)


@pytest.mark.parametrize("kind", ["seconds", "text", "dates"])
def test_moments_within_a_second_have_an_order(kind: str) -> None:
    text = [f"2024-01-31 10:00:00.{n:06}" for n in range(1, 13)]
    seconds = [1706695200 + n / 1e6 for n in range(1, 13)]
    times = {"seconds": seconds, "text": text, "dates": pd.to_datetime(text)}[kind]
    columns = {"user": [1, 2] * 6, "item": [3, 3, 5, 5, 1, 1, 6, 6, 4, 4, 2, 2]}
    data = read(pd.DataFrame({**columns, "time": times}))
    assert data.times is not None
    np.testing.assert_allclose(np.sort(data.times), seconds, rtol=0, atol=1e-6)
    for seed in range(5):
        _, valid, test = parts(leave_last_out(data, seed=seed))
        assert (valid, test) == ({(1, 4), (2, 4)}, {(1, 2), (2, 2)})
    assert parts(split_by_time(data, test=0.25))[2] == {(2, 4), (1, 2), (2, 2)}


@pytest.mark.parametrize("strategy", sorted(SPLITS))
def test_a_seed_repeats_and_the_order_of_rows_does_not_matter(strategy: str) -> None:
    data = interactions(40, 60, 900)
    order = np.random.default_rng(5).permutation(len(data))
    assert data.times is not None
    shuffled = replace(
        data, users=data.users[order], items=data.items[order], times=data.times[order]
    )
    assert same(SPLITS[strategy](data, seed=1), SPLITS[strategy](data, seed=1))
    assert same(SPLITS[strategy](data, seed=1), SPLITS[strategy](shuffled, seed=1))
    if strategy in ("interactions", "users"):
        assert not same(SPLITS[strategy](data, seed=1), SPLITS[strategy](data, seed=2))
    assert SPLITS[strategy](data, seed=1).settings["strategy"] == strategy


def test_items_that_were_thinned_out_are_ranked_or_not_but_never_known() -> None:
    """Models are the same; only the lists differ, and a perfect one finds its targets in both."""
    data = interactions(40, 100, 2000)
    split = split_interactions(data, seed=0)
    kept, whole = (cold_start(split, 0.2, seed=1, exclude=how) for how in ("kept", "all"))
    for name in ("train", "valid.target", "valid.history", "test.target", "test.history"):
        one, two = (operator.attrgetter(name)(each) for each in (kept, whole))
        assert (one != two).nnz == 0
    assert kept.test.excluded is None
    assert whole.test.excluded is not None
    assert whole.valid is not None
    assert whole.valid.excluded is not None
    before = split.refit().train  # training and validation items as they were
    assert (whole.test.excluded != before[whole.test.users]).nnz == 0
    assert (whole.valid.excluded != split.train[whole.valid.users]).nnz == 0
    whole.check()
    for each, hidden in ((kept, False), (whole, True)):
        scores = np.arange(100.0)[::-1] + 1000 * before.toarray()  # what was liked comes first
        found = evaluate(Fixed(scores), each, metrics=["recall@100", "ndcg@1"])
        assert found.metrics["recall@100"] == 1.0  # no target is hidden
        left_out = [
            set(before[[u]].indices) - set(kept.test.history[[n]].indices)
            for n, u in enumerate(kept.test.users)
        ]
        assert all(left_out)  # so the first place is such an item, unless they are not ranked
        assert (found.metrics["ndcg@1"] > 0) == hidden
    assert cold_start(split_users(data), 0.5, exclude="all").test.excluded is None
    with pytest.raises(ItemfoldError, match="'exclude' must be kept or all, got 'some'"):
        cold_start(split, exclude="some")  # type: ignore[arg-type]


class Fixed(Model):
    """Known scores for every user."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = table

    def scores(self, history: Any, users: Any) -> torch.Tensor:
        return torch.from_numpy(self.table[users]).float()


def test_cold_start_keeps_a_share_of_every_user_and_the_test_targets() -> None:
    split = split_interactions(interactions(40, 100, 2000), seed=0)
    thin = cold_start(split, keep=0.2, seed=1)
    before, after = np.diff(split.train.indptr), np.diff(thin.train.indptr)
    assert (after == np.maximum(np.floor(0.2 * before + 0.5), 1)).all()
    assert pairs(thin.train, range(40), range(100)) <= pairs(split.train, range(40), range(100))
    assert (thin.test.target != split.test.target).nnz == 0
    assert split.valid is not None
    assert thin.valid is not None
    assert thin.valid.target.nnz < 0.4 * split.valid.target.nnz
    refit = thin.refit()
    assert (refit.train[thin.test.users] != thin.test.history).nnz == 0
    thin.check()
    same_users = cold_start(split_users(interactions(40, 100, 2000)), keep=0.5)
    assert (same_users.test.history.nnz, same_users.test.target.nnz) == (
        split_users(interactions(40, 100, 2000)).test.history.nnz,
        split_users(interactions(40, 100, 2000)).test.target.nnz,
    )


def plant(held: HeldOut, part: str, row: int, item: int) -> HeldOut:
    matrix = getattr(held, part).tolil()
    matrix[row, item] = 1
    return replace(held, **{part: sp.csr_array(matrix)})


def first_target(held: HeldOut) -> int:
    return int(held.target.indices[0])


def test_the_check_finds_each_planted_leak() -> None:
    split = split_interactions(interactions(), seed=0)
    assert split.valid is not None
    item, user = first_target(split.test), split.test.users[0]
    train = split.train.tolil()
    train[user, item] = 1
    with pytest.raises(LeakError, match=r"test target .* is also in training"):
        replace(split, train=sp.csr_array(train)).check()
    with pytest.raises(LeakError, match="own history"):
        replace(split, test=plant(split.test, "history", 0, item)).check()
    row = int(np.flatnonzero(split.valid.users == user)[0])
    with pytest.raises(LeakError, match="a validation target"):
        replace(split, valid=plant(split.valid, "target", row, item)).check()
    with pytest.raises(LeakError, match="validation history"):
        replace(split, valid=plant(split.valid, "history", row, item)).check()
    wrong = plant(split.valid, "history", 0, first_target(split.valid))
    with pytest.raises(LeakError, match=r"validation target .* own history"):
        replace(split, valid=wrong).check()
    train = split.train.tolil()
    train[split.valid.users[0], first_target(split.valid)] = 1
    with pytest.raises(LeakError, match=r"validation target .* in training"):
        replace(split, train=sp.csr_array(train)).check()


def test_the_check_finds_a_training_user_among_the_unseen() -> None:
    split = split_users(interactions(), seed=0)
    ids = split.test.ids.copy()
    ids[0] = split.user_ids.ids[0]
    with pytest.raises(LeakError, match="also a training user"):
        replace(split, test=replace(split.test, ids=ids)).check()
    assert split.valid is not None
    known = replace(split.valid, users=np.zeros(len(split.valid), np.int64))
    with pytest.raises(LeakError, match="also a training user"):
        replace(split, valid=known).check()
    with pytest.raises(ItemfoldError, match="transductive"):
        split.refit()


def test_users_without_targets_are_left_out_and_noted() -> None:
    data = interactions(10, 20, 0, seed=1)  # one item each
    data = replace(
        data,
        users=np.append(data.users, [0, 0]).astype(np.int32),
        items=np.append(data.items, [(data.items[data.users == 0][0] + k) % 20 for k in (1, 2)]),
        times=None,
    )
    split = split_interactions(replace(data, items=data.items.astype(np.int32)), test=0.4, valid=0)
    assert split.valid is None
    assert split.test.ids.tolist() == ["u0"]
    assert "Users without a test item, not evaluated: 9." in split.notes


def test_a_column_left_out_is_noted_and_stops_only_a_split_that_needs_it() -> None:
    why = "x.csv, line 3: the time is missing or not finite"
    data = replace(interactions(), times=None, left_out={"time": why})
    assert f"The time column was left out: {why}." in split_interactions(data).notes
    assert f"The time column was left out: {why}." in split_users(data).notes
    for strategy in (split_by_time, leave_last_out):
        with pytest.raises(ItemfoldError, match=f"^{why}$"):
            strategy(data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: split_interactions(d, test=1.5), "'test' must be a fraction in (0, 1), got 1.5"),
        (
            lambda d: split_interactions(d, valid=1.0),
            "'valid' must be a fraction in [0, 1), got 1.0",
        ),
        (lambda d: split_users(d, fold_in=0.0), "'fold_in' must be a fraction in (0, 1), got 0.0"),
        (lambda d: split_users(d, valid=0.5, test=0.5), "must leave training users"),
        (lambda d: split_users(d, unseen_items="x"), "'unseen_items' must be keep or drop"),
        (lambda d: split_by_time(replace(d, times=None)), "needs timestamps"),
        (lambda d: leave_last_out(replace(d, times=None)), "needs timestamps"),
        (
            lambda d: cold_start(split_users(d), keep=0),
            "'keep' must be a fraction in (0, 1], got 0",
        ),
        (lambda d: cold_start(split_users(d), keep="1"), "must be a fraction in (0, 1], got '1'"),
        (lambda d: cold_start(split_users(d), seed=-1), "'seed' must be an integer of at least 0"),
        (lambda d: split_users(d, seed=-1), "'seed' must be an integer of at least 0, got -1"),
        (lambda d: leave_last_out(d, seed=0.5), "'seed' must be an integer of at least 0, got 0.5"),
        (
            lambda d: split_interactions(d, valid="0.1"),
            "'valid' must be a fraction in [0, 1), got '0.1'",
        ),
        (
            lambda d: split_users("synthetic"),
            "'data' must be what 'load' or 'read' returns, got str",
        ),
    ],
)
def test_bad_settings_get_one_sentence(call: Any, message: str) -> None:
    with pytest.raises(ItemfoldError) as caught:
        call(interactions())
    assert message in str(caught.value)
