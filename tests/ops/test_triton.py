"""The Triton kernels against the CPU's operations, which have their own oracles.

They run natively on a GPU and elsewhere in Triton's interpreter (`conftest.py`), if installed. The
modules of kernels import triton, so only the tests that need them import them.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import board_split, random_matrix, seeded
from torch import Tensor

from itemfold.graph.edge_ops import (
    both_ways,
    edge_dot,
    edge_sum,
    largest_source,
    row_total,
    weighted_sum,
)
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import neighbour_sum, propagate, propagate_items, propagate_layers
from itemfold.losses import bpr, item_ndcg, softmax
from itemfold.models import MODELS, LightGCN
from itemfold.models.ease import EASE
from itemfold.models.enmf import ENMF
from itemfold.models.gnn import GNN
from itemfold.ops.neural_sort import neural_sort, sinkhorn
from itemfold.ops.pair_scores import pair_scores, row_scores, take_rows
from itemfold.ops.segment import sampled_dot, segment_max, segment_sum
from itemfold.ops.smooth_rank import count_above
from itemfold.sampling import InBatch
from itemfold.sampling.base import Batch
from itemfold.sampling.batches import draw_positives
from itemfold.sampling.exact import Draws
from itemfold.sampling.positives import Positives
from itemfold.training.fit import train

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
pytestmark = pytest.mark.triton

SAMPLING = ("batches", "exact", "positives", "user_rows")
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
USERS, ITEMS = (400, 90) if GPU else (21, 9)
NODES = USERS + ITEMS
WIDTHS = (1, 16, 64, 65, 200) if GPU else (1, 65)


@contextmanager
def kernels() -> Iterator[None]:
    """Within this context operations on `DEVICE` use the kernels."""
    if GPU:
        yield
        return
    with ExitStack() as stack:
        for module in ("ops.segment", *(f"sampling.{name}" for name in SAMPLING)):
            stack.enter_context(mock.patch(f"itemfold.{module}.on_triton", return_value=True))
        yield


def agree(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The same values and gradients with the kernels as without."""

    def found(device: str) -> list[Tensor]:
        leaves = [x.to(device).requires_grad_(x.is_floating_point()) for x in inputs]
        out = function(*leaves)
        toward = torch.randn(out.shape, generator=seeded(9)).to(device)
        wanted = [x for x in leaves if x.requires_grad]
        grads = torch.autograd.grad((out * toward).sum(), wanted)
        return [out.detach().cpu(), *(g.cpu() for g in grads)]

    plain = found("cpu")
    with kernels():
        for here, there in zip(plain, found(DEVICE), strict=True):
            torch.testing.assert_close(there, here, **CLOSE)


def graphs() -> dict[str, Graph]:
    matrix = random_matrix(USERS, ITEMS, 0.3)
    return {device: Graph.from_csr(matrix, device) for device in ("cpu", DEVICE)}


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed))


@pytest.mark.parametrize("width", WIDTHS)
def test_sums_over_neighbours(width: int) -> None:
    graph = graphs()
    x = vectors(NODES, width)
    agree(lambda x: neighbour_sum(graph[x.device.type], x), x)
    agree(lambda x: propagate(graph[x.device.type], x), x)
    for depth in (1, 2, 3):
        agree(lambda x: propagate_layers(graph[x.device.type], x, depth, layer_weight=0.3), x)  # noqa: B023
        agree(lambda x: propagate_layers(graph[x.device.type], x, depth, first=1), x)  # noqa: B023
        agree(
            lambda x: torch.cat(propagate_items(graph[x.device.type], x, depth, layer_weight=0.3)),  # noqa: B023
            x[:ITEMS],
        )


@pytest.mark.parametrize(("heads", "width"), [(1, 64), (4, 64), (4, 4), (2, 200), (3, 15)])
def test_weighted_sums_and_products_by_heads(heads: int, width: int) -> None:
    graph = graphs()
    weight = vectors(len(graph["cpu"].col), heads, seed=1)
    x, y = vectors(NODES, width), vectors(NODES, width, seed=2)
    agree(lambda w, x: weighted_sum(graph[x.device.type], w, x), weight, x)
    agree(lambda w, x: weighted_sum(graph[x.device.type], w[:, 0], x), weight, x)
    agree(lambda y, x: edge_dot(graph[x.device.type], y, x, heads), y, x)
    agree(lambda y, x: edge_dot(graph[x.device.type], y, x), y, x)
    agree(lambda w: row_total(graph[w.device.type], w), weight)


