from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import bipartite, dense_adjacency, random_matrix
from torch import Tensor

from itemfold.graph.edge_ops import (
    both_ways,
    edge_dot,
    edge_sum,
    largest_source,
    row_total,
    weighted_sum,
)
from itemfold.graph.graph import Graph, fold_adjacency
from itemfold.graph.propagation import neighbour_sum, propagate, propagate_items, propagate_layers

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def vectors(rows: int, dim: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


def normalised(train: sp.csr_array) -> sp.csr_array:
    """D^-1/2 A D^-1/2 by scipy in float64; a node without neighbours keeps an empty row."""
    adjacency = sp.csr_array(dense_adjacency(train).astype(np.float64))
    degree = np.asarray(adjacency.sum(1)).ravel()
    root = sp.diags_array(np.divide(1, np.sqrt(degree), where=degree > 0, out=degree * 0))
    return sp.csr_array(root @ adjacency @ root)


@given(bipartite(), st.sampled_from([1, 3, 8]), st.integers(0, 5))
def test_sums_equal_scipys(train: sp.csr_array, dim: int, seed: int) -> None:
    graph = Graph.from_csr(train)
    x = vectors(graph.n_nodes, dim, seed)
    adjacency = sp.csr_array(dense_adjacency(train).astype(np.float64))
    np.testing.assert_allclose(neighbour_sum(graph, x), adjacency @ x.double().numpy(), **CLOSE)
    expected = normalised(train) @ x.double().numpy()
    np.testing.assert_allclose(propagate(graph, x), expected, **CLOSE)
    np.testing.assert_allclose(propagate(graph, x), expected, **CLOSE)
    weight = vectors(len(graph.col), 1, seed + 1).squeeze(1)
    csr = sp.csr_array(
        (weight.double().numpy(), graph.col.numpy(), graph.crow.numpy()), shape=adjacency.shape
    )
    np.testing.assert_allclose(weighted_sum(graph, weight, x), csr @ x.double().numpy(), **CLOSE)
    y = vectors(graph.n_nodes, dim, seed + 2)
    products = (y @ x.T)[graph.row, graph.col.long()]
    np.testing.assert_allclose(edge_dot(graph, y, x), products, **CLOSE)


def test_a_long_neighbourhood_equals_scipys_too() -> None:
    train = random_matrix(300, 60, 0.5)  # items have 150 neighbours
    graph = Graph.from_csr(train)
    x = vectors(graph.n_nodes, 64)
    expected = normalised(train) @ x.double().numpy()
    np.testing.assert_allclose(propagate(graph, x), expected, **CLOSE)
    assert (propagate(graph, x)[299] == 0).all()  # a user without items gets no messages


Product = Callable[[Graph, Tensor], Tensor]


@settings(max_examples=40)
@given(bipartite(), st.sampled_from([neighbour_sum, propagate]), st.integers(0, 5))
def test_gradients_equal_those_of_the_dense_product(
    train: sp.csr_array, product: Product, seed: int
) -> None:
    graph = Graph.from_csr(train)
    plain = product is neighbour_sum
    dense = dense_adjacency(train) if plain else normalised(train).toarray()
    matrix = torch.from_numpy(dense).float()
    toward = vectors(graph.n_nodes, 4, seed + 10)  # an arbitrary gradient from above
    x = vectors(graph.n_nodes, 4, seed).requires_grad_()
    (own,) = torch.autograd.grad((product(graph, product(graph, x)) * toward).sum(), x)
    (naive,) = torch.autograd.grad(((matrix @ (matrix @ x)) * toward).sum(), x)
    torch.testing.assert_close(own, naive, **CLOSE)


@settings(max_examples=40)
@given(bipartite(least=1), st.integers(0, 5))
def test_gradients_of_a_weighted_sum_reach_weights_and_vectors(
    train: sp.csr_array, seed: int
) -> None:
    graph = Graph.from_csr(train)
    weight = vectors(len(graph.col), 1, seed).squeeze(1).requires_grad_()
    x = vectors(graph.n_nodes, 4, seed + 1).requires_grad_()
    toward = vectors(graph.n_nodes, 4, seed + 2)
    matrix = torch.zeros(graph.n_nodes, graph.n_nodes)
    matrix = matrix.index_put((graph.row, graph.col.long()), weight)
    naive = torch.autograd.grad((matrix @ x * toward).sum(), (weight, x))
    own = torch.autograd.grad((weighted_sum(graph, weight, x) * toward).sum(), (weight, x))
    for mine, other in zip(own, naive, strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)


@settings(max_examples=60)
@given(bipartite(), st.integers(1, 4), st.booleans(), st.floats(0.1, 2), st.integers(0, 5))
def test_smoothing_is_the_sum_of_all_layers(
    train: sp.csr_array, depth: int, skip: bool, share: float, seed: int
) -> None:
    """One operation for Σ Âˡ x, with its gradient; also with zero vectors for users."""
    graph = Graph.from_csr(train)
    matrix = torch.from_numpy(normalised(train).toarray()).float()
    x = vectors(graph.n_nodes, 3, seed).requires_grad_()
    toward = vectors(graph.n_nodes, 3, seed + 1)

    def layers(base: Tensor, first: int) -> Tensor:
        powers = [torch.linalg.matrix_power(matrix, n) @ base for n in range(first, depth + 1)]
        return share * torch.stack(powers).sum(0)

    items = x[graph.n_users :]
    from_items = torch.cat([torch.zeros(graph.n_users, 3), items])
    pairs = [
        (
            propagate_layers(graph, x, depth, first=int(skip), layer_weight=share),
            layers(x, int(skip)),
        ),
        (
            torch.cat(propagate_items(graph, items, depth, layer_weight=share)),
            layers(from_items, 0),
        ),
    ]
    for own, naive in pairs:
        torch.testing.assert_close(own, naive, rtol=1e-4, atol=1e-5)
        mine, other = (torch.autograd.grad((out * toward).sum(), x)[0] for out in (own, naive))
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@settings(max_examples=40)
@given(bipartite(least=1), st.integers(1, 3), st.integers(0, 5))
def test_heads_are_sums_and_products_of_their_own_columns(
    train: sp.csr_array, heads: int, seed: int
) -> None:
    graph = Graph.from_csr(train)
    row, col = graph.row, graph.col.long()
    weight = vectors(len(col), heads, seed).requires_grad_()
    x = vectors(graph.n_nodes, 2 * heads, seed + 1).requires_grad_()
    y = vectors(graph.n_nodes, 2 * heads, seed + 2).requires_grad_()
    parts = x.view(-1, heads, 2), y.view(-1, heads, 2)
    spread = weight.unsqueeze(2) * parts[0][col]  # [edges, heads, 2]
    nothing = torch.zeros(graph.n_nodes, heads, 2)
    pairs = [
        (weighted_sum(graph, weight, x), nothing.index_add(0, row, spread).view(x.shape)),
        (edge_dot(graph, y, x, heads), (parts[1][row] * parts[0][col]).sum(2)),
        (row_total(graph, weight), nothing[:, :, 0].index_add(0, row, weight)),
        (edge_sum(graph, x[:, 0], y[:, 1]), x[row, 0] + y[col, 1]),
    ]
    for number, (own, naive) in enumerate(pairs):
        torch.testing.assert_close(own, naive, **CLOSE)
        toward = vectors(*own.shape, seed=seed) if own.dim() > 1 else vectors(len(own), 1)[:, 0]
        leaves = [(weight, x), (y, x), (weight,), (x, y)][number]
        ours, theirs = (torch.autograd.grad((o * toward).sum(), leaves) for o in (own, naive))
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, **CLOSE)


