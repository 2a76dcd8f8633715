"""The mean similarity of lists, against a loop over pairs, whichever way it is computed."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.reranking import list_similarity
from itemfold.reranking.list_similarity import mean_similarity


def by_loop(lists, rows):
    """The mean dot product of all pairs of each list."""
    out = []
    for listed in lists:
        items = [item for item in listed if item >= 0]
        pairs = [rows[a] @ rows[b] for n, a in enumerate(items) for b in items[:n]]
        out.append(np.mean(pairs) if pairs else np.nan)
    return np.array(out)


def made(seed, n_items, n_users, n_lists, k, density):
    """Unit vectors of items over users, and lists of different lengths."""
    rng = np.random.default_rng(seed)
    rows = (rng.random((n_items, n_users)) < density) * rng.random((n_items, n_users))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    lists = np.array([rng.permutation(n_items)[:k] for _ in range(n_lists)])
    length = rng.integers(0, k + 1, n_lists)
    lists[np.arange(k) >= length[:, None]] = -1
    return rows.astype(np.float32), lists


@given(
    seed=st.integers(0, 10_000),
    n_items=st.integers(2, 30),
    n_users=st.integers(1, 40),
    n_lists=st.integers(1, 12),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_it_equals_a_loop_over_pairs(seed, n_items, n_users, n_lists, density):
    rows, lists = made(seed, n_items, n_users, n_lists, min(n_items, 6), density)
    expected = by_loop(lists, rows.astype(np.float64))
    for vectors in (torch.from_numpy(rows), sp.csr_array(rows)):
        np.testing.assert_allclose(mean_similarity(lists, vectors), expected, atol=1e-6)


@pytest.mark.parametrize("way", ["_pairs_by_sums", "_pairs_by_cosines"])
@pytest.mark.parametrize("whole", [8, 1000])
def test_both_ways_agree_in_blocks_as_well(monkeypatch, way, whole):
    """Many lists of few items take the cosines, few lists of many items the sums."""
    monkeypatch.setattr(list_similarity, "BLOCK", 7)
    monkeypatch.setattr(list_similarity, "WHOLE", whole)  # 8: cosines in blocks of items
    rows, lists = made(3, 40, 60, 50, 9, 0.3)
    taken, chosen = [], getattr(list_similarity, way)
    for name in ("_pairs_by_sums", "_pairs_by_cosines"):
        monkeypatch.setattr(list_similarity, name, lambda *parts: taken.append(1) or chosen(*parts))
    found = mean_similarity(lists, sp.csr_array(rows))
    np.testing.assert_allclose(found, by_loop(lists, rows.astype(np.float64)), atol=1e-6)
    assert taken == [1]


def test_popular_items_of_many_lists_are_compared_once(monkeypatch):
    """With 200 entries an item and 500 lists of the same items, no list is summed."""
    monkeypatch.setattr(list_similarity, "_pairs_by_sums", None)
    rng = np.random.default_rng(0)
    vectors = sp.csr_array((rng.random((20, 400)) < 0.5) / 15)
    lists = np.array([rng.permutation(20)[:5] for _ in range(500)])
    assert np.isfinite(mean_similarity(lists, vectors)).all()
    monkeypatch.undo()
    monkeypatch.setattr(list_similarity, "_pairs_by_cosines", None)  # two lists, rare items
    sparse = sp.csr_array(np.eye(20, 400))
    assert mean_similarity(lists[:2], sparse).tolist() == [0, 0]


def test_lists_without_items():
    empty = np.full((3, 4), -1)
    for vectors in (torch.eye(5), sp.csr_array(np.eye(5))):
        assert np.isnan(mean_similarity(empty, vectors)).all()
