"""Message passing for the users of a batch against dense products and all users."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import bipartite, normalised, random_matrix, seeded

import itemfold as ir
import itemfold.graph.batch_propagation as module
import itemfold.graph.graph as graph_module
from itemfold.graph.batch_propagation import BatchEdges, propagate_batch
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import propagate_layers
from itemfold.ops import blocked_sum as blocked
from itemfold.sampling import NEGATIVES

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(params=["small", "one block", "two blocks", "many blocks"])
def sums(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums as in a small graph, or by blocks; a batch may have all users."""
    monkeypatch.setattr(module, "MOST", 100)
    if request.param != "small":
        rows = {"one block": 100, "two blocks": 4, "many blocks": 2}[request.param]
        monkeypatch.setattr(graph_module, "LARGE", 0)
        monkeypatch.setattr(blocked, "ROWS", rows)
        monkeypatch.setattr(blocked, "DENSE", 0)
        monkeypatch.setattr(blocked, "TARGETS", 3)


@pytest.mark.usefixtures("sums")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    bipartite(),
    st.lists(st.integers(0, 7), max_size=9),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_vectors_and_gradients_equal_dense_products(
    train: sp.csr_array, drawn: list[int], depth: int, skip: bool, weighted: bool, seed: int
) -> None:
    """Also with users who have no items, are drawn twice, or are as many as the items."""
    if weighted:
        train.data = np.random.default_rng(seed).uniform(0.1, 5, train.nnz).astype(np.float32)
    graph, matrix = Graph.from_csr(train), torch.from_numpy(normalised(train))
    users = torch.tensor([user % graph.n_users for user in drawn], dtype=torch.int64)
    x = torch.randn(graph.n_nodes, 3, generator=seeded(seed))
    tables = [part.clone().requires_grad_() for part in x.split([graph.n_users, graph.n_items])]
    edges = BatchEdges.of(graph, users)
    assert edges is not None
    found = propagate_batch(
        graph, (tables[0], tables[1]), edges, depth, first=int(skip), layer_weight=0.3
    )
    toward = [torch.randn(part.shape, generator=seeded(seed + 1)) for part in found]
    mine = torch.autograd.grad(found, tables, toward)

    layers = [torch.linalg.matrix_power(matrix, n) for n in range(int(skip), depth + 1)]
    both = 0.3 * torch.stack(layers).sum(0)
    rows = torch.cat([users, torch.arange(graph.n_users, graph.n_nodes)])
    for own, naive in (
        (torch.cat(found), both[rows] @ x.double()),
        (torch.cat(mine), both[rows].T @ torch.cat(toward).double()),
    ):
        torch.testing.assert_close(own.detach().double(), naive, **CLOSE)


@pytest.mark.usefixtures("sums")
def test_half_precision_changes_the_result_by_its_rounding_only() -> None:
    graph = Graph.from_csr(random_matrix(60, 60, 0.3))
    users, x = torch.tensor([5, 3, 58, *[7] * 40]), torch.randn(120, 16, generator=seeded(0))
    toward = torch.randn(120, 16, generator=seeded(1))
    errors = []
    for half in (replace(graph, half=True), graph):
        edges = BatchEdges.of(half, users)
        assert edges is not None
        tables = x[:60].clone().requires_grad_(), x[60:].clone().requires_grad_()
        found = propagate_batch(half, tables, edges, 3)
        slope = torch.autograd.grad(found, tables, (toward[:60][users], toward[60:]))
        errors.append(torch.cat([*found, *slope]).detach())
    assert (errors[0] - errors[1]).norm() < 2**-7 * errors[1].norm()


def test_a_batch_with_most_interactions_is_left_to_all_users() -> None:
    graph = Graph.from_csr(random_matrix(40, 30, 0.2))
    assert BatchEdges.of(graph, torch.arange(40)) is None
    assert BatchEdges.of(graph, torch.arange(4)) is not None


CASES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("uniform", {"batch_by": "interactions", "batch": 30, "l2": 1e-3}),
    ("dynamic", {"similarity": "cosine"}),
    ("in-batch", {}),
    ("all", {}),
]


@pytest.mark.parametrize(("negatives", "changed"), CASES)
@pytest.mark.parametrize("large", [False, True])
def test_training_reaches_what_it_reaches_with_all_users(
    negatives: str, changed: dict[str, Any], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(graph_module, "LARGE", 0)
        monkeypatch.setattr(blocked, "ROWS", 64)
    data = ir.load("synthetic:users=150,items=90,interactions=2000")
    split = ir.split_interactions(data, rounding="nearest")
    settings = {
        "batch": 40,
        "epochs": 2,
        "n_negatives": 20,
        "device": "cpu",
        "precision": "full",
        "lr": 0.01,
    }
    found, batches = [], []
    plain = BatchEdges.of.__func__  # type: ignore[attr-defined]

    def counted(cls: type[BatchEdges], graph: Graph, users: torch.Tensor) -> BatchEdges | None:
        edges: BatchEdges | None = plain(cls, graph, users)
        batches.append(edges is not None)
        return edges

    monkeypatch.setattr(BatchEdges, "of", classmethod(counted))
    for most in (0.5, -1.0):  # the batch's users, then all
        monkeypatch.setattr(module, "MOST", most)
        batches.clear()
        model = ir.models.LightGCN(dim=8)
        chosen = {"negatives": NEGATIVES[negatives](), **settings, **changed}
        model = ir.train(split, model, loss=ir.losses.item_log, **chosen).model
        assert batches
        assert set(batches) == {most > 0}  # every step went the way that it should
        found.append(torch.cat([model.user_vectors, model.item_vectors]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_smoothing_all_users_is_smoothing_a_batch_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    graph, x = Graph.from_csr(random_matrix(40, 30, 0.2)), torch.randn(70, 4)
    edges = BatchEdges.of(graph, torch.arange(40))
    assert edges is not None
    found = torch.cat(propagate_batch(graph, (x[:40], x[40:]), edges, 3, layer_weight=0.25))
    torch.testing.assert_close(found, propagate_layers(graph, x, 3, layer_weight=0.25))
