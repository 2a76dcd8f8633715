"""LightGCN: the paper's equations, what training computes, and torch-geometric's model agree."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import random_matrix, seeded
from torch import Tensor
from torch_geometric.nn import LightGCN as Theirs

import itemfold.graph.batch_propagation as batch_propagation
from itemfold.graph.graph import Graph
from itemfold.models import LightGCN
from itemfold.models.lightgcn import reference_embeddings

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def matrix(weighted: bool) -> sp.csr_array:
    train = random_matrix(14, 10, 0.35)  # the last user and the last item are isolated
    if weighted:
        train.data = np.random.default_rng(3).uniform(0.2, 4, train.nnz).astype(np.float32)
    return train


def ready(train: sp.csr_array, layers: int, pooling: str, inductive: bool = False) -> LightGCN:
    model = LightGCN(8, layers, pooling)  # type: ignore[arg-type]
    model.setup(train, inductive=inductive, generator=seeded(0))
    return model


def gradients(model: LightGCN, out: Tensor) -> list[Tensor]:
    """Gradients of all parameters for an arbitrary gradient from above."""
    toward = torch.randn(out.shape, generator=seeded(1))
    return list(torch.autograd.grad((out * toward).sum(), list(model.parameters())))


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_reference_equals_torch_geometrics_model(layers: int) -> None:
    graph = Graph.from_csr(matrix(weighted=False))
    theirs = Theirs(graph.n_nodes, 8, layers)
    start = theirs.embedding.weight
    edges = torch.stack([graph.col.long(), graph.row])
    outs = reference_embeddings(graph, start, layers), theirs.get_embedding(edges)
    torch.testing.assert_close(*outs, **CLOSE)
    toward = torch.randn(outs[0].shape, generator=seeded(1))
    slopes = [torch.autograd.grad((out * toward).sum(), start)[0] for out in outs]
    torch.testing.assert_close(*slopes, **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_trains_and_scores_equals_the_reference(
    layers: int, inductive: bool, weighted: bool
) -> None:
    """The mean is the paper's; the sum, the default for unseen users, is K + 1 times as long."""
    train = matrix(weighted)
    graph = Graph.from_csr(train)
    for pooling, factor in (("mean", 1), ("sum", layers + 1)):
        model = ready(train, layers, pooling, inductive)
        expected = reference_embeddings(graph, model.base(graph), layers) * factor
        found = torch.cat(model.encode(graph))
        torch.testing.assert_close(found, expected, **CLOSE)
        for own, other in zip(gradients(model, found), gradients(model, expected), strict=True):
            torch.testing.assert_close(own, other, **CLOSE)
        model.cache_embeddings(graph)
        stored = torch.cat([model.user_vectors, model.item_vectors])
        torch.testing.assert_close(stored, expected.detach(), **CLOSE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_training_step_for_a_batch_of_users_equals_the_reference(
    layers: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_propagation, "MOST", 1.0)
    train = matrix(weighted)
    graph, users = Graph.from_csr(train), torch.tensor([5, 0, 5, 13])
    model = ready(train, layers, "mean")
    encoded = model.encode_step(graph, seeded(0), users=users)
    assert encoded.of_batch
    reference = reference_embeddings(graph, model.base(graph), layers)
    rows = torch.cat([users, torch.arange(graph.n_users, graph.n_nodes)])
    found, expected = torch.cat([encoded.users, encoded.items]), reference[rows]
    torch.testing.assert_close(found, expected, **CLOSE)
    for own, other in zip(gradients(model, found), gradients(model, expected), strict=True):
        torch.testing.assert_close(own, other, **CLOSE)


def test_a_subclass_with_other_vectors_trains_with_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortcut for the users of a batch reads the parameters, so it is not inherited."""

    class Doubled(LightGCN):
        def base(self, graph: Graph) -> Tensor:
            return 2 * super().base(graph)

    monkeypatch.setattr(batch_propagation, "MOST", 1.0)
    train = matrix(weighted=False)
    graph, users = Graph.from_csr(train), torch.tensor([5, 0])
    model = Doubled(8, 2, "mean")
    model.setup(train, inductive=False, generator=seeded(0))
    encoded = model.encode_step(graph, seeded(0), users=users)
    expected = reference_embeddings(graph, model.base(graph), 2)
    torch.testing.assert_close(encoded.items, expected[graph.n_users :], **CLOSE)
    rows = encoded.users if encoded.of_batch else encoded.users[users]
    torch.testing.assert_close(rows, expected[users], **CLOSE)
