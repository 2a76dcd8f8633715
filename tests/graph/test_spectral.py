"""The truncated SVD of the normalised interactions, compared with numpy's and scipy's."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from scipy.sparse.linalg import svds
from small import bipartite, normalised, random_matrix, seeded

from itemfold.graph import graph as graph_module
from itemfold.graph.graph import Graph
from itemfold.graph.spectral import SingularVectors, truncated_svd


def low_rank(users: int, items: int, rank: int, seed: int = 0) -> sp.csr_array:
    """Interactions in overlapping blocks, so that the first singular values stand out."""
    rng = np.random.default_rng(seed)
    groups = rng.random((users, rank)) < 0.3
    liked = groups.astype(float) @ (rng.random((rank, items)) < 0.3) > 0
    return sp.csr_array((liked & (rng.random((users, items)) < 0.6)).astype(np.float32))


def sides(train: sp.csr_array) -> np.ndarray:
    """D_U^-½ X D_I^-½ in float64."""
    return normalised(train)[: train.shape[0], train.shape[0] :]


def found(train: sp.csr_array, dim: int, **settings: int) -> SingularVectors:
    return truncated_svd(Graph.from_csr(train), dim, seeded(), **settings)


@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_spaces_are_those_of_scipy(weighted: bool) -> None:
    train = low_rank(120, 90, 12)
    if weighted:
        train.data = np.random.default_rng(1).uniform(0.2, 3, train.nnz).astype(np.float32)
    own = found(train, 6, iterations=30)
    left, values, right = svds(sides(train), k=6, random_state=0)
    np.testing.assert_allclose(own.values, values[::-1], rtol=1e-4)
    for vectors, expected in ((own.users, left), (own.items, right.T)):
        cosines = np.linalg.svd(expected.T @ vectors.double().numpy(), compute_uv=False)
        np.testing.assert_allclose(cosines, 1, atol=1e-4)  # of the angles between the spaces
    approximation = (own.users * own.values) @ own.items.T
    expected = left @ np.diag(values) @ right
    np.testing.assert_allclose(approximation, expected, atol=1e-4)


def test_the_default_iterations_keep_nearly_all_of_what_can_be_kept() -> None:
    train = random_matrix(300, 200, 0.05)  # no gap after any singular value: the hardest case
    best = np.linalg.svd(sides(train), compute_uv=False)[:16]
    assert found(train, 16).values.square().sum() > 0.98 * (best**2).sum()


@given(bipartite())
def test_more_columns_than_the_rank(train: sp.csr_array) -> None:
    own, dim = found(train, 10), 10
    exact = np.linalg.svd(sides(train), compute_uv=False)
    exact = np.pad(exact, (0, dim))[:dim]
    np.testing.assert_allclose(own.values, np.where(exact > 1e-3, exact, 0), atol=2e-4)
    rank = int((own.values > 0).sum())
    for vectors in (own.users, own.items):
        expected = np.diag([1.0] * rank + [0.0] * (dim - rank))
        np.testing.assert_allclose(vectors.T @ vectors, expected, atol=1e-3)
    np.testing.assert_allclose((own.users * own.values) @ own.items.T, sides(train), atol=2e-3)


def test_nodes_without_interactions_have_zeros() -> None:
    own = found(random_matrix(30, 20, 0.2), 4)  # the last user and item have none
    assert not own.users[-1].any()
    assert not own.items[-1].any()


def test_the_same_seed_gives_the_same_bits() -> None:
    train = low_rank(50, 40, 5)
    one, two = found(train, 8), found(train, 8)
    assert torch.equal(one.users, two.users)
    assert torch.equal(one.items, two.items)


def test_a_large_graph_goes_by_blocks_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = low_rank(80, 60, 6)
    small = found(train, 5, iterations=20)
    monkeypatch.setattr(graph_module, "LARGE", 1)
    assert Graph.from_csr(train).blocked
    large = found(train, 5, iterations=20)
    torch.testing.assert_close(
        (large.users * large.values) @ large.items.T,
        (small.users * small.values) @ small.items.T,
        rtol=0,
        atol=1e-4,
    )
