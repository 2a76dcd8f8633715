"""Optimisations do not change results: the package against a plain reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import dense_adjacency, random_matrix
from torch import Tensor

from itemfold.evaluation.ranking import top_items
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import propagate
from itemfold.losses import bpr, item_ap, item_ndcg
from itemfold.models.lightgcn import LightGCN
from itemfold.ops.pair_scores import pair_scores
from itemfold.ops.segment import sampled_dot, segment_sum
from itemfold.sampling import Uniform
from itemfold.sampling.base import DrawnNegatives
from itemfold.sampling.batches import Batches
from itemfold.sampling.full_catalogue import All
from itemfold.settings.schema import TrainConfig
from itemfold.training.objective import objective

TRAIN = random_matrix(60, 45, 0.2)
STEPS = 6


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def product(config: TrainConfig, loss: Callable[..., Tensor], sampler: Any) -> tuple[Any, ...]:
    """Weights after some steps of the package, and the lists that were drawn."""
    model = LightGCN(8, 3)
    model.setup(TRAIN, inductive=False, generator=generator())
    start = [p.detach().clone() for p in model.parameters()]
    graph = Graph.from_csr(TRAIN)
    sampler.prepare(TRAIN)
    batches = Batches(graph, config.batch_by, config.batch, config.positives)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    random, met = generator(1), []

    class Seen(DrawnNegatives):
        def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
            met.append(sampler(users, n, generator))
            return met[-1]

    chosen = sampler if isinstance(sampler, All) else Seen()
    listed = []
    for keys in batches.epoch(random)[:STEPS]:
        optimizer.zero_grad(set_to_none=True)
        batch = batches.draw(keys, random)
        listed.append(batch)
        objective(model, graph, batch, loss, chosen, config, random).backward()
        optimizer.step()
    return start, [p.detach() for p in model.parameters()], listed, met


def reference(
    config: TrainConfig,
    loss: Callable[..., Tensor],
    start: list[Tensor],
    listed: list[Any],
    negatives: list[Tensor] | None,
) -> list[Tensor]:
    """The same steps with dense matrices, gathered rows and plain autograd."""
    dense = torch.from_numpy(dense_adjacency(TRAIN))
    degree = dense.sum(1)
    root = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
    normal = root[:, None] * dense * root
    items0, users0 = (p.clone().requires_grad_() for p in start)
    if items0.shape[0] != TRAIN.shape[1]:  # whichever comes first among the parameters
        items0, users0 = users0, items0
    optimizer = torch.optim.Adam([users0, items0], lr=config.lr)
    owned = torch.from_numpy(TRAIN.toarray() > 0)
    for place, batch in enumerate(listed):
        h = torch.cat([users0, items0])
        layers = [h]
        for _ in range(3):
            layers.append(normal @ layers[-1])
        final = torch.stack(layers).mean(0)
        users, items = final[: len(users0)], final[len(users0) :]
        every = users[batch.users] @ items.T  # [B, items]
        pos = every.gather(1, batch.positives)
        if negatives is None:
            value = loss(pos, every, batch.mask, ~owned[batch.users])
        else:
            value = loss(pos, every.gather(1, negatives[place]), batch.mask)
        if config.l2 > 0:
            drawn = negatives[place] if negatives is not None else torch.arange(len(items))
            real = batch.mask.any(1)
            value = value + 0.5 * config.l2 * (
                users0[batch.users[real]].square().sum(1).mean()
                + items0[batch.positives[batch.mask]].square().sum(1).mean()
                + items0[drawn[real] if drawn.ndim == 2 else drawn].square().sum(-1).mean()
            )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    found = {len(p): p.detach() for p in (users0, items0)}
    return [found[len(p)] for p in start]


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (item_ndcg(tau=0.7), {"batch_by": "users", "n_negatives": 20}),
        (item_ap(tau=0.7), {"batch_by": "users", "n_negatives": 20, "l2": 0.1}),
        (bpr, {"batch_by": "interactions", "n_negatives": 1, "l2": 0.1}),
    ],
)
def test_training_ends_with_the_weights_of_a_plain_loop(
    loss: Callable[..., Tensor], settings: dict[str, Any]
) -> None:
    config = TrainConfig(batch=16, lr=0.01, **settings)
    start, fast, listed, met = product(config, loss, Uniform())
    plain = reference(config, loss, start, listed, met)
    for mine, other, before in zip(fast, plain, start, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)
        assert (mine - before).abs().max() > 0.01  # it has moved far more than it may differ


def test_the_streamed_catalogue_trains_as_the_dense_one() -> None:
    config = TrainConfig(batch=16, lr=0.01)
    start, fast, listed, _ = product(config, item_ndcg(tau=0.7), All())
    plain = reference(config, item_ndcg(tau=0.7), start, listed, None)
    for mine, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)


def test_one_thread_and_two_give_the_same_weights() -> None:
    config, found = TrainConfig(batch=16, n_negatives=20), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(product(config, item_ndcg(tau=1.0), Uniform())[1])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


def test_edge_weights_are_the_entries_of_the_normalised_matrix() -> None:
    graph = Graph.from_csr(TRAIN)
    dense = dense_adjacency(TRAIN).astype(np.float64)
    degree = dense.sum(1)
    root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    normal = root[:, None] * dense * root
    rows, columns = graph.row.numpy(), graph.col.long().numpy()
    np.testing.assert_allclose(graph.edge_weight.numpy(), normal[rows, columns], rtol=1e-6)
    x = torch.randn(graph.n_nodes, 5, dtype=torch.float64, generator=generator())
    np.testing.assert_allclose(propagate(graph, x).numpy(), normal @ x.numpy(), atol=1e-6)


def test_ragged_sums_and_dots_with_repeated_and_unordered_entries() -> None:
    starts = torch.tensor([0, 3, 3, 7, 8], dtype=torch.int32)
    index = torch.tensor([4, 0, 4, 2, 2, 1, 0, 3], dtype=torch.int32)
    x = torch.randn(40, 6, generator=generator())
    rows = torch.randn(4, 6, generator=generator(1))
    weight = torch.randn(8, generator=generator(2))
    owner = torch.tensor([0, 0, 0, 2, 2, 2, 2, 3])
    dots = (rows[owner] * x[index.long()]).sum(1)
    torch.testing.assert_close(sampled_dot(starts, index, rows, x), dots)
    few = x[:5]  # as many entries as four rows of five could hold, and more
    many = torch.arange(25, dtype=torch.int32) % 5
    ends = torch.tensor([0, 25, 25, 25, 25], dtype=torch.int32)
    torch.testing.assert_close(sampled_dot(ends, many, rows, few), few[many.long()] @ rows[0])
    sums = torch.zeros(4, 6).index_add_(0, owner, weight[:, None] * x[index.long()])
    torch.testing.assert_close(segment_sum(starts, index, x, weight=weight), sums)


def test_regrouping_pairs_equals_a_sparse_product() -> None:
    users = torch.randn(7, 4, generator=generator()).requires_grad_()
    items = torch.randn(30, 4, generator=generator(1)).requires_grad_()
    index = torch.randint(30, (7, 50), generator=generator(2))
    toward = torch.randn(7, 50, generator=generator(3))
    grads = torch.autograd.grad(pair_scores(users, items, index), (users, items), toward)
    parts = (toward.numpy().ravel(), (np.repeat(np.arange(7), 50), index.numpy().ravel()))
    weights = sp.csr_array(parts, shape=(7, 30))
    expected = (weights @ items.detach().numpy(), weights.T @ users.detach().numpy())
    for mine, other in zip(grads, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("levels", [3, 50, 0])  # few distinct scores: ties everywhere; 0: none
@pytest.mark.parametrize(("items", "k"), [(5000, 3), (5001, 10), (4159, 15), (300, 20)])
def test_the_best_items_equal_a_full_stable_sort(levels: int, items: int, k: int) -> None:
    scores = torch.randn(40, items, generator=generator(items))
    if levels:
        scores = (scores * levels).round() / levels
    scores[:, ::7] = -torch.inf
    scores[0] = -torch.inf
    scores[1, 5:] = -torch.inf  # fewer left than asked for
    scores[2] = 1.0
    full = torch.sort(scores, dim=1, descending=True, stable=True)
    expected = full.indices[:, :k].masked_fill(full.values[:, :k] == -torch.inf, -1)
    assert torch.equal(top_items(scores, k), expected)
