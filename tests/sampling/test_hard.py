"""Negatives chosen by the model, alone and in training."""

from typing import Any

import numpy as np
import pytest
import torch
from small import batch_of, board_split, random_matrix, ready, seeded

from itemfold.errors import ItemfoldError
from itemfold.losses import bpr, ccl, item_ndcg, neural_ndcg
from itemfold.models import MODELS, EmbeddingModel, LightGCN
from itemfold.sampling.base import Batch, Encoded
from itemfold.sampling.hard import Dynamic, MixGCF
from itemfold.settings.schema import TrainConfig
from itemfold.training.fit import train
from itemfold.training.objective import objective


def test_mixgcf_negative_is_the_hardest_mixture() -> None:
    matrix = random_matrix(9, 20, 0.3)
    model = LightGCN(dim=6, layers=2)
    graph = ready(model, matrix)
    encoded = model.encode_step(graph, seeded(), layers=True)
    users, layers = encoded.users, encoded.item_layers
    batch = batch_of(matrix, per_user=2, padding=1)
    sampler = MixGCF(candidates=5)
    sampler.prepare(matrix)
    user_vectors = users[batch.users]
    hops, drawn = sampler.mix(layers, user_vectors, batch, 3, seeded(7))
    generator = seeded(7)
    candidates = sampler(batch.users, 15, generator).view(-1, 3, 5)
    for hop, (layer, mixed) in enumerate(zip(layers, hops, strict=True)):
        alpha = torch.rand(len(user_vectors), 3, 1, generator=generator)
        for b in range(len(user_vectors)):
            real = batch.positives[b][batch.mask[b]].tolist() or [int(batch.positives[b, 0])]
            for n in range(3):
                positive = layer[real[n % len(real)]]
                a = alpha[b, n]
                every = [a * positive + (1 - a) * layer[j] for j in candidates[b, n]]
                best = max(range(5), key=lambda j: float((user_vectors[b] @ every[j]).detach()))
                torch.testing.assert_close(mixed[b, n], every[best])
                if hop == 0:
                    assert int(drawn[b, n]) == int(candidates[b, n, best])
    assert not matrix.toarray()[batch.users.unsqueeze(1), drawn].any()


def test_mixgcf_scores_concatenated_hops_by_their_own_part() -> None:
    matrix = random_matrix(9, 20, 0.3)
    model = LightGCN(dim=6, layers=2, pooling="concat")
    graph = ready(model, matrix)
    encoded = model.encode_step(graph, seeded(), layers=True)
    users, layers = encoded.users, encoded.item_layers
    batch = batch_of(matrix, per_user=1)
    sampler = MixGCF(candidates=5)
    sampler.prepare(matrix)
    user_vectors = users[batch.users]
    hops, _ = sampler.mix(layers, user_vectors, batch, 1, seeded(7))
    generator = seeded(7)
    candidates = sampler(batch.users, 5, generator)
    for hop, mixed in enumerate(hops):
        alpha = torch.rand(len(user_vectors), 1, 1, generator=generator)[:, 0]
        part = user_vectors[:, 6 * hop : 6 * hop + 6]
        scores = torch.einsum("bd,bmd->bm", part, layers[hop][candidates])
        hardest = candidates.gather(1, scores.argmax(1, keepdim=True))[:, 0]
        expected = alpha * layers[hop][batch.positives[:, 0]] + (1 - alpha) * layers[hop][hardest]
        torch.testing.assert_close(mixed[:, 0], expected)


def test_dynamic_negatives_are_the_best_scored_candidates() -> None:
    matrix = random_matrix(9, 20, 0.3)
    users, items = torch.randn(9, 4, generator=seeded()), torch.randn(20, 4, generator=seeded(1))
    sampler = Dynamic(candidates=4)
    sampler.prepare(matrix)
    everyone = torch.arange(9)
    batch = Batch(
        everyone, torch.zeros(9, 1, dtype=torch.int64), torch.ones(9, 1, dtype=torch.bool)
    )
    lists = sampler.score(Encoded(users, items), batch, 6, seeded(2))
    found = lists.items
    candidates = sampler(everyone, 24, seeded(2)).view(9, 6, 4)
    for user in range(9):
        for n in range(6):
            best = max(candidates[user, n].tolist(), key=lambda j: float(users[user] @ items[j]))
            assert int(found[user, n]) == best
            assert not matrix.toarray()[user, best]


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("loss", [bpr, item_ndcg])
def test_mixed_negatives_reach_the_weights_through_every_hop(loss: Any, similarity: str) -> None:
    matrix = random_matrix(9, 20, 0.3)
    model = LightGCN(dim=6, layers=2)
    graph = ready(model, matrix)
    sampler = MixGCF(candidates=5)
    sampler.prepare(matrix)
    config = TrainConfig(n_negatives=4, l2=0.1, similarity=similarity)
    batch = batch_of(matrix)
    value = objective(model, graph, batch, loss, sampler, config, seeded())
    value.backward()
    assert value.isfinite()
    assert model.item_embedding.grad is not None
    assert (
        model.item_embedding.grad[:-1].norm(dim=1) > 0
    ).all()  # the last item has no interaction


QUICK = {"epochs": 12, "eval_every": 6, "lr": 0.03, "batch": 16, "device": "cpu", "refit": False}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lightgcn", {"loss": bpr, "negatives": MixGCF(candidates=4)}),
        ("lightgcn", {"loss": item_ndcg, "negatives": MixGCF(candidates=4), "n_negatives": 8}),
        ("mf", {"loss": bpr, "negatives": MixGCF(candidates=4), "epochs": 20}),
        ("lightgcn", {"loss": bpr, "negatives": Dynamic(candidates=4)}),
        ("lightgcn", {"loss": neural_ndcg, "n_negatives": 8}),
        ("simplex", {"loss": ccl(margin=0.4), "n_negatives": 8, "epochs": 40, "ema_decay": 0.0}),
    ],
)
def test_these_combinations_learn_a_checkerboard(name: str, settings: dict[str, Any]) -> None:
    split = board_split()
    model = MODELS[name](dim=16)
    assert isinstance(model, EmbeddingModel)
    run = train(split, model, **{**QUICK, **settings})
    best = run.model.scores(split.test.history, split.test.users)
    best[split.test.history.toarray() > 0] = -torch.inf
    user = np.array([int(str(name)[1:]) for name in split.test.ids])
    assert ((best.topk(5).indices.numpy() + user[:, None]) % 2 == 0).mean() > 0.95


@pytest.mark.parametrize("kind", [Dynamic, MixGCF])
def test_zero_candidates_are_refused(kind: Any) -> None:
    with pytest.raises(ItemfoldError, match="'candidates' must be a positive integer, got 0"):
        kind(candidates=0)


def test_mixgcf_refuses_a_model_without_summed_or_concatenated_layers() -> None:
    model = MODELS["nia-gcn"](dim=4)
    with pytest.raises(ItemfoldError, match="cannot be mixgcf: this model"):
        train(board_split(), model, negatives=MixGCF(candidates=2), epochs=1, eval_every=1)