def test_64_bit_positions_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, x = random_matrix(USERS, ITEMS, 0.3), vectors(NODES, 64).to(DEVICE)
    users, items = torch.arange(USERS, device=DEVICE), torch.arange(0, ITEMS, 2, device=DEVICE)

    def found() -> list[Tensor]:
        graph = Graph.from_csr(matrix, DEVICE)
        weight = vectors(len(graph.col), 4).to(DEVICE)
        with kernels():
            return [
                *(
                    propagate(graph, x),
                    *propagate_items(graph, x[:ITEMS], 3),
                    neighbour_sum(graph, x),
                ),
                *(weighted_sum(graph, weight, x), edge_dot(graph, x, x, 4)),
                *(row_total(graph, weight), largest_source(graph, x[:, 0])),
                *draw_positives(graph, users, 3, torch.Generator(DEVICE).manual_seed(0)),
                Positives(matrix, DEVICE).negatives(users, items[None], items[None] > 0, USERS),
            ]

    narrow = found()
    monkeypatch.setattr("itemfold.graph.graph.MOST_NARROW", 0)
    assert Graph.from_csr(matrix, DEVICE).crow.dtype == torch.int64
    for one, two in zip(narrow, found(), strict=True):
        assert torch.equal(one, two)


def test_half_precision_is_close() -> None:
    full, x = graphs()[DEVICE], vectors(NODES, 64).to(DEVICE)
    graph = replace(full, half=True)
    weight = vectors(len(full.col), 4).to(DEVICE)
    for function in (
        lambda g: propagate(g, x),
        lambda g: propagate_layers(g, x, 3),
        lambda g: torch.cat(propagate_items(g, x[:ITEMS], 2)),
        lambda g: neighbour_sum(g, x),
        lambda g: weighted_sum(g, weight, x),
        lambda g: edge_dot(g, x, x, 4),
    ):
        with kernels():
            coarse, fine = function(graph), function(full)
        assert 0 < (coarse - fine).norm() / fine.norm() < 4e-3


