"""Sums by blocks of sources, as in a large graph on a CPU, against scipy and the plain sums."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import bipartite, normalised, random_matrix, seeded

import itemfold as ir
import itemfold.graph.graph as graph_module
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import propagate, propagate_items, propagate_layers
from itemfold.models.sgl import SGL
from itemfold.ops import blocked_sum as blocked
from itemfold.settings.resolve import Request, resolve
from itemfold.training.learner import Learner

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph counts as large, with blocks of three sources and five targets at a time."""
    monkeypatch.setattr(graph_module, "LARGE", 0)
    monkeypatch.setattr(blocked, "ROWS", 3)
    monkeypatch.setattr(blocked, "DENSE", 0)
    monkeypatch.setattr(blocked, "TARGETS", 5)


def weighted(train: sp.csr_array, seed: int) -> sp.csr_array:
    out = train.copy()
    out.data = np.random.default_rng(seed).uniform(0.01, 5, train.nnz).astype(np.float32)
    return out


@pytest.mark.usefixtures("large")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bipartite(), st.booleans(), st.integers(0, 3))
def test_sums_and_gradients_equal_dense_products(
    train: sp.csr_array, with_weights: bool, seed: int
) -> None:
    train = weighted(train, seed) if with_weights else train
    graph, matrix = Graph.from_csr(train), normalised(train)
    one = np.eye(len(matrix))
    for product, expected in (
        (propagate, matrix),
        (
            lambda g, x: propagate_layers(g, x, 2, layer_weight=0.5),
            0.5 * (one + matrix + matrix @ matrix),
        ),
        (lambda g, x: propagate_layers(g, x, 1, first=1), matrix),
    ):
        x = torch.randn(graph.n_nodes, 3, generator=seeded(seed), requires_grad=True)
        toward = torch.randn(graph.n_nodes, 3, generator=seeded(seed + 9))
        out = product(graph, x)
        (slope,) = torch.autograd.grad(out, x, toward)
        np.testing.assert_allclose(out.detach(), expected @ x.detach().double().numpy(), **CLOSE)
        np.testing.assert_allclose(slope, expected @ toward.double().numpy(), **CLOSE)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_vectors_of_items_alone_equal_those_of_all_nodes(depth: int) -> None:
    graph = Graph.from_csr(random_matrix(40, 30, 0.2))
    items = torch.randn(30, 4, generator=seeded(0))
    every = propagate_layers(graph, torch.cat([items.new_zeros(40, 4), items]), depth)
    users, out = propagate_items(graph, items, depth)
    torch.testing.assert_close(torch.cat([users, out]), every, **CLOSE)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("with_weights", [False, True])
def test_half_precision_errs_by_less_than_its_rounding(
    with_weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with six blocks, as at 30 million interactions: sums between blocks are rounded."""
    monkeypatch.setattr(blocked, "ROWS", 67)
    assert blocked.block_count(400, 300, 12_000) == 6
    train = random_matrix(400, 300, 0.1)
    train = weighted(train, 0) if with_weights else train
    x = torch.randn(700, 16, generator=seeded(0))
    exact = normalised(train) @ x.double().numpy()
    out = propagate(replace(Graph.from_csr(train), half=True), x)
    assert out.dtype == torch.float32
    error = np.linalg.norm(out.numpy() - exact) / np.linalg.norm(exact)
    assert 0 < error < 2**-8


def test_sums_do_not_depend_on_threads_and_targets_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graph_module, "LARGE", 0)
    monkeypatch.setattr(blocked, "ROWS", 50)
    monkeypatch.setattr(blocked, "DENSE", 4)
    assert blocked.block_count(300, 200, 6000) == 6
    graph = replace(Graph.from_csr(random_matrix(300, 200, 0.1)), half=True)
    x, found, threads = torch.randn(500, 64), [], torch.get_num_threads()
    try:
        for targets, used in ((7, 1), (64, 2), (10_000, 1)):
            torch.set_num_threads(used)
            monkeypatch.setattr(blocked, "TARGETS", targets)
            found.append(propagate_layers(graph, x, 3))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.usefixtures("large")
def test_every_edge_is_in_one_block_of_neighbouring_sources() -> None:
    train = random_matrix(40, 30, 0.2)
    blocks = Graph.from_csr(train).blocks["users"]
    assert [block.first for block in blocks] == list(range(0, 30, 3))
    joined = sp.csr_array((40, 70))
    for block in blocks:
        parts = np.ones(len(block.index)), block.index.numpy() + block.first, block.starts.numpy()
        joined = joined + sp.csr_array(parts, shape=(40, 70))
    assert (joined[:, :30] != train).nnz == 0
    sums = sp.csr_array(joined[:, 30:])  # behind the sources: each target's own, nine times
    assert (sums != 9 * sp.eye_array(40)).nnz == 0


@pytest.mark.usefixtures("large")
def test_a_sum_between_blocks_is_not_weighted() -> None:
    train = weighted(random_matrix(20, 9, 0.5), 0)
    for block in Graph.from_csr(train).blocks["users"][1:]:
        assert block.weight is not None
        last = block.starts[1:].long() - 1
        assert (block.index[last] == 9 - block.first + torch.arange(20)).all()
        assert (block.weight[last] == 1).all()


def test_blocks_are_fewer_if_targets_have_few_entries() -> None:
    """Starts and sums of all blocks, 8 bytes a target, need a quarter of the entries at most."""
    for sources, targets, entries in ((10**7, 10**8, 10**9), (10**8, 10**7, 10**9), (9, 9, 0)):
        count = blocked.block_count(sources, targets, entries)
        assert 1 <= count <= max(entries / targets / 8, 1)
    enough = blocked.block_count(3 * blocked.ROWS - 1, 750_000, 30_000_000)
    assert enough == 3


@pytest.mark.usefixtures("large")
def test_new_edges_in_the_memory_of_old_ones_are_used() -> None:
    model, graph = SGL(dim=4, drop=0.3), Graph.from_csr(random_matrix(40, 30, 0.3))
    x = torch.randn(70, 4, generator=seeded(0))
    for seed in (1, 2):
        model.begin_epoch(graph, seeded(seed))
        fresh = graph.drop_edges(0.3, seeded(seed))
        torch.testing.assert_close(propagate(model.dropped_graphs[0], x), propagate(fresh, x))


def learner(precision: str) -> Learner:
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    train = {"precision": precision, "device": "cpu"}
    settings = resolve(Request({"model": ir.models.LightGCN(dim=8), "train": train}))
    return Learner(settings.make_model(), settings, split)


def test_a_small_graph_is_read_in_full_precision() -> None:
    assert not learner("auto").step_graph.blocked
    assert learner("auto").step_graph.read == torch.float32


@pytest.mark.usefixtures("large")
def test_a_large_graph_is_read_in_half_precision_unless_full_is_asked_for() -> None:
    auto, full = learner("auto"), learner("full")
    assert auto.step_graph.read == torch.bfloat16
    assert auto.graph.read == torch.float32  # vectors that are kept
    assert full.step_graph.read == torch.float32
    keys = auto.batches.epoch(seeded(0))[0]
    losses = [float(part.step(keys)) for part in (auto, full)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
