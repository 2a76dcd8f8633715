import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import bipartite, dense_adjacency

from itemfold.graph.graph import Graph, fold_adjacency, inverse_root


def as_matrix(adjacency) -> np.ndarray:
    shape = (len(adjacency.degree), len(adjacency.source_degree))
    ones = np.ones(len(adjacency.col), np.float32)
    return sp.csr_array(
        (ones, adjacency.col.numpy(), adjacency.crow.numpy()), shape=shape
    ).toarray()


def edges(graph: Graph) -> list[tuple[int, int]]:
    return list(zip(graph.row.tolist(), graph.col.tolist(), strict=True))


def as_dense(graph: Graph) -> np.ndarray:
    out = np.zeros((graph.n_nodes, graph.n_nodes), np.float32)
    for target, source in edges(graph):
        out[target, source] += 1
    return out


pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


@given(bipartite())
def test_a_graph_is_the_symmetric_block_matrix(train: sp.csr_array) -> None:
    graph = Graph.from_csr(train)
    dense = dense_adjacency(train)
    np.testing.assert_array_equal(as_dense(graph), dense)
    np.testing.assert_array_equal(graph.degree.numpy(), dense.sum(1))
    np.testing.assert_array_equal(graph.item_degree.numpy(), np.asarray(train.sum(0)).ravel())
    np.testing.assert_array_equal(as_matrix(graph), dense)
    for start, end in zip(graph.crow[:-1].tolist(), graph.crow[1:].tolist(), strict=True):
        assert (graph.col[start:end].diff() > 0).all()  # ascending, nothing twice


@given(bipartite())
def test_reverse_finds_the_opposite_direction_of_every_edge(train: sp.csr_array) -> None:
    graph = Graph.from_csr(train)
    there = edges(graph)
    for edge, back in enumerate(graph.reverse.tolist()):
        assert there[back] == there[edge][::-1]


@given(bipartite(), st.floats(0, 1), st.integers(0, 9))
def test_dropping_takes_both_directions_and_nothing_else(
    train: sp.csr_array, share: float, seed: int
) -> None:
    graph = Graph.from_csr(train)
    thinner = graph.drop_edges(share, torch.Generator().manual_seed(seed))
    dense = as_dense(thinner)
    np.testing.assert_array_equal(dense, dense.T)
    assert (dense <= dense_adjacency(train)).all()
    np.testing.assert_array_equal(thinner.degree.numpy(), dense.sum(1))
    np.testing.assert_array_equal(dense, dense_adjacency(thinner.interactions()))
    there = edges(thinner)  # the shortcut by order still holds after dropping
    assert all(there[b] == there[e][::-1] for e, b in enumerate(thinner.reverse.tolist()))


def test_dropping_none_or_all_and_the_expected_share() -> None:
    train = sp.csr_array(np.ones((100, 100), np.float32))
    graph = Graph.from_csr(train)
    generator = torch.Generator().manual_seed(0)
    assert len(graph.drop_edges(0.0, generator).col) == 20_000
    assert len(graph.drop_edges(1.0, generator).col) == 0
    drops = [graph.drop_edges(0.3, generator) for _ in range(100)]
    assert {len(drop.col) for drop in drops} == {14_000}
    often = sum(drop.interactions().toarray() for drop in drops) / 100
    assert (
        abs(often.std() - (0.3 * 0.7 / 100) ** 0.5) < 0.002
    )  # all edges equally likely: a binomial
    again = [graph.drop_edges(0.3, torch.Generator().manual_seed(s)).col for s in (1, 1, 2)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


@given(bipartite(), st.integers(0, 4), st.integers(0, 99))
def test_new_users_come_after_the_known_ones(train: sp.csr_array, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    history = sp.csr_array((rng.random((count, train.shape[1])) < 0.4).astype(np.float32))
    joined = Graph.from_csr(train).with_users(history)
    assert (joined.n_users, joined.n_items) == (train.shape[0] + count, train.shape[1])
    both = sp.csr_array(np.vstack([train.toarray(), history.toarray()]))
    np.testing.assert_array_equal(as_dense(joined), dense_adjacency(both))


@given(bipartite())
def test_interactions_round_trip(train: sp.csr_array) -> None:
    back = Graph.from_csr(train).interactions()
    assert back.shape == train.shape
    np.testing.assert_array_equal(back.toarray(), train.toarray())


def test_unsorted_rows_give_the_same_graph_and_are_not_modified() -> None:
    train = sp.csr_array(
        (np.ones(3, np.float32), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3)
    )
    graph = Graph.from_csr(train)
    np.testing.assert_array_equal(as_dense(graph), dense_adjacency(train))
    assert train.indices.tolist() == [2, 0, 1]  # the caller's matrix is not touched


def test_folded_in_users_use_item_degrees_of_training() -> None:
    history = sp.csr_array(np.array([[0, 1, 1], [0, 0, 0]], np.float32))
    adjacency = fold_adjacency(history, torch.tensor([5.0, 2.0, 0.0]))
    assert adjacency.degree.tolist() == [2, 0]
    assert adjacency.source_degree.tolist() == [5, 2, 0]
    np.testing.assert_array_equal(as_matrix(adjacency), history.toarray())
    assert inverse_root(adjacency.source_degree).squeeze(1).tolist() == pytest.approx(
        [5**-0.5, 2**-0.5, 0]
    )