def test_scalars_of_edges() -> None:
    graph = graphs()
    targets, sources = vectors(NODES), vectors(NODES, seed=1)
    agree(lambda m, t: edge_sum(graph[m.device.type], m, t), targets, sources)
    agree(lambda v: both_ways(graph[v.device.type], v), vectors(len(graph["cpu"].col) // 2, 3))
    here = largest_source(graph["cpu"], sources)
    with kernels():
        there = largest_source(graph[DEVICE], sources.to(DEVICE)).cpu()
    has_sources = graph["cpu"].degree > 0
    assert torch.equal(here[has_sources], there[has_sources])
    assert (there[~has_sources] < -1e30).all()


def test_ragged_rows_with_repeated_entries() -> None:
    starts = torch.tensor([0, 3, 3, 100, 101], dtype=torch.int32)
    index = torch.randint(0, 7, (101,), generator=seeded()).int()
    x, rows, weight = vectors(7, 70), vectors(4, 70, seed=1), vectors(101, seed=2)
    for function in (
        lambda d: segment_sum(starts.to(d), index.to(d), x.to(d), weight=weight.to(d)),
        lambda d: sampled_dot(starts.to(d), index.to(d), rows.to(d), x.to(d)),
        lambda d: segment_max(starts.to(d), index.to(d), weight[:7].to(d)).clamp(min=-1e30),
    ):
        plain = function("cpu")
        with kernels():
            torch.testing.assert_close(function(DEVICE).cpu(), plain, **CLOSE)


def test_scores_of_pairs_and_taken_rows() -> None:
    users, items = vectors(12, 64), vectors(20, 64, seed=1)
    index = torch.randint(0, 20, (12, 33), generator=seeded())
    agree(pair_scores, users, items, index)
    agree(take_rows, items, index)
    agree(take_rows, items, index[:, 0])


def test_scores_of_lists_with_padding() -> None:
    starts = torch.tensor([0, 3, 3, 40], dtype=torch.int32)
    index = torch.randint(0, 20, (50,), generator=seeded()).int()
    index[40:] = 20
    owner = torch.searchsorted(starts[1:], torch.arange(50), right=True).clamp(max=2)
    users, items = vectors(3, 64), vectors(20, 64, seed=1)

    def scores(users: Tensor, items: Tensor) -> Tensor:
        where = users.device
        out = row_scores(users, items, starts.to(where), index.to(where), owner.to(where))
        return out[:40]

    def plain(users: Tensor, items: Tensor) -> Tensor:
        return (users[owner[:40]] * items[index[:40].long()]).sum(1)

    leaves = [x.clone().requires_grad_() for x in (users, items)]
    expected = torch.autograd.grad(plain(*leaves).square().sum(), leaves)
    with kernels():
        leaves = [x.to(DEVICE).requires_grad_() for x in (users, items)]
        found = torch.autograd.grad(scores(*leaves).square().sum(), leaves)
    for here, there in zip(expected, found, strict=True):
        torch.testing.assert_close(there.cpu(), here, **CLOSE)


def test_all_rows_of_a_batch() -> None:
    """ENMF's loss and gradients, whose lists are padded to one size on a GPU."""
    matrix = random_matrix(USERS, ITEMS, 0.3)
    found = []
    for device, context in (("cpu", nullcontext), (DEVICE, kernels)):
        model = ENMF(dim=8, dropout=0)
        model.setup(matrix, inductive=False, generator=seeded())
        model.to(device)
        graph = Graph.from_csr(matrix, device)
        users = torch.arange(0, USERS, 3, device=device)
        real = torch.ones(len(users), 1, dtype=torch.bool, device=device)
        real[-1] = False
        batch = Batch(users, torch.zeros_like(real, dtype=torch.int64), real)
        with context():
            value = model.own_loss(graph, batch, torch.Generator(device))
            grads = torch.autograd.grad(value, list(model.parameters()))
        found.append([value.detach().cpu(), *(g.cpu() for g in grads)])
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(there, here, **CLOSE)


@pytest.mark.parametrize("width", WIDTHS)
def test_noise_of_a_layer(width: int) -> None:
    from itemfold.ops.triton.noise import add_noise

    x, noise = vectors(NODES, width), torch.rand(NODES, width, generator=seeded(1))
    x[3] = 0.0  # has no direction and does not move
    moved = add_noise(x.clone().to(DEVICE), noise.to(DEVICE), 0.25).cpu()
    expected = x + 0.25 * torch.sign(x) * noise / noise.norm(dim=1, keepdim=True)
    torch.testing.assert_close(moved, expected, **CLOSE)


def drawn(function: Callable[[torch.Generator], Any], device: str) -> Any:
    """Draws with the same generator state: without kernels, and with them."""
    generator = torch.Generator(device).manual_seed(3)
    state = generator.get_state()
    with (  # the plain form with the same random numbers
        mock.patch("itemfold.sampling.exact.on_triton", return_value=False),
        mock.patch("itemfold.sampling.batches.on_triton", return_value=False),
    ):
        plain = function(generator)
    generator.set_state(state)
    with kernels():
        return plain, function(generator)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_positives_of_a_batch(count: int) -> None:
    """Users with no item, fewer than wanted, as many, and more."""
    graph = graphs()[DEVICE]
    users = torch.arange(USERS, device=DEVICE).flip(0)
    (items, real), (ours, there) = drawn(
        lambda generator: draw_positives(graph, users, count, generator), DEVICE
    )
    assert torch.equal(real, there)
    assert torch.equal(items[real], ours[there])
    assert not real.all()


@pytest.mark.parametrize("mixed", [False, True])
def test_negatives_of_a_batch(mixed: bool) -> None:
    matrix = random_matrix(USERS, 90, 0.3)
    rng = np.random.default_rng(0)
    sparse = share = None
    if mixed:  # three near items for every user, of which some have none
        near = np.stack(
            [rng.choice(np.flatnonzero(row == 0), 3, False) for row in matrix.toarray()]
        )
        ends = 3 * np.arange(USERS + 1)
        sparse = (ends, np.sort(near, 1).ravel(), rng.random(3 * USERS))
        share = rng.random(USERS) * (rng.random(USERS) < 0.8)
    draws = Draws(matrix, DEVICE, sparse=sparse, share=share, search=True)
    users = torch.arange(USERS, device=DEVICE).flip(0)
    plain, ours = drawn(lambda generator: draws(users, 40, generator), DEVICE)
    assert torch.equal(plain, ours)
    assert not matrix.toarray()[users.cpu().numpy()[:, None], ours.cpu().numpy()].any()


def test_smooth_counts() -> None:
    """Lists longer than one block, with padding (−∞) and ties."""
    pos, others = vectors(6, 5), vectors(6, 300, seed=1)
    others[2, 7:] = -torch.inf
    others[3, :5] = pos[3]
    agree(lambda pos, others: count_above(pos, others, 0.7), pos, others)


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # −∞ − (−∞), in the interpreter
def test_smooth_counts_ignore_masked_scores() -> None:
    """Whatever they are, also next to a positive without a finite score."""
    pos, others, mask = vectors(6, 5), vectors(6, 300, seed=1), vectors(6, 300, seed=2) > 0
    pos[1, 2] = -torch.inf
    mask[3], mask[4] = False, True
    for bad in (torch.nan, torch.inf, -torch.inf, 1e30):
        agree(
            lambda pos, others: count_above(pos, others, 0.7, mask.to(pos.device)),
            *(pos, others.masked_fill(~mask, bad)),
        )
    shared = mask[:1].expand(6, -1)  # one mask for all rows
    agree(lambda pos, x: count_above(pos, x, 0.7, shared.to(pos.device)), pos, others)


def test_sinkhorn() -> None:
    """Lists of several lengths, with padding, with a user of no items, converged or cut short."""
    scores, mask = vectors(5, 11), torch.arange(11) < torch.tensor([[11], [7], [1], [0], [2]])
    mix = vectors(5, 11, seed=3), vectors(5, 11, seed=4)
    for iterations in (1, 4, 50):

        def both(scores: Tensor, *mix: Tensor, iterations: int = iterations) -> Tensor:
            order = neural_sort(scores, mask.to(scores.device), 1.0)
            return torch.stack(sinkhorn(order, iterations)) * torch.stack(mix)

        agree(both, scores, *mix)


@settings(max_examples=200 if GPU else 25)
@given(
    rows=st.integers(0, 24),
    size=st.integers(1, 9),
    before=st.integers(0, 8),
    n=st.integers(1, 40),
    n_items=st.integers(1, 60),
    density=st.floats(0, 1),
    wide=st.booleans(),
)
def test_negatives_among_the_items_of_a_part(
    rows: int, size: int, before: int, n: int, n_items: int, density: float, wide: bool
) -> None:
    """Repeated items, padding, users without positives, parts that lack rows at both ends."""
    random, before = seeded(rows), before % size
    matrix = random_matrix(13, n_items, density)
    parts = max(-(-(before + rows) // size), 1)
    users = torch.randint(13, (rows,), generator=random)
    shared = torch.randint(n_items, (parts, n), generator=random)
    real = torch.rand(parts, n, generator=random) < 0.8
    here = Positives(matrix).negatives(users, shared, real, size, before)
    known = Positives(matrix, DEVICE)
    if wide:
        known.starts = known.starts.long()
    with kernels():
        there = known.negatives(*(x.to(DEVICE) for x in (users, shared, real)), size, before)
    assert torch.equal(there.cpu(), here)
    part = (torch.arange(rows) + before) // size
    positive = torch.from_numpy(matrix.toarray() > 0)[users[:, None], shared[part]]
    assert torch.equal(here, real[part] & ~positive)


def test_negatives_among_more_items_than_a_program_handles_at_a_time() -> None:
    """Long histories as well, and an item that is often in the list."""
    matrix, users = random_matrix(9, 700, 0.5), torch.arange(9).flip(0)
    shared = torch.randint(0, 700, (1, 5000), generator=seeded())
    shared[0, 1000:1300] = int(matrix.indices[0])
    real = torch.arange(5000)[None] % 7 > 0
    here = Positives(matrix).negatives(users, shared, real, 9)
    with kernels():
        known, inputs = Positives(matrix, DEVICE), (users, shared, real)
        there = known.negatives(*(x.to(DEVICE) for x in inputs), 9).cpu()
    assert 0 < here.sum() < real.sum() * 9
    assert torch.equal(here, there)


def test_rows_that_end_at_the_limit_of_32_bits_are_read() -> None:
    from itemfold.ops.triton.membership import missing

    begin = 2**31 - 11
    entries = torch.empty(begin + 10, dtype=torch.int8, device=DEVICE)  # one page of it is used
    entries[begin:] = torch.arange(0, 20, 2, device=DEVICE)
    starts = torch.tensor([begin, begin + 10], dtype=torch.int32, device=DEVICE)
    user, items = torch.zeros(1, dtype=torch.int64), torch.arange(20)[None]
    inputs = (x.to(DEVICE) for x in (user, items, items >= 0))
    found = missing(starts, entries, *inputs, 1, 0).cpu()
    assert found[0].tolist() == [item % 2 == 1 for item in range(20)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if issubclass(m, GNN)])
@pytest.mark.parametrize("inductive", [False, True])
def test_encoders(name: str, inductive: bool) -> None:
    matrix = random_matrix(80, 60, 0.2)
    found = []
    for device in ("cpu", "cuda"):
        model = MODELS[name](dim=16)
        if inductive and not model.inductive:
            return
        model.setup(matrix, inductive=inductive, generator=seeded())
        model.to(device)
        users, items = model.encode(Graph.from_csr(matrix, device))
        grads = torch.autograd.grad(users.square().sum() + items.pow(3).sum(), model.item_embedding)
        found.append([t.detach().cpu() for t in (users, items, *grads)])
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(there, here, rtol=2e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_two_runs_are_equal_and_learn(protocol: str) -> None:
    split = board_split(protocol)
    runs = [
        train(split, LightGCN(dim=8), loss=item_ndcg, epochs=30, batch=16, device="cuda")
        for _ in range(2)
    ]
    first, second = (run.model.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert runs[0].metrics["test"]["ndcg@20"] > 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["sgl", "simgcl", "xsimgcl", "dgcf", "enmf", "mult-vae", "ngcf"])
def test_recorded_steps_equal_single_ones(name: str) -> None:
    """Two epochs, so that changes between epochs are covered."""
    kind, found = MODELS[name], []
    for recorded in (False, True):
        single = mock.patch("itemfold.training.learner.captured", lambda step, *others: step)
        with nullcontext() if recorded else single, warnings.catch_warnings():
            warnings.simplefilter("error")  # for example, a step could not be recorded
            run = train(
                board_split(), kind(), loss=bpr, epochs=2, eval_every=2, refit=False, device="cuda"
            )
        found.append({k: v.cpu() for k, v in run.model.state_dict().items()})
    for key, value in found[0].items():
        torch.testing.assert_close(found[1][key], value, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_in_batch_negatives_learn() -> None:
    run = train(
        board_split(),
        LightGCN(dim=8),
        loss=softmax(tau=0.2),
        negatives=InBatch(),
        similarity="cosine",
        epochs=40,
        batch=16,
        device="cuda",
    )
    assert run.metrics["test"]["ndcg@20"] > 0.5


@pytest.mark.gpu
def test_ease_is_the_same_closed_form() -> None:
    matrix = random_matrix(300, 120, 0.1)
    found = []
    for device in ("cpu", "cuda"):
        model = EASE(l2=10.0)
        model.setup(matrix, inductive=False, generator=seeded())
        model.to(device)
        model.solve(matrix)
        found.append(model.scores(matrix, torch.arange(300).numpy()).cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
