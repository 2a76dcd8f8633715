"""Folds: every interaction, or every user, is tested in exactly one of them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from small import random_matrix

import itemfold as ir
from itemfold.data.splitting.folds import fold_entries, fold_first

DATA = ir.load("synthetic:users=90,items=60,interactions=1200")


@given(
    folds=st.integers(2, 7), seed=st.integers(0, 1000), density=st.sampled_from([0.03, 0.2, 0.9])
)
@settings(max_examples=50, deadline=None)
def test_entries_of_users_are_partitioned_evenly(folds, seed, density):
    matrix = sp.csr_array(random_matrix(25, 14, density, seed=seed))
    parts = [fold_entries(matrix, folds, n + 1, np.random.default_rng(seed)) for n in range(folds)]
    times = np.sum(parts, axis=0)
    for row in range(25):
        own = slice(matrix.indptr[row], matrix.indptr[row + 1])
        size = own.stop - own.start
        assert (times[own] == (size > 1)).all()
        counts = [int(part[own].sum()) for part in parts]
        assert max(counts) - min(counts) <= 1
        assert size < 2 or max(counts) < size  # something is left to learn from


@given(n=st.integers(1, 60), folds=st.integers(2, 9), seed=st.integers(0, 100))
def test_users_are_partitioned_evenly(n, folds, seed):
    order = np.random.default_rng(seed).permutation(n)
    tested = []
    for fold in range(1, folds + 1):
        found, count = fold_first(order, folds, fold)
        assert sorted(found) == list(range(n))
        assert n // folds <= count <= -(-n // folds)
        tested += found[:count].tolist()
    assert sorted(tested) == list(range(n))


def test_folds_of_interactions_hold_out_each_pair_once():
    pairs = []
    for fold in (1, 2, 3):
        split = ir.split_interactions(DATA, seed=4, folds=3, fold=fold, unseen_items="keep")
        rows = np.repeat(split.test.ids, np.diff(split.test.target.indptr))
        items = split.item_ids.ids[split.test.target.indices]
        pairs += zip(rows.tolist(), items.tolist(), strict=True)
        assert split.settings["folds"] == 3
    known = np.bincount(DATA.users)[DATA.users] > 1
    users = DATA.user_ids.ids[DATA.users[known]].tolist()
    items = DATA.item_ids.ids[DATA.items[known]].tolist()
    assert sorted(pairs) == sorted(zip(users, items, strict=True))


def test_folds_of_users_hold_out_each_user_once():
    splits = [ir.split_users(DATA, seed=4, folds=4, fold=n) for n in (1, 2, 3, 4)]
    tested = [user for split in splits for user in split.test.ids.tolist()]
    assert len(tested) == len(set(tested)) >= 85  # without users of a single item
    for split in splits:
        assert not set(split.test.ids.tolist()) & set(split.valid.ids.tolist())


def test_without_folds_nothing_changes():
    assert "folds" not in ir.split_users(DATA).settings
    assert "folds" not in ir.split_interactions(DATA).settings


@pytest.mark.parametrize(
    ("given_folds", "message"),
    [
        ({"folds": 3}, "'folds' and 'fold' belong together"),
        ({"fold": 1}, "'folds' and 'fold' belong together"),
        ({"folds": 1, "fold": 1}, "'folds' must be at least 2, got 1"),
        ({"folds": 3, "fold": 4}, r"'fold' must be at most 'folds' \(3\), got 4"),
        ({"folds": 3, "fold": 0}, "'fold' must be a positive integer"),
    ],
)
def test_bad_folds_are_one_sentence(given_folds, message):
    for split in (ir.split_users, ir.split_interactions):
        with pytest.raises(ir.ItemfoldError, match=message):
            split(DATA, **given_folds)
