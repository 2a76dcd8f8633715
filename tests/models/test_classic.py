import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import torch
from scipy import stats
from small import random_matrix
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models import (
    CML,
    EASE,
    ENMF,
    GFCF,
    IALS,
    LINE,
    MF,
    SLIM,
    DeepWalk,
    ItemKNN,
    Model,
    MultVAE,
    Node2Vec,
    UltraGCN,
)
from itemfold.models.base import Kind
from itemfold.models.random_walks import NodeDraws, random_walks, skip_gram
from itemfold.models.ultragcn import item_graph
from itemfold.ops import inverse
from itemfold.ops.inverse import invert
from itemfold.sampling.base import Batch
from itemfold.sampling.batches import Batches
from itemfold.sampling.user_rows import UserRows
from itemfold.training.adam import Adam

UNKNOWN = np.full(30, -1, dtype=np.int64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ready(model: Model, train: sp.csr_array) -> Graph:
    """Set the model up and solve its closed form, if it has one."""
    model.setup(train, inductive=False, generator=generator())
    if model.kind is Kind.CLOSED_FORM:
        model.solve(train)
    return Graph.from_csr(train)


def batch_of(train: sp.csr_array, by: Any = "users", size: int = 7, positives: int = 4) -> Batch:
    """A batch of lists, the last of them padding."""
    batches = Batches(Graph.from_csr(train), by, size, positives)
    keys = batches.epoch(generator())[0].clone()
    keys[-1] = -1
    return batches.draw(keys, generator(1))


def loss_of(model: Model, graph: Graph, batch: Batch, seed: int) -> float:
    loss = model.own_loss(graph, batch, generator(seed))
    assert loss is not None
    return float(loss.detach())


def descend(model: Model, graph: Graph, steps: int, lr: float = 0.1) -> list[float]:
    """Train for some steps, as the training loop does."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    batches, draw = Batches(graph, "users", 8, 3), generator(5)
    out = []
    while len(out) < steps:
        for keys in batches.epoch(draw):
            optimizer.zero_grad()
            loss = model.own_loss(graph, batches.draw(keys, draw), draw)
            assert loss is not None
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            out.append(float(loss.detach()))
    return out


# --- CML -----------------------------------------------------------------------------------------


def test_weight_decay_of_mf_shrinks_vectors_that_no_batch_has() -> None:
    """Without a gradient, Adam's first step moves a value by the learning rate towards zero."""
    model = MF(dim=4, weight_decay=0.1)
    model.setup(
        random_matrix(5, 7, 0.5), inductive=False, generator=torch.Generator().manual_seed(0)
    )
    (group,) = model.parameter_groups(0.01)
    optimizer = Adam([group])
    before = model.users.detach().clone()
    (0.0 * model.users.sum() + 0.0 * model.items.sum()).backward()
    optimizer.step()
    far = before.abs() > 0.02
    torch.testing.assert_close((before - model.users)[far], 0.01 * before.sign()[far])


def test_cml_vectors_stay_in_the_unit_ball_and_scores_are_negative_distances() -> None:
    train = random_matrix(30, 20, 0.3)
    model = CML(dim=4, margin=1.5, negatives=5)
    graph = ready(model, train)
    pushed = 0.0
    for _ in range(6):  # such long steps leave the ball repeatedly
        descend(model, graph, 4, lr=0.5)
        pushed = max(pushed, float(model.users.detach().norm(dim=1).max()))
        for points in model.encode(graph):
            assert points.norm(dim=1).max() <= 1 + 1e-6
    assert pushed > 1
    model.cache_embeddings(graph)
    assert model.user_vectors.norm(dim=1).max() <= 1 + 1e-6
    users = np.arange(30)
    gap = model.user_vectors[:, None] - model.item_vectors[None]
    torch.testing.assert_close(
        model.scores(train, users), -gap.square().sum(2), rtol=1e-4, atol=1e-5
    )


def test_cml_loss_equals_the_definition_pair_by_pair() -> None:
    train = random_matrix(30, 20, 0.3)
    model = CML(dim=4, margin=0.7, negatives=5)
    graph, batch = ready(model, train), batch_of(train)
    drawn = model.draw(graph, batch.users, 5, generator(3))
    users, items = (part.detach().double().numpy() for part in model.encode(graph))
    total, pairs = 0.0, 0
    for row, user in enumerate(batch.users.tolist()):
        far = [np.sum((users[user] - items[j]) ** 2) for j in drawn[row].tolist()]
        for place in np.flatnonzero(batch.mask[row].numpy()):
            near = np.sum((users[user] - items[batch.positives[row, place]]) ** 2)
            rank = 20 * np.mean([0.7 + near - d > 0 for d in far])
            total += max(0.7 + near - min(far), 0) * np.log(1 + rank)
            pairs += 1
    assert loss_of(model, graph, batch, 3) == pytest.approx(total / pairs, rel=1e-5)


# --- ENMF ----------------------------------------------------------------------------------------


def test_enmf_closed_form_equals_the_sum_over_all_pairs() -> None:
    train = random_matrix(30, 20, 0.3)
    model = ENMF(dim=5, negative_weight=0.2, dropout=0.0).double()
    graph = ready(model, train)
    model.double()
    model.weight.data = torch.rand(5, generator=generator(2), dtype=torch.float64)
    batch = batch_of(train)
    users, items = model.encode(graph)
    real = batch.mask.any(1)
    rows = batch.users[real]
    scores = users[rows] @ items.T  # [b, items]
    liked = torch.from_numpy(train[rows.numpy()].toarray()).bool()
    each = torch.where(liked, (1 - scores) ** 2, 0.2 * scores**2)
    naive = (each.sum() - liked.sum()) / len(rows)
    loss = model.own_loss(graph, batch, generator())
    torch.testing.assert_close(loss, naive)
    for found, wanted in zip(
        torch.autograd.grad(loss, list(model.parameters())),
        torch.autograd.grad(naive, list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted)


def test_enmf_dropout_keeps_scores_in_the_mean() -> None:
    """E ŷ = ŷ and E ŷ² = ŷ² + (1 − k)/k · Σ_a (h p q)_a², so the mean loss is known exactly."""
    train = random_matrix(30, 20, 0.3)
    model = ENMF(dim=5, negative_weight=0.2, dropout=0.3)
    graph, batch = ready(model, train), batch_of(train)
    torch.nn.init.normal_(model.users, generator=generator(1))
    torch.nn.init.normal_(model.items, generator=generator(2))
    draws = [loss_of(model, graph, batch, s) for s in range(600)]
    rows = batch.users[batch.mask.any(1)]
    parts = model.users.detach()[rows][:, None] * model.items.detach()  # [b, items, d]
    score = parts.sum(2)
    square = score.square() + 0.3 / 0.7 * parts.square().sum(2)
    liked = torch.from_numpy(train[rows.numpy()].toarray()).bool()
    each = torch.where(liked, square - 2 * score, 0.2 * square)
    error = np.std(draws) / np.sqrt(len(draws))
    assert np.mean(draws) == pytest.approx(float(each.sum() / len(rows)), abs=4 * error)
    assert len(set(draws)) == len(draws)


def test_rows_of_a_batch_are_all_its_training_items() -> None:
    train = random_matrix(30, 20, 0.3)
    graph, batch = Graph.from_csr(train), batch_of(train)
    starts, owner, item, valid = UserRows()(graph, batch.users, batch.mask.any(1))
    found = {(int(o), int(i)) for o, i, v in zip(owner, item, valid, strict=True) if v}
    assert found == {
        (row, int(i))
        for row, user in enumerate(batch.users.tolist())
        if batch.mask[row].any()
        for i in train[[user]].indices
    }
    assert starts.tolist() == np.searchsorted(owner.numpy(), np.arange(len(starts))).tolist()


# --- walks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_walks_follow_edges_only(p: float, q: float) -> None:
    train = random_matrix(30, 20, 0.1)
    graph = Graph.from_csr(train)
    linked = np.zeros((50, 50), dtype=bool)
    linked[:30, 30:] = train.toarray() > 0
    linked |= linked.T
    walks = random_walks(graph, torch.arange(50).repeat(20), 12, generator(), p, q).numpy()
    alive = linked.any(1)[walks[:, 0]]
    assert (walks[~alive, 1:] == -1).all()
    assert (~alive).sum() >= 40  # the last user and the last item have no edge
    steps = walks[alive]
    assert linked[steps[:, :-1], steps[:, 1:]].all()


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_walks_have_the_transition_probabilities_of_node2vec(p: float, q: float) -> None:
    """Chi-square of x given t → v, for every (t, v), against the definition on a small graph."""
    dense = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1]], dtype=np.float32)
    graph = Graph.from_csr(sp.csr_array(dense))
    linked = np.zeros((7, 7))
    linked[:3, 3:] = dense
    linked = linked + linked.T
    walks = random_walks(graph, torch.arange(7).repeat(4000), 6, generator(7), p, q).numpy()
    seen = np.zeros((7, 7, 7))
    for step in range(4):
        np.add.at(seen, (walks[:, step], walks[:, step + 1], walks[:, step + 2]), 1)
    statistic, freedom = 0.0, 0
    for t, v in np.argwhere(linked):
        weight = np.where(np.arange(7) == t, 1 / p, np.where(linked[t] > 0, 1.0, 1 / q)) * linked[v]
        expected = seen[t, v].sum() * weight / weight.sum()
        possible = expected > 0
        assert seen[t, v][~possible].sum() == 0
        statistic += float(((seen[t, v] - expected)[possible] ** 2 / expected[possible]).sum())
        freedom += int(possible.sum()) - 1
    assert stats.chi2.sf(statistic, freedom) > 1e-3


