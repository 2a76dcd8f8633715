"""Item–item products and sparse weights: every way to compute them equals numpy."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import random_matrix

from itemfold.models import RLAE, item_item
from itemfold.models.item_item import SparseWeights, gram_matrix

N_ITEMS = 30


def weighted(rows: int, seed: int) -> sp.csr_array:
    generator = np.random.default_rng(seed)
    matrix = generator.random((rows, N_ITEMS)) * (generator.random((rows, N_ITEMS)) < 0.2)
    return sp.csr_array(matrix.astype(np.float32))


@pytest.mark.parametrize("speed", [0, 10**9])  # sparse products, sums of dense rows
@pytest.mark.parametrize("rows", [1, 70])
def test_gram_matrices_equal_numpy(monkeypatch: pytest.MonkeyPatch, speed: int, rows: int) -> None:
    monkeypatch.setattr(item_item, "DENSE_SPEED", speed)
    monkeypatch.setattr(item_item, "DENSE", (100, 100))  # several blocks of columns
    monkeypatch.setattr(item_item, "BLOCK", 7)
    matrix = weighted(rows, 0)
    expected = matrix.toarray().T @ matrix.toarray()
    np.testing.assert_allclose(gram_matrix(matrix).numpy(), expected, rtol=1e-5, atol=1e-6)


def with_weights(weights: sp.csr_array) -> SparseWeights:
    model = SparseWeights()
    model.setup(weighted(5, 0), inductive=True, generator=torch.Generator())
    model.keep_all(torch.from_numpy(weights.toarray()))
    return model


@pytest.mark.parametrize("rows", [1, item_item.BATCH, 2 * item_item.BATCH + 3])
@pytest.mark.parametrize("largest", [0, 2**20])  # never dense, dense
def test_scores_of_every_batch_equal_numpy(
    monkeypatch: pytest.MonkeyPatch, rows: int, largest: int
) -> None:
    monkeypatch.setattr(item_item, "DENSE_WEIGHTS", largest)
    weights, history = weighted(N_ITEMS, 1), weighted(rows, 2)
    found = with_weights(weights).scores(history, np.full(rows, -1))
    expected = history.toarray() @ weights.toarray()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_new_weights_replace_the_dense_copy() -> None:
    model, history = with_weights(weighted(N_ITEMS, 1)), weighted(item_item.BATCH, 2)
    model.scores(history, np.full(item_item.BATCH, -1))
    other = weighted(N_ITEMS, 3)
    model.keep_all(torch.from_numpy(other.toarray()))
    found = model.scores(history, np.full(item_item.BATCH, -1))
    np.testing.assert_allclose(found.numpy(), history @ other.toarray(), rtol=1e-5, atol=1e-6)


@given(keep=st.integers(1, N_ITEMS))
def test_the_largest_weights_of_each_item_are_stored(keep: int) -> None:
    train = random_matrix(40, N_ITEMS, 0.3)
    whole, pruned = (RLAE(l2=5.0, keep=k) for k in (N_ITEMS, keep))
    for model in (whole, pruned):
        model.setup(train, inductive=True, generator=torch.Generator())
        model.solve(train)
    weights = whole._matrix().toarray()
    size = np.abs(weights)
    is_kept = size >= -np.sort(-size, axis=0)[keep - 1]
    np.testing.assert_allclose(pruned._matrix().toarray(), weights * is_kept, rtol=1e-5)
