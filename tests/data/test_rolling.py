"""Rolling windows: training never sees the future; the oracle is a loop over the interactions."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.interactions import Interactions
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import make_split


def timed(seed: int, count: int = 200, moments: int = 60) -> Interactions:
    """Random interactions; users and items become more with time."""
    rng = np.random.default_rng(seed)
    when = rng.integers(0, moments, count)
    user, item = (rng.integers(0, 5 + 20 * when // moments) for _ in range(2))
    return ir.read(pl.DataFrame({"user": user, "item": item, "timestamp": when}))


def pairs(matrix, users, items) -> set[tuple[int, int]]:
    rows, columns = matrix.nonzero()
    return {(int(users[u]), int(items[i])) for u, i in zip(rows, columns, strict=True)}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 500), windows=st.integers(1, 4), start=st.sampled_from([0.4, 0.5, 0.7]))
def test_a_window_knows_the_past_alone(seed: int, windows: int, start: float) -> None:
    data = timed(seed)
    assert data.times is not None
    when = {
        (int(data.user_ids.ids[u]), int(data.item_ids.ids[i])): t
        for u, i, t in zip(data.users, data.items, data.times, strict=True)
    }
    ends = []
    for split in ir.split_rolling(data, windows, start=start, seed=seed):
        whole, items = split.refit(), split.item_ids.ids
        known = pairs(whole.train, whole.user_ids.ids, items)
        targets = pairs(split.test.target, split.test.ids, items)
        begin = min(t for pair, t in when.items() if pair not in known and t > -1)
        assert known == {pair for pair, t in when.items() if t < begin}  # all of the past
        assert all(when[pair] >= begin for pair in targets)
        assert set(items.tolist()) == {item for _, item in known}
        new = split.is_new()
        old_ids, new_ids = set(split.test.ids[~new].tolist()), set(split.test.ids[new].tolist())
        assert old_ids <= {user for user, _ in known}
        assert not new_ids & {user for user, _ in known}
        shown = pairs(split.test.history, split.test.ids, items)
        for user in new_ids:  # the history of a new user is older than its targets
            earlier = [when[pair] for pair in shown if pair[0] == user]
            assert max(earlier) < min(when[pair] for pair in targets if pair[0] == user)
        for user in old_ids:
            assert {p for p in shown if p[0] == user} == {p for p in known if p[0] == user}
        ends.append((begin, max(when[pair] for pair in targets)))
    assert ends == sorted(ends)
    assert all(last < begin for (_, last), (begin, _) in pairwise(ends))


def test_items_and_users_of_the_window_that_cannot_be_found_are_reported() -> None:
    rows = [("a", 1, 0), ("b", 2, 1), ("a", 2, 2), ("c", 1, 2), ("a", 9, 3), ("c", 2, 3)]
    rows += [("d", 1, 3)]
    data = ir.read(pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row"))
    (split,) = ir.split_rolling(data, 1, start=0.29, valid=0.0)
    assert split.test.ids.tolist() == ["a", "c"]
    text = " ".join(split.notes)
    assert "left out: 1 of 5 (20.0%)" in text
    assert "New users in the test period: 2, folded in with the earlier half" in text
    assert "; left out for too few interactions: 1." in text
    (known,) = ir.split_rolling(data, 1, start=0.29, valid=0.0, new_users="drop")
    assert known.test.ids.tolist() == ["a"]
    assert "left out: 2." in known.notes[-1]


def test_a_window_is_made_again_from_its_settings() -> None:
    data = timed(3)
    for split in ir.split_rolling(data, 3, seed=5):
        again = make_split({"split": split.settings}, data)
        assert again.settings == split.settings
        assert (again.train != split.train).nnz == 0
        assert (again.test.target != split.test.target).nnz == 0


def test_a_model_can_be_trained_on_a_window_and_folds_new_users_in() -> None:
    split = ir.split_rolling(timed(1, 400), 2)[0]
    assert (split.test.users < 0).any()
    run = ir.train(split, ir.models.EASE())
    assert run.metrics["users"]["judged"] == len(split.test)
    with pytest.raises(ItemfoldError, match=r'cannot score the new users.*new_users="drop"'):
        ir.train(split, ir.models.MF(dim=4), epochs=1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"windows": 0}, "'windows' must be a positive integer"),
        ({"start": 1.0}, "'start' must be a fraction in"),
        ({"new_users": "keep"}, "'new_users' must be"),
        ({"windows": 5000}, "'windows' must be smaller"),
    ],
)
def test_bad_arguments_are_rejected(options, problem) -> None:
    with pytest.raises(ItemfoldError, match=problem):
        ir.split_rolling(timed(0), **options)
    with pytest.raises(ItemfoldError, match="'window' must be at most"):
        ir.split_window(timed(0), windows=2, window=3)


def test_data_without_times_is_rejected() -> None:
    with pytest.raises(ItemfoldError, match="split_rolling needs timestamps"):
        ir.split_rolling(ir.read(pl.DataFrame({"user": [1, 2], "item": [1, 2]})))


def test_runs_of_different_windows_are_not_compared() -> None:
    from itemfold.evaluation.compare import compare_runs

    splits = ir.split_rolling(timed(1, 400), 2)
    runs = {str(n): ir.train(split, ir.models.EASE()) for n, split in enumerate(splits)}
    with pytest.raises(ItemfoldError, match="one time window"):
        compare_runs(runs)