def test_nodes_are_drawn_by_a_power_of_their_degree() -> None:
    degree = torch.tensor([0.0, 1.0, 4.0, 16.0, 0.0])
    drawn = NodeDraws(degree, 0.5)((100, 200), generator()).flatten().numpy()
    counts = np.bincount(drawn, minlength=5)
    assert counts[0] == counts[4] == 0
    expected = np.array([1, 2, 4]) / 7 * len(drawn)
    assert stats.chisquare(counts[1:4], expected).pvalue > 1e-3


def test_skip_gram_equals_a_loop_over_windows() -> None:
    rng = np.random.default_rng(0)
    centre, context = rng.normal(size=(2, 2, 6, 3))
    noise = rng.normal(size=(2, 4, 3))
    real = np.ones((2, 6), dtype=bool)
    real[1, 1:] = False  # a start without neighbours has no pairs
    total = weights = 0.0
    for one in range(6):
        for other in range(6):
            gap = abs(one - other)
            if gap == 0 or gap > 2:
                continue
            weight = (3 - gap) / 2
            far = np.logaddexp(0, noise[0] @ centre[0, one]).mean()
            near = np.logaddexp(0, -centre[0, one] @ context[0, other])
            total += weight * (near + 5 * far)
            weights += weight
    parts = (torch.from_numpy(part) for part in (centre, context, real, noise))
    assert float(skip_gram(*parts, window=2, negatives=5)) == pytest.approx(total / weights)


