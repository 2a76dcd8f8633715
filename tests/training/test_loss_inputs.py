"""Inputs of losses beyond scores and masks, against dense computations and counted draws."""

import functools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from contract import colours
from small import board_split

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.losses import LOSSES, default_training, extra_inputs
from itemfold.models import MODELS
from itemfold.sampling import NEGATIVES
from itemfold.sampling.base import Batch, Encoded, knows_expected
from itemfold.sampling.batches import Batches
from itemfold.settings.resolve import resolve
from itemfold.training.fit import train
from itemfold.training.loss_inputs import GROUPS, OWN_ITEMS, LossInputs, own_scores

# with more samplers, in tests/sampling/test_hard.py and the contract of models
TESTED_ELSEWHERE = ("bpr", "ccl", "softmax", "neural-ndcg", "item-ap", "item-recall")


def matrix(users: int = 12, items: int = 9, share: float = 0.35, seed: int = 0) -> sp.csr_array:
    dense = (np.random.default_rng(seed).random((users, items)) < share).astype(np.float32)
    dense[:, 0], dense[:, -1] = 1, 0  # every user has an item, and one left to draw
    return sp.csr_array(dense)


def encoded(train: sp.csr_array, dim: int = 4) -> Encoded:
    g = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, dim, generator=g) for n in train.shape)
    return Encoded(users, items)


@pytest.mark.parametrize("name", ["uniform", "popularity", "in-batch", "in-batch-group"])
@pytest.mark.parametrize("by", ["users", "interactions"])
def test_expected_counts_are_those_of_many_lists(name: str, by: str) -> None:
    train = matrix()
    sampler = ir.negatives.InBatch(group=3) if name == "in-batch-group" else NEGATIVES[name]()
    sampler.prepare(train)
    graph, generator = Graph.from_csr(train), torch.Generator().manual_seed(1)
    batches = Batches(graph, by, 6, 2)
    vectors = encoded(train)
    n_users, n_items = train.shape
    counted, lists_of = np.zeros((n_users, n_items)), np.zeros(n_users)
    expected = np.full((n_users, n_items), np.nan)
    for _ in range(80):
        for keys in batches.epoch(generator):
            batch = batches.draw(keys, generator)
            lists = sampler.score(vectors, batch, 5, generator)
            if name.startswith("in-batch"):
                shared, real, size = sampler.shared_items(batch)
                items = shared.repeat_interleave(size, 0)[: len(batch.users)]
                kept = real.repeat_interleave(size, 0)[: len(batch.users)].numpy()
                if not batch.mask.any(1).all():
                    continue  # the last batch is shorter
            else:
                items, kept = lists.items, np.ones(lists.items.shape, bool)
            logs = sampler.log_expected(batch, lists).expand(items.shape).numpy()
            for row, user in enumerate(batch.users.tolist()):
                if not batch.mask[row].any():
                    continue
                lists_of[user] += 1
                np.add.at(counted[user], items[row].numpy()[kept[row]], 1)
                expected[user, items[row].numpy()] = np.exp(logs[row])
    found = counted / np.maximum(lists_of, 1)[:, None]
    negative = (train.toarray() == 0) & np.isfinite(expected) & (counted > 0)
    assert negative.sum() > 20
    assert found[negative].sum() == pytest.approx(expected[negative].sum(), rel=0.06)
    # 5 standard deviations of a count, which is at most Poisson
    slack = 5 * np.sqrt(expected / np.maximum(lists_of, 1)[:, None])
    assert (np.abs(found - expected) < slack)[negative].all()


def test_expected_counts_of_uniform_and_popular_draws_sum_to_the_list() -> None:
    train = matrix()
    for name in ("uniform", "popularity"):
        sampler = NEGATIVES[name]()
        sampler.prepare(train)
        users = torch.arange(train.shape[0])
        batch = Batch(users, users[:, None] * 0, torch.ones(len(users), 1, dtype=torch.bool))
        every = torch.arange(train.shape[1]).expand(len(users), -1)
        scored = sampler.score(encoded(train), batch, train.shape[1], torch.Generator())
        lists = type(scored)(scored.pos, scored.neg, every)
        counts = sampler.log_expected(batch, lists).exp().expand(every.shape).numpy()
        drawable = train.toarray() == 0
        if name == "popularity":
            drawable &= train.toarray().any(0)
        assert (counts * drawable).sum(1) == pytest.approx(train.shape[1], rel=1e-4)


def test_samplers_that_choose_by_score_do_not_know_how_often_they_draw() -> None:
    known = {name for name, kind in NEGATIVES.items() if knows_expected(kind)}
    assert known == {"uniform", "popularity", "in-batch", "false-negatives"}


