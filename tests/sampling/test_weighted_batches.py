"""Interactions are drawn for the loss in proportion to their weight."""

import numpy as np
import pytest
import torch
from small import random_matrix, seeded

from itemfold.graph.graph import Graph
from itemfold.sampling.batches import Batches


def weighted_graph(spread: float = 4.0) -> tuple[np.ndarray, Graph]:
    train = random_matrix(30, 20, 0.5)
    rng = np.random.default_rng(0)
    train.data = rng.uniform(1, 1 + spread, train.nnz).astype(np.float32)
    train.data /= train.data.mean()
    return train.toarray(), Graph.from_csr(train)


def counts(graph: Graph, by: str, epochs: int, positives: int = 3) -> np.ndarray:
    out, generator = np.zeros((graph.n_users, graph.n_items)), seeded()
    batches = Batches(graph, by, 16, positives)
    for _ in range(epochs):
        for keys in batches.epoch(generator):
            batch = batches.draw(keys, generator)
            users = batch.users.unsqueeze(1).expand_as(batch.positives)
            np.add.at(out, (users[batch.mask], batch.positives[batch.mask]), 1)
    return out


def test_an_epoch_has_every_interaction_as_often_as_its_weight_rounded_up_or_down():
    weights, graph = weighted_graph()
    once = counts(graph, "interactions", 1)
    assert once.sum() == (weights > 0).sum()
    assert (np.abs(once - weights) < 1 + 1e-4).all()
    many = counts(graph, "interactions", 150) / 150
    np.testing.assert_allclose(many, weights, atol=0.15)


def test_a_users_positives_are_drawn_in_proportion_to_weight_and_are_distinct():
    weights, graph = weighted_graph()
    found = counts(graph, "users", 800) / 800
    assert found.max() <= 1  # nothing twice in a list
    share = 3 * weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)
    expected = np.minimum(share, 1)
    # an interaction that is drawn twice counts once: a little below its share
    assert (found <= expected + 0.08).all()
    assert np.corrcoef(found[weights > 0], expected[weights > 0])[0, 1] > 0.98
    assert ((found > 0) == (weights > 0)).all()


@pytest.mark.parametrize("by", ["users", "interactions"])
def test_without_weights_and_with_nearly_equal_ones_every_interaction_occurs_once(by):
    _, graph = weighted_graph(1e-5)
    assert graph.weight is not None
    plain = Graph(
        graph.crow, graph.col, graph.crow.diff().float(), graph.crow.diff().float(), 30, 20
    )
    for one in (graph, plain):
        found = counts(one, by, 1, positives=20)
        assert found.max() == 1 or one is graph  # rounding may move one draw to a neighbour
        assert np.abs(found - (one.interactions().toarray() > 0)).sum() <= 2


def test_padding_and_users_without_items_are_masked():
    _, graph = weighted_graph()
    batches = Batches(graph, "users", 16, 3)
    batch = batches.draw(torch.tensor([-1, 29, 0]), seeded())  # the last user has no item
    assert batch.mask.any(1).tolist() == [False, False, True]