@pytest.mark.parametrize("kind", [DeepWalk, Node2Vec])
def test_walk_models_score_by_the_modelled_products(kind: type[DeepWalk]) -> None:
    train = random_matrix(30, 20, 0.3)
    model = kind(dim=6, length=8, window=2, shared=10)
    graph = ready(model, train)
    losses = descend(model, graph, 40, lr=0.03)
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    model.cache_embeddings(graph)
    centre, context = model.centre.detach(), model.context.detach()
    both = centre[:30] @ context[30:].T + context[:30] @ centre[30:].T
    torch.testing.assert_close(model.scores(train, np.arange(30)), both)


def test_node2vec_settings_reach_the_walk() -> None:
    """A walk that must return visits two nodes; the loss of p → 0 is the loss of those walks."""
    dense = sp.csr_array(np.ones((6, 6), dtype=np.float32))
    walks = random_walks(Graph.from_csr(dense), torch.arange(12), 9, generator(), 1e-9, 1.0)
    assert all(len(set(row)) == 2 for row in walks.tolist())
    away = random_walks(Graph.from_csr(dense), torch.arange(12), 9, generator(), 1e9, 1.0)
    assert (away[:, 2:] != away[:, :-2]).all()
    assert (Node2Vec(p=0.5, q=3.0).p, Node2Vec(p=0.5, q=3.0).q) == (0.5, 3.0)
    assert (DeepWalk().p, DeepWalk().q) == (1.0, 1.0)