@pytest.mark.parametrize("sampler", ["dynamic", "mixgcf", "ppr", "all"])
def test_sampled_softmax_rejects_them_before_data_is_read(sampler: str) -> None:
    with pytest.raises(ItemfoldError, match="'negatives' must be uniform, popularity or in-batch"):
        resolve({"loss": {"name": "sampled-softmax"}, "negatives": {"name": sampler}})


def test_a_loss_with_an_unknown_input_is_rejected() -> None:
    def own(pos, neg, pos_mask=None, neg_mask=None, *, prices):  # type: ignore[no-untyped-def]
        return pos.mean()

    with pytest.raises(ItemfoldError, match="needs the input 'prices', which training does not"):
        resolve({"model": ir.models.MF(), "loss": own})
    bound = functools.partial(own, prices=2)
    assert extra_inputs(bound) == ()


def test_own_scores_are_those_of_the_users_training_items() -> None:
    train = matrix()
    vectors, users = encoded(train), torch.tensor([3, 0, 7])
    mask = torch.tensor([[True], [True], [False]])
    batch = Batch(users, torch.zeros(3, 1, dtype=torch.long), mask)
    graph = Graph.from_csr(train)
    scores, real = own_scores(graph, vectors, batch, torch.Generator())
    dense = (vectors.users @ vectors.items.T).numpy()
    for row, user in enumerate([3, 0]):
        items = train.indices[train.indptr[user] : train.indptr[user + 1]]
        found = scores[row][real[row]].numpy()
        assert sorted(found) == pytest.approx(sorted(dense[user, items]), abs=1e-5)
    assert not real[2].any()  # padding


def test_a_long_history_is_sampled_without_repetition() -> None:
    train = sp.csr_array(np.ones((1, 5 * OWN_ITEMS + 3), np.float32))
    vectors = Encoded(torch.ones(1, 1), torch.arange(float(train.shape[1]))[:, None])
    batch = Batch(torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[True]]))
    graph, g = Graph.from_csr(train), torch.Generator().manual_seed(0)
    seen: set[float] = set()
    for _ in range(200):
        scores, real = own_scores(graph, vectors, batch, g)
        assert real.all()
        assert len(scores.unique()) == OWN_ITEMS
        seen |= set(scores[0].tolist())
    assert len(seen) == train.shape[1]  # every item has its turn


def test_popularity_logits_are_log_odds_by_groups() -> None:
    train = matrix(users=60, items=40, share=0.2)
    graph = Graph.from_csr(train)
    users, items = torch.arange(60), torch.arange(40).expand(60, -1)
    batch = Batch(users, items, torch.ones(60, 40, dtype=torch.bool))
    found = LossInputs().popularity_logit(graph, batch).numpy()
    dense = train.toarray()

    def tenth(degree: np.ndarray) -> np.ndarray:
        return np.array([int((degree < d).sum()) * GROUPS // len(degree) for d in degree])

    of_users, of_items = tenth(dense.sum(1)), tenth(dense.sum(0))
    for u, i in [(0, 0), (5, 17), (33, 2), (59, 39)]:
        rows, columns = of_users == of_users[u], of_items == of_items[i]
        share = columns.mean()
        given = (dense[rows][:, columns].sum() + share) / (dense[rows].sum() + 1)
        assert found[u, i] == pytest.approx(math.log(given / share), abs=1e-4)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in TESTED_ELSEWHERE])
def test_every_loss_learns_a_checkerboard(name: str) -> None:
    split = board_split()
    single = default_training(LOSSES[name]).get("batch_by") == "interactions"
    run = train(
        split,
        MODELS["lightgcn"](dim=16),
        loss=LOSSES[name],
        epochs=40,
        eval_every=20,
        lr=0.05,
        batch=128 if single else 16,
        n_negatives=10,
        ema_decay=0.9,
        refit=False,
    )
    assert colours(run.model, split.test) > 0.8  # by chance: about 0.3


@pytest.mark.parametrize("sampler", ["uniform", "popularity", "in-batch", "dynamic", "ppr"])
@pytest.mark.parametrize("name", ["sl-at-k", "bc", "adv-info-nce"])
def test_losses_combine_with_samplers(name: str, sampler: str) -> None:
    data = ir.load("synthetic:users=60,items=50")
    split = ir.split_interactions(data)
    model, negatives = MODELS["lightgcn"](dim=8), NEGATIVES[sampler]()
    run = ir.train(split, model, loss=LOSSES[name], negatives=negatives, epochs=2, n_negatives=9)
    assert math.isfinite(run.metrics["test"]["ndcg@20"])
