import itertools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from small import bipartite

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.sampling.base import Batch
from itemfold.sampling.batches import Batches, draw_positives


def one_epoch(train: sp.csr_array, by: str, size: int, positives: int, seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    batches = Batches(Graph.from_csr(train), by, size, positives)
    return [batches.draw(keys, generator) for keys in batches.epoch(generator)]


@given(bipartite(least=1), st.integers(1, 12), st.integers(1, 6), st.integers(0, 20))
def test_an_epoch_by_users_has_every_user_once_with_distinct_training_items(
    train: sp.csr_array, size: int, positives: int, seed: int
) -> None:
    batches = one_epoch(train, "users", size, positives, seed)
    assert len({batch.positives.shape for batch in batches}) == 1  # one shape, with padding
    seen = []
    for batch in batches:
        for user, items, mask in zip(batch.users, batch.positives, batch.mask, strict=True):
            real = items[mask].tolist()
            assert ((items >= 0) & (items < train.shape[1])).all()  # padding has valid indices too
            if not real:
                continue
            history = train[[int(user)]].indices.tolist()
            assert set(real) <= set(history)
            assert len(set(real)) == len(real) == min(positives, len(history))
            seen.append(int(user))
    assert sorted(seen) == np.flatnonzero(np.diff(train.indptr)).tolist()


@given(bipartite(least=1), st.integers(1, 12), st.integers(0, 20))
def test_an_epoch_by_interactions_has_each_of_them_once(
    train: sp.csr_array, size: int, seed: int
) -> None:
    batches = one_epoch(train, "interactions", size, 5, seed)
    pairs = [
        (int(user), int(item))
        for batch in batches
        for user, item, real in zip(batch.users, batch.positives, batch.mask, strict=True)
        if real.item()
    ]
    there = train.tocoo()
    assert sorted(pairs) == sorted(zip(there.row.tolist(), there.col.tolist(), strict=True))
    assert all(batch.positives.shape == (min(size, train.nnz), 1) for batch in batches)


def test_only_the_last_batch_is_padded() -> None:
    train = sp.csr_array(np.ones((10, 3), np.float32))
    batches = one_epoch(train, "users", 4, 2, 0)
    assert [int(batch.mask.any(1).sum()) for batch in batches] == [4, 4, 2]


def test_each_epoch_has_a_new_order_and_new_items() -> None:
    train = sp.csr_array(np.ones((50, 30), np.float32))
    generator = torch.Generator().manual_seed(0)
    batches = Batches(Graph.from_csr(train), "users", 50, 3)
    first, second = (batches.draw(batches.epoch(generator)[0], generator) for _ in range(2))
    assert not torch.equal(first.users, second.users)
    by_user = [batch.positives[batch.users.argsort()] for batch in (first, second)]
    assert not torch.equal(*by_user)
    again = one_epoch(train, "users", 50, 3, 0)[0]
    assert torch.equal(again.positives, first.positives)  # the same seed, the same draws


def test_every_pair_of_a_users_items_is_drawn_equally_often() -> None:
    train = sp.csr_array(np.array([[1, 0, 1, 1, 0, 1, 1]], np.float32))
    graph = Graph.from_csr(train)
    n = 20_000
    items, mask = draw_positives(
        graph, torch.zeros(n, dtype=torch.int64), 2, torch.Generator().manual_seed(0)
    )
    assert mask.all()
    drawn = [tuple(sorted(pair)) for pair in items.tolist()]
    pairs = list(itertools.combinations([0, 2, 3, 5, 6], 2))
    counts = [drawn.count(pair) for pair in pairs]
    assert sum(counts) == n
    assert chisquare(counts).pvalue > 1e-3


def test_users_with_few_items_take_them_all() -> None:
    train = sp.csr_array(np.array([[0, 0, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1]], np.float32))
    items, mask = draw_positives(
        Graph.from_csr(train), torch.tensor([0, 1, 2]), 3, torch.Generator().manual_seed(0)
    )
    assert mask.tolist() == [[True, False, False], [True] * 3, [True] * 3]
    assert items[0, 0] == 2
    assert items[1].tolist() == [0, 1, 3]
    assert len(set(items[2].tolist())) == 3


@pytest.mark.parametrize("by", ["users", "interactions"])
def test_training_without_interactions_is_refused(by: str) -> None:
    batches = Batches(Graph.from_csr(sp.csr_array((3, 3), dtype=np.float32)), by, 8, 2)
    with pytest.raises(ItemfoldError, match="training needs interactions"):
        batches.epoch(torch.Generator())
