"""Graphs of 2³¹ edges and more have 64-bit positions, and large ones are mapped from disk.

Forced on small graphs, neither changes a result.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import random_matrix

import itemfold as ir
from itemfold.data.splitting.splitters import split_interactions
from itemfold.graph import both_directions, edge_ops, graph, ppr
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import neighbour_sum, propagate, propagate_items
from itemfold.ops import segment
from itemfold.sampling.positives import Positives

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TINY = "synthetic:users=60,items=50,interactions=900"


@contextmanager
def wide() -> Iterator[None]:
    """Every graph counts as large, and its kernels take a few entries at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "MOST_NARROW", 0)
        patch.setattr(segment, "MOST_NARROW", 20)
        yield


def weighted(matrix: sp.csr_array) -> sp.csr_array:
    out = matrix.copy()
    out.data = np.random.default_rng(1).random(out.nnz).astype(np.float32) + 0.5
    return out


def results(matrix: sp.csr_array, device: str) -> list[torch.Tensor]:
    """Everything that is computed on edges, forwards and backwards."""
    built = Graph.from_csr(matrix, device)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(built.n_nodes, 8, generator=generator).to(device).requires_grad_()
    edge = torch.randn(len(built.col), 2, generator=generator).to(device).requires_grad_()
    one = edge[:, 0]
    found = [
        propagate(built, x),
        neighbour_sum(built, x),
        *propagate_items(built, x[built.n_users :], 3),
        edge_ops.weighted_sum(built, one, x),
        edge_ops.weighted_sum(built, edge, x),
        edge_ops.row_total(built, edge),
        edge_ops.edge_dot(built, x, x),
        edge_ops.edge_dot(built, x, x, heads=2),
        edge_ops.edge_sum(built, x[:, 0], x[:, 1]),
        edge_ops.largest_source(built, x[:, 0]),
    ]
    sum(part.square().sum() for part in found).backward()
    fewer = built.drop_edges(0.3, torch.Generator().manual_seed(1))
    users = torch.arange(built.n_users, device=device)
    known = Positives(matrix, device)
    some = torch.arange(0, built.n_items, 2, device=device)
    return [
        *(part.detach() for part in found),
        *(x.grad, edge.grad, built.degree, built.history_length, built.row, built.reverse),
        *(fewer.crow.long(), fewer.col, fewer.degree, propagate(fewer, x.detach())),
        known.negatives(users, some[None], some[None] > 2, len(users)),
        known.is_positive(users, some.expand(len(users), -1)),
    ]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("has_weights", [False, True])
def test_wide_graphs_give_the_same_bits(device: str, has_weights: bool) -> None:
    matrix = random_matrix(30, 25, 0.2)
    matrix = weighted(matrix) if has_weights else matrix
    narrow = results(matrix, device)
    with wide():
        assert Graph.from_csr(matrix, device).crow.dtype == torch.int64
        assert Graph.from_csr(matrix, device).col.dtype == torch.int32
        for one, two in zip(narrow, results(matrix, device), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("has_weights", [False, True])
def test_mapped_graphs_give_the_same_bits(
    has_weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_matrix(30, 25, 0.2)
    matrix = weighted(matrix) if has_weights else matrix
    held = results(matrix, "cpu")
    monkeypatch.setattr(both_directions, "MAPPED", 0)
    monkeypatch.setattr(both_directions, "CHUNK", 7)
    mapped: list[Any] = []
    empty = both_directions._empty

    def watched(*arguments: Any) -> Any:
        mapped.append(empty(*arguments))
        return mapped[-1]

    monkeypatch.setattr(both_directions, "_empty", watched)
    built = Graph.from_csr(matrix)
    assert all(isinstance(array.base, np.memmap) for array in mapped)
    assert built.col.data_ptr() == mapped[0].ctypes.data  # not copied
    for one, two in zip(held, results(matrix, "cpu"), strict=True):
        assert torch.equal(one, two)


def test_blocks_cover_every_row_and_entry_once() -> None:
    lengths = torch.tensor([3, 0, 30, 1, 0, 7, 12, 2, 0])
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    with wide():
        blocks = list(segment.narrow_blocks(starts))
    assert len(blocks) > 2
    rows, entries = [], []
    for block, part, own in blocks:
        assert own.dtype == torch.int32
        assert (own.diff() == lengths[block]).all()
        rows += range(block.start, block.stop)
        entries += range(part.start, part.stop)
    assert rows == list(range(len(lengths)))
    assert entries == list(range(int(starts[-1])))


def test_pagerank_of_a_wide_graph_is_the_same() -> None:
    matrix = random_matrix(20, 15, 0.3)
    narrow = ppr.personalised_pagerank(matrix, top=5)
    with wide():
        found = ppr.personalised_pagerank(matrix, top=5)
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(narrow, name))


@pytest.mark.parametrize("model", ["lightgcn", "gat", "sgl", "deepwalk", "gf-cf"])
def test_training_on_a_wide_graph_gives_the_same_weights(model: str) -> None:
    def trained() -> dict[str, Any]:
        split = split_interactions(ir.load(TINY))
        kind = ir.models.MODELS[model]
        run = ir.train(split, kind() if model == "gf-cf" else kind(dim=8), epochs=2)
        return run.model.state_dict()

    narrow = trained()
    with wide():
        found = trained()
    for name, tensor in narrow.items():
        assert torch.equal(found[name], tensor), name


def test_nodes_beyond_32_bits_are_refused() -> None:
    matrix = sp.csr_array((3, 5), dtype=np.float32)
    matrix._shape = (3, 2**31)
    with pytest.raises(ir.ItemfoldError, match="fewer than 2\\*\\*31 nodes"):
        Graph.from_csr(matrix)
