"""The streamed smooth rank equals the one computed from all scores."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.errors import ItemfoldError
from itemfold.losses import (
    bpr,
    bsl,
    ccl,
    item_ap,
    item_log,
    item_ndcg,
    item_recall,
    neural_ndcg,
    softmax,
)
from itemfold.sampling.full_catalogue import All


def case(seed: int, n_users: int = 12, n_items: int = 23, d: int = 4):
    rng = np.random.default_rng(seed)
    train = sp.csr_array((rng.random((n_users, n_items)) < 0.25).astype(np.float32))
    generator = torch.Generator().manual_seed(seed)
    users = torch.randn(n_users, d, dtype=torch.float64, generator=generator, requires_grad=True)
    items = torch.randn(n_items, d, dtype=torch.float64, generator=generator, requires_grad=True)
    return train, users, items


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), block=st.integers(1, 30), tau=st.sampled_from([0.2, 1.0, 3.0]))
@pytest.mark.parametrize("loss", [item_ndcg, item_ap, item_recall, item_log])
def test_streaming_equals_computing_all_scores(loss, seed, block, tau):
    train, users, items = case(seed)
    index = torch.from_numpy(np.random.default_rng(seed).integers(0, 12, size=7))
    chosen = torch.randint(0, 23, (7, 3), generator=torch.Generator().manual_seed(seed))

    def value(streamed: bool):
        user_vectors = users[index]
        pos = (user_vectors.unsqueeze(1) * items[chosen]).sum(2)
        if streamed:
            sampler = All()
            sampler.prepare(train)
            neg = sampler.catalogue(user_vectors, index, items, distinct=False)
            object.__setattr__(neg, "block", block)
            return loss(pos, neg, None, None, tau=tau)
        known = torch.from_numpy(train.toarray() > 0)[index]
        return loss(pos, user_vectors @ items.T, None, ~known, tau=tau)

    assert torch.allclose(value(True), value(False), atol=1e-10)
    ours = torch.autograd.grad(value(True), (users, items))
    plain = torch.autograd.grad(value(False), (users, items))
    for a, b in zip(ours, plain, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("loss", [bpr, softmax, bsl, ccl, neural_ndcg])
def test_a_loss_that_needs_every_score_says_what_to_choose(loss):
    train, users, items = case(0)
    sampler = All()
    sampler.prepare(train)
    neg = sampler.catalogue(users, torch.arange(12), items, distinct=False)
    with pytest.raises(ItemfoldError, match=r"'negatives' must be sampled .* item-log"):
        loss(torch.zeros(12, 2), neg)
