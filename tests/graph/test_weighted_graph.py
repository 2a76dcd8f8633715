"""Message passing with weights, against dense matrices."""

import numpy as np
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import bipartite, dense_adjacency, random_matrix, seeded

from itemfold.graph.graph import Graph, fold_adjacency
from itemfold.graph.propagation import neighbour_sum, propagate, propagate_items, propagate_layers

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def weighted(train: sp.csr_array, seed: int = 0) -> sp.csr_array:
    out = train.copy()
    out.data = np.random.default_rng(seed).uniform(0.01, 5, train.nnz).astype(np.float32)
    return out


def normalised(train: sp.csr_array) -> np.ndarray:
    dense = dense_adjacency(train).astype(np.float64)
    degree = dense.sum(1)
    root = np.divide(1, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree))
    return root[:, None] * dense * root


@given(bipartite(), st.integers(0, 3))
def test_sums_equal_dense_products_and_so_do_gradients(train, seed):
    train = weighted(train, seed)
    graph = Graph.from_csr(train)
    dense, scaled = dense_adjacency(train).astype(np.float64), normalised(train)
    for product, matrix in (
        (neighbour_sum, dense),
        (propagate, scaled),
        (lambda g, x: propagate_layers(g, x, 2), np.eye(len(dense)) + scaled + scaled @ scaled),
    ):
        x = torch.randn(graph.n_nodes, 3, generator=seeded(seed), requires_grad=True)
        out, slope = product(graph, x), torch.randn(graph.n_nodes, 3, generator=seeded(1))
        np.testing.assert_allclose(out.detach(), matrix @ x.detach().numpy(), **CLOSE)
        out.backward(slope)
        np.testing.assert_allclose(x.grad, matrix.T @ slope.numpy(), **CLOSE)


def test_users_without_vectors_sum_over_weighted_items():
    train = weighted(random_matrix(12, 9, 0.4))
    graph, scaled = Graph.from_csr(train), normalised(train)
    items = torch.randn(9, 4, generator=seeded())
    users, out = propagate_items(graph, items, 2)
    base = np.concatenate([np.zeros((12, 4)), items.numpy()])
    expected = base + scaled @ base + scaled @ scaled @ base
    np.testing.assert_allclose(users, expected[:12], **CLOSE)
    np.testing.assert_allclose(out, expected[12:], **CLOSE)


def test_equal_weights_of_one_are_the_graph_without_weights():
    train = random_matrix(12, 9, 0.4)
    assert Graph.from_csr(train).weight is None
    assert fold_adjacency(train, torch.ones(9)).weight is None


def test_the_scale_of_all_weights_does_not_matter_to_propagation():
    train = weighted(random_matrix(12, 9, 0.4))
    small = train * np.float32(1e-3)  # weighted degrees below 1
    x = torch.randn(21, 4, generator=seeded())
    one, two = (propagate(Graph.from_csr(sp.csr_array(m)), x) for m in (train, small))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_dropped_edges_keep_the_weights_of_the_others():
    graph = Graph.from_csr(weighted(random_matrix(20, 15, 0.5)))
    dropped = graph.drop_edges(0.3, seeded())
    before, after = graph.interactions().toarray(), dropped.interactions().toarray()
    assert 0 < (after > 0).sum() < (before > 0).sum()
    assert (after[after > 0] == before[after > 0]).all()
    np.testing.assert_allclose(dropped.degree[:20], after.sum(1), rtol=1e-5)
    np.testing.assert_allclose(dropped.degree[20:], after.sum(0), rtol=1e-5)


def test_a_folded_in_user_counts_dislikes_by_their_size():
    history = sp.csr_array(np.array([[1.0, -0.5, 0.0, 2.0]], dtype=np.float32))
    adjacency = fold_adjacency(history, torch.ones(4))
    assert adjacency.degree.tolist() == [3.5]
    x = torch.randn(4, 3, generator=seeded())
    np.testing.assert_allclose(neighbour_sum(adjacency, x), history @ x.numpy(), **CLOSE)