@settings(max_examples=40)
@given(bipartite(least=1), st.integers(0, 5))
def test_values_of_interactions_are_copied_to_both_directions(
    train: sp.csr_array, seed: int
) -> None:
    graph = Graph.from_csr(train)
    half = len(graph.col) // 2
    values = vectors(half, 2, seed).requires_grad_()
    edges = {(int(v), int(j)): e for e, (v, j) in enumerate(zip(graph.row, graph.col, strict=True))}
    back = torch.tensor([edges[j, v] for v, j in list(edges)[half:]])
    naive = torch.cat([values, values[back]])
    own = both_ways(graph, values)
    assert torch.equal(own, naive)
    toward = vectors(2 * half, 2, seed + 1)
    mine, other = (torch.autograd.grad((out * toward).sum(), values)[0] for out in (own, naive))
    torch.testing.assert_close(mine, other, **CLOSE)


@settings(max_examples=40)
@given(bipartite(least=1), st.integers(0, 5))
def test_the_largest_source_is_that_of_a_loop(train: sp.csr_array, seed: int) -> None:
    graph = Graph.from_csr(train)
    values = vectors(graph.n_nodes, 1, seed).squeeze(1)
    most = largest_source(graph, values)
    for v in range(graph.n_nodes):
        values_of_sources = values[graph.col[graph.row == v].long()]
        assert most[v] == values_of_sources.max() if len(values_of_sources) else most[v] < -1e30


def test_new_targets_use_source_degrees_of_training() -> None:
    """`propagate` outside a graph: Σ x_j / √(d_v·d_j), an empty history gives zero."""
    history = sp.csr_array(np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.float32))
    degree = np.array([4.0, 9.0, 1.0])
    x = vectors(3, 5)
    own = np.maximum(history.toarray().sum(1), 1)
    expected = history.toarray() / np.sqrt(degree) / np.sqrt(own)[:, None] @ x.numpy()
    adjacency = fold_adjacency(history, torch.tensor(degree, dtype=torch.float32))
    np.testing.assert_allclose(propagate(adjacency, x), expected, **CLOSE)
    weight = vectors(5, 1).squeeze(1)
    dense = np.zeros((3, 3), np.float32)
    dense[adjacency.row.numpy(), adjacency.col.numpy()] = weight.numpy()
    np.testing.assert_allclose(weighted_sum(adjacency, weight, x), dense @ x.numpy(), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_propagation_keeps_the_type_and_takes_columns_of_a_wider_tensor(
    dtype: torch.dtype,
) -> None:
    train = random_matrix(20, 15, 0.3)
    graph = Graph.from_csr(train)
    wide = vectors(35, 12).to(dtype)
    part = wide[:, 4:8]  # not contiguous
    out = propagate(graph, part)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, normalised(train) @ part.numpy(), **CLOSE)