# --- LINE ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, "both"])
@pytest.mark.parametrize("by", ["users", "interactions"])
def test_line_gradient_equals_that_of_the_naive_formula(order: Any, by: str) -> None:
    train = random_matrix(30, 20, 0.3)
    model = LINE(dim=4, order=order, negatives=3, l2=0.3)
    graph, batch = ready(model, train), batch_of(train, by)
    loss = model.own_loss(graph, batch, generator(4))
    again, shape = generator(4), (batch.positives.numel(), 3)
    noise_users, noise_items = model.user_noise(shape, again), model.item_noise(shape, again)
    tables = []  # vectors of a user and what items are to it, then the other direction
    if order in (1, "both"):
        near = (model.near_users, model.near_items)
        tables.append((*near, model.near_items, model.near_users))
    if order in (2, "both"):
        tables.append((model.users, model.item_context, model.items, model.user_context))
    terms, edge = [], 0
    for row, user in enumerate(batch.users.tolist()):
        for item, real in zip(batch.positives[row].tolist(), batch.mask[row].tolist(), strict=True):
            if real:
                term = torch.zeros(())
                for of_user, to_item, of_item, to_user in tables:
                    term = term - torch.sigmoid(of_user[user] @ to_item[item]).log()
                    term = term - torch.sigmoid(of_item[item] @ to_user[user]).log()
                    for j in noise_items[edge].tolist():
                        term = term - torch.sigmoid(-of_user[user] @ to_item[j]).log()
                    for v in noise_users[edge].tolist():
                        term = term - torch.sigmoid(-of_item[item] @ to_user[v]).log()
                for name, table in model.named_parameters():
                    node = user if "user" in name else item
                    term = term + 0.15 * table[node].square().sum()
                terms.append(term)
            edge += 1
    naive = torch.stack(terms).mean()
    torch.testing.assert_close(loss, naive)
    for found, wanted in zip(
        torch.autograd.grad(loss, list(model.parameters())),
        torch.autograd.grad(naive, list(model.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


# --- Mult-VAE ------------------------------------------------------------------------------------


def test_mult_vae_loss_equals_the_bound() -> None:
    train = random_matrix(30, 20, 0.3)
    model = MultVAE(hidden=8, latent=3, dropout=0.0, beta=0.5, anneal=4)
    graph, batch = ready(model, train), batch_of(train)
    rows = batch.users[batch.mask.any(1)]
    x = torch.from_numpy(train[rows.numpy()].toarray())
    mean, log_variance = model.encode(x / x.norm(dim=1, keepdim=True))
    for step in range(1, 7):  # β rises to its setting over four steps, then is constant
        loss = model.own_loss(graph, batch, generator(step))
        draw = generator(step)
        torch.rand(int(x.sum()), generator=draw)  # the draws of the dropout, which drops nothing
        noise = torch.randn(len(batch.users), 3, generator=draw)[batch.mask.any(1)]
        logits = model.decode(mean + noise * (log_variance / 2).exp())
        prior = torch.distributions.Normal(0.0, 1.0)
        found = torch.distributions.Normal(mean, (log_variance / 2).exp())
        gap = torch.distributions.kl_divergence(found, prior).sum(1)
        beta = 0.5 * min(step / 4, 1)
        bound = -(x * torch.log_softmax(logits, 1)).sum(1) + beta * gap
        torch.testing.assert_close(loss, bound.mean())
    scores = model.scores(train[rows.numpy()], np.full(len(rows), -1))
    torch.testing.assert_close(scores, model.decode(mean).detach())


def test_mult_vae_drops_inputs_but_never_targets() -> None:
    """With all weights zero the prediction is uniform, whatever input is dropped."""
    train = random_matrix(30, 20, 0.3)
    model = MultVAE(hidden=8, latent=3, dropout=0.5)
    graph, batch = ready(model, train), batch_of(train)
    draws = {loss_of(model, graph, batch, s) for s in range(4)}
    assert len(draws) == 4
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    rows = batch.users[batch.mask.any(1)].numpy()
    assert loss_of(model, graph, batch, 1) == pytest.approx(
        np.diff(train.indptr)[rows].mean() * np.log(20), rel=1e-5
    )


# --- UltraGCN ------------------------------------------------------------------------------------


def test_ultragcn_constants_equal_their_formulas() -> None:
    train = random_matrix(30, 20, 0.4)
    x = train.toarray().astype(np.float64)
    gram = x.T @ x
    total = gram.sum(1)
    with np.errstate(all="ignore"):
        omega = gram / (total - gram.diagonal())[:, None] * np.sqrt(total[:, None] / total)
    omega = np.nan_to_num(omega)
    np.fill_diagonal(omega, -1)
    near, weight = item_graph(train, 5)
    np.testing.assert_allclose(weight[:-1], -np.sort(-omega, axis=1)[:-1, :5], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(omega, near.numpy(), 1)[:-1], weight[:-1], 1e-5)
    assert (near != torch.arange(20).unsqueeze(1)).all()
    assert (weight[-1] == 0).all()  # an item without interactions has no weight


def test_ultragcn_loss_equals_the_definition_pair_by_pair() -> None:
    train = random_matrix(30, 20, 0.3)
    model = UltraGCN(4, 0.1, 1.0, 0.2, 0.5, 6, 3.0, 0.7, 2, 0.01)
    graph, batch = ready(model, train), batch_of(train)
    torch.nn.init.normal_(model.users, generator=generator(1))
    torch.nn.init.normal_(model.items, generator=generator(2))
    drawn = model.draw(graph, batch.users, 6, generator(3))
    users, items = model.users.detach().double().numpy(), model.items.detach().double().numpy()
    du, di = train.sum(1), train.sum(0)
    near, omega = (part.numpy() for part in item_graph(train, 2))

    def beta(u: int, i: int) -> float:
        return float(np.sqrt((du[u] + 1) / (di[i] + 1)) / du[u])

    total, pairs = 0.0, 0
    for row, u in enumerate(batch.users.tolist()):
        for place in np.flatnonzero(batch.mask[row].numpy()):
            i = int(batch.positives[row, place])
            total += (0.1 + beta(u, i)) * np.logaddexp(0, -users[u] @ items[i])
            for j in drawn[row].tolist():
                total += 0.5 * (0.2 + 0.5 * beta(u, j)) * np.logaddexp(0, users[u] @ items[j])
            for j, weight in zip(near[i], omega[i], strict=True):
                total += 0.7 * weight * np.logaddexp(0, -users[u] @ items[j])
            pairs += 1
    total += 0.005 * ((users**2).sum() + (items**2).sum())
    assert loss_of(model, graph, batch, 3) == pytest.approx(total / pairs, rel=1e-5)


# --- item–item models ----------------------------------------------------------------------------


def dense_weights(model: ItemKNN | SLIM) -> npt.NDArray[np.float32]:
    """Scores of every single item as a history are the rows of the weights."""
    one_each = sp.csr_array(np.eye(model.n_items, dtype=np.float32))
    return model.scores(one_each, np.full(model.n_items, -1)).numpy()


def test_itemknn_is_the_shrunk_cosine_of_the_nearest() -> None:
    train = random_matrix(60, 25, 0.3)
    model = ItemKNN(neighbours=6, shrink=2.0)
    ready(model, train)
    x = train.toarray().astype(np.float64)
    length = np.sqrt(x.sum(0))
    cosine = x.T @ x / (np.outer(length, length) + 2)
    np.fill_diagonal(cosine, 0)
    weights = dense_weights(model)
    for j in range(25):
        kept = np.flatnonzero(weights[:, j])
        assert len(kept) <= 6
        np.testing.assert_allclose(weights[kept, j], cosine[kept, j], rtol=1e-5)
        left = np.delete(cosine[:, j], kept)
        assert left.max() <= (cosine[kept, j].min() if len(kept) == 6 else 0) + 1e-9
    history = train[:8]
    scores = model.scores(history, UNKNOWN[:8])
    np.testing.assert_allclose(scores, x[:8] @ weights, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model.scores_on_device(history), scores)  # the method used on a GPU


def test_slim_on_all_items_is_ease() -> None:
    train = random_matrix(60, 25, 0.3)
    slim, ease = SLIM(neighbours=100, l2=5.0), EASE(l2=5.0)
    ready(slim, train)
    ready(ease, train)
    np.testing.assert_allclose(dense_weights(slim), ease.weights, atol=1e-5)


@pytest.mark.parametrize(("l1", "sign"), [(0.5, False), (0.5, True), (0.0, True)])
def test_slim_is_optimal_on_its_neighbours(l1: float, sign: bool) -> None:
    """The optimality conditions of each column: no neighbour's weight should move."""
    train = random_matrix(60, 25, 0.3)
    model = SLIM(neighbours=10, l1=l1, l2=3.0, positive=sign, sweeps=200)
    ready(model, train)
    x = train.toarray().astype(np.float64)
    gram, weights = x.T @ x, dense_weights(model).astype(np.float64)
    root = np.sqrt(np.maximum(gram.diagonal(), 1))
    assert (weights < 0).any() != sign
    for j in range(24):
        cosine = gram[:, j] / root
        cosine[j] = -1
        near = np.argsort(-cosine, kind="stable")[:10]
        assert set(np.flatnonzero(weights[:, j])) <= set(near) | set(
            np.flatnonzero(np.isclose(cosine, cosine[near[-1]]))
        )
        slope = gram @ weights[:, j] - gram[:, j] + 3.0 * weights[:, j]
        up, zero = weights[:, j] > 0, weights[:, j] == 0
        np.testing.assert_allclose(slope[up], -l1, atol=1e-3)
        np.testing.assert_allclose(slope[weights[:, j] < 0], l1, atol=1e-3)
        still = np.intersect1d(np.flatnonzero(zero), near[cosine[near] > cosine[near[-1]]])
        assert (slope[still] > -l1 - 1e-3).all()
        assert sign or (slope[still] < l1 + 1e-3).all()


def test_l1_makes_slim_sparser() -> None:
    train = random_matrix(60, 25, 0.3)
    counts = []
    for l1 in (0.0, 1.0, 3.0):
        model = SLIM(neighbours=10, l1=l1, l2=3.0)
        ready(model, train)
        counts.append(len(model.weight_values))
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize(
    "make", [lambda: EASE(l2=5.0), lambda: SLIM(l2=5.0), lambda: ItemKNN(), lambda: GFCF(dim=4)]
)
def test_an_item_without_interactions_adds_nothing_to_scores(
    make: Callable[[], Model],
) -> None:
    train = random_matrix(60, 25, 0.3)
    model = make()
    ready(model, train)
    only = sp.csr_array(np.eye(25, dtype=np.float32)[[24]])
    scores = model.scores(only, UNKNOWN[:1])
    assert scores.abs().max() < 1e-6


@pytest.mark.parametrize("n", [1, 6, 7, 8, 30])
def test_an_inverse_made_in_blocks_is_the_inverse(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inverse.BLOCK, "cpu", 7)
    monkeypatch.setattr(inverse, "ROWS", 2)
    x = np.random.default_rng(n).normal(size=(n, n))
    matrix = x @ x.T + 0.1 * np.eye(n)
    found = invert(torch.from_numpy(matrix.copy()))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-7, atol=1e-7)


def test_a_matrix_without_inverse_is_refused() -> None:
    with pytest.raises(ItemfoldError, match="try a larger 'l2'"):
        invert(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))


@pytest.mark.parametrize("model", [SLIM(l2=1e-30), IALS(dim=8, l2=1e-30)])
def test_systems_without_a_solution_are_refused(model: Model) -> None:
    train = sp.csr_array(np.ones((6, 5), np.float32))  # all items are the same
    with pytest.raises(ItemfoldError, match="try a larger 'l2'"):
        ready(model, train)


def test_ease_fit_holds_one_matrix_and_a_block() -> None:
    """Peak memory of a fit in a separate process, in copies of the items × items matrix."""
    code = """
import resource, sys, numpy as np, scipy.sparse as sp, torch
from itemfold.models import EASE
torch.set_num_threads(1)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def fit(n):
    rng = np.random.default_rng(0)
    train = sp.csr_array((rng.random((40, n)) < 20 / n).astype(np.float32))
    model = EASE()
    model.setup(train, inductive=False, generator=torch.Generator())
    model.solve(train)
fit(1500)  # memory that libraries keep for products of any size does not count
before = peak()
fit(5000)
print((peak() - before) / (5000 * 5000 * 4))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2


# --- iALS ----------------------------------------------------------------------------------------


def ials_loss(model: IALS, train: sp.csr_array, users: Tensor, items: Tensor) -> Tensor:
    """The objective over all pairs, directly from its formula."""
    x = torch.from_numpy(train.toarray()).double()
    scores = users @ items.T
    fit = (x * (1 - scores) ** 2).sum() + model.alpha * (scores**2).sum()
    a = (x.sum(1) + model.alpha * x.shape[1]) ** model.nu
    b = (x.sum(0) + model.alpha * x.shape[0]) ** model.nu
    ridge = (a * users.square().sum(1)).sum() + (b * items.square().sum(1)).sum()
    return fit + model.l2 * ridge


def test_ials_users_have_zero_gradient_and_the_objective_falls() -> None:
    train = random_matrix(40, 25, 0.3)
    values = []
    for sweeps in (1, 2, 8):
        model = IALS(dim=6, alpha=0.2, l2=0.05, nu=0.5, sweeps=sweeps)
        ready(model, train)
        users = model.user_vectors.double().requires_grad_()
        loss = ials_loss(model, train, users, model.item_vectors.double())
        (gradient,) = torch.autograd.grad(loss, users)
        assert gradient.abs().max() < 1e-4
        values.append(float(loss.detach()))
    assert values[0] > values[1] > values[2]
    by_item = model.solve_side(sp.csr_array(train.T), model.user_vectors)
    items = by_item.double().requires_grad_()
    (gradient,) = torch.autograd.grad(
        ials_loss(model, train, model.user_vectors.double(), items), items
    )
    assert gradient.abs().max() < 1e-4


def test_ials_folds_a_user_in_by_one_solve() -> None:
    train = random_matrix(40, 25, 0.3)
    model = IALS(dim=6, alpha=0.2, l2=0.05, sweeps=3)
    ready(model, train)
    table = model.item_vectors.double().numpy()
    for user in (0, 7, 39):
        history = table[train[[user]].indices]
        ridge = 0.05 * (len(history) + 0.2 * 25)
        system = 0.2 * table.T @ table + history.T @ history + ridge * np.eye(6)
        expected = np.linalg.solve(system, history.sum(0))
        np.testing.assert_allclose(model.user_vectors[user], expected, atol=1e-5)
        np.testing.assert_allclose(model.fold_in(train[[user]])[0], expected, atol=1e-5)


# --- GF-CF ---------------------------------------------------------------------------------------


def test_gf_cf_equals_its_dense_formula() -> None:
    train = random_matrix(40, 25, 0.3)
    model = GFCF(dim=5, alpha=0.4, iterations=60)
    ready(model, train)
    x = train.toarray().astype(np.float64)
    with np.errstate(divide="ignore"):
        du, di = (np.nan_to_num(d**-0.5, posinf=0) for d in (x.sum(1), x.sum(0)))
    normal = du[:, None] * x * di
    basis = np.linalg.svd(normal)[2][:5].T
    low = di[:, None] * (basis @ basis.T) * np.sqrt(x.sum(0))
    expected = x[:9] @ (normal.T @ normal + 0.4 * low)
    np.testing.assert_allclose(model.scores(train[:9], UNKNOWN[:9]), expected, atol=1e-4)


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CML(margin=0.0), "'margin' must be a positive number, got 0.0"),
        (lambda: ENMF(dropout=1.0), "'dropout' must be at least 0 and below 1, got 1.0"),
        (lambda: DeepWalk(window=0), "'window' must be a positive integer, got 0"),
        (lambda: Node2Vec(p=-1.0), "'p' must be a positive number, got -1.0"),
        (lambda: LINE(order=3), "'order' must be 1, 2 or \"both\", got 3"),
        (lambda: MultVAE(beta=-1.0), "'beta' must be a number of at least 0, got -1.0"),
        (lambda: UltraGCN(w3=-2.0), "'w3' must be a number of at least 0, got -2.0"),
        (lambda: ItemKNN(shrink=-1.0), "'shrink' must be a number of at least 0, got -1.0"),
        (lambda: SLIM(l2=0.0), "'l2' must be a positive number, got 0.0"),
        (lambda: IALS(alpha=0.0), "'alpha' must be a positive number, got 0.0"),
        (lambda: GFCF(dim=0), "'dim' must be a positive integer, got 0"),
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], Model], message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        make()
