"""Neighbourhoods against a naive loop, whatever the sizes of the head and of blocks."""

import time
from threading import Lock
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.models import EASE, nearest_items
from itemfold.models import neighbourhoods as near
from itemfold.models.ridge_problem import sum_of_squares
from itemfold.ops.thread_map import thread_map

WEIGHTS = np.array([0.25, 0.5, 1, 2], np.float32)  # whose products float32 has exactly


@st.composite
def interactions(draw: st.DrawFn) -> sp.csr_array:
    """Some items have no user, some users no item; weights are ones or not."""
    users, items = draw(st.integers(1, 25)), draw(st.integers(1, 18))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    chance = rng.random(items) ** 2 * draw(st.sampled_from([0.2, 0.6, 1.0]))
    x = (rng.random((users, items)) < chance) * np.float32(1)
    if draw(st.booleans()):
        x = x * rng.choice(WEIGHTS, size=x.shape)
    return sp.csr_array(x.astype(np.float32))


def nearest_by_loop(x: np.ndarray, k: int) -> list[set[int]]:
    """The k items of largest cosine; then, and of equal ones, the most popular."""
    gram, count = x.T @ x, (x > 0).sum(0)
    order = np.argsort(-count, kind="stable").tolist()
    length = np.sqrt(np.where(gram.diagonal() > 0, gram.diagonal(), 1).astype(np.float64))
    out = []
    for j in range(x.shape[1]):
        cosine = gram[:, j] * (1 / length).astype(np.float32)
        shares = ((x > 0) & (x[:, [j]] > 0)).any(0)
        others = [i for i in order if i != j]
        others.sort(key=lambda i: (not shares[i], -cosine[i] if shares[i] else 0))
        out.append(set(others[:k]))
    return out


@settings(max_examples=60, deadline=None)
@given(
    interactions(),
    st.integers(1, 20),
    st.sampled_from([1, 3, 7, 100]),
    st.sampled_from([1, 20, 10**6]),
    st.sampled_from([1, 100, 10**6]),
    st.sampled_from([1, 2, 200]),
)
def test_blocks_have_the_products_of_each_item_and_its_nearest(
    train: sp.csr_array, k: int, head: int, products: int, local: int, rows: int
) -> None:
    x = train.toarray()
    n, gram, blocks = x.shape[1], x.T @ x, []

    def solve(block: near.NeighbourBlock) -> torch.Tensor:
        blocks.append(block)
        return block.wanted + 1

    with (
        patch.multiple(near, HEAD=head, PRODUCTS=products, LOCAL=local),
        patch.multiple(nearest_items, ROWS=rows, KEYS=10 * rows),
    ):
        built = near.Neighbourhoods(train, sum_of_squares(train), k, lambda steps, text: steps)
        sources, solved = built.columns(solve)
    assert sources.shape == solved.shape == (n, min(k, n - 1))
    expected = nearest_by_loop(x, k)
    assert [set(row) for row in sources.tolist()] == expected
    seen = [int(j) for block in blocks for j in block.targets]
    assert sorted(seen) == (list(range(n)) if n > 1 else [])
    for block in blocks:
        for j, listed, own, wanted in zip(
            block.targets, block.sources, block.gram, block.wanted, strict=True
        ):
            assert listed.tolist() == sources[j].tolist()
            np.testing.assert_array_equal(own.tril(), np.tril(gram[np.ix_(listed, listed)]))
            np.testing.assert_array_equal(wanted, gram[listed, j])
            np.testing.assert_array_equal(solved[j], gram[listed, j] + 1)


def groups(users: int = 600, items: int = 300) -> sp.csr_array:
    rng = np.random.default_rng(5)
    chance = 0.3 * (np.arange(items) % 10 == rng.integers(10, size=(users, 1))) + 0.01
    return sp.csr_array((rng.random((users, items)) < chance).astype(np.float32))


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "HEAD", 20)
    monkeypatch.setattr(near, "LOCAL", 4000)
    monkeypatch.setattr(near, "PRODUCTS", 5000)
    train, before, found = groups(), torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            model = EASE(5.0, form="sparse", neighbours=15)
            model.setup(train, inductive=True, generator=torch.Generator())
            model.solve(train)
            assert torch.get_num_threads() == threads
            found.append((model.weight_items, model.weight_values))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, three) for one, three in zip(*found, strict=True))


def test_no_part_begins_after_an_error() -> None:
    before, begun, lock = torch.get_num_threads(), [], Lock()

    def task(number: int) -> int:
        with lock:
            begun.append(number)
        if number == 3:
            raise ValueError("no more")
        time.sleep(0.001)
        return number

    try:
        torch.set_num_threads(2)
        with thread_map() as spread:
            assert list(spread(task, [0, 1, 2])) == [0, 1, 2]
        with pytest.raises(ValueError, match="no more"), thread_map() as spread:
            list(spread(task, [3] + [4] * 10_000))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert len(begun) < 10_000


@given(x=interactions(), leaders=st.tuples(st.integers(1, 3), st.integers(3, 20)))
@settings(max_examples=60, deadline=None)
def test_items_follow_the_leader_of_largest_cosine(
    x: sp.csr_array, leaders: tuple[int, int]
) -> None:
    with patch.object(near, "LEADERS", leaders):
        found = near.Neighbourhoods(x, sum_of_squares(x), 3, lambda steps, text: steps)
        order = found.by_leader()
    assert sorted(order) == list(range(x.shape[1]))
    dense = x.toarray()[:, found.order].astype(np.float64)
    norm = np.sqrt((dense**2).sum(0))
    cosine = dense.T @ dense / np.where(norm > 0, norm, 1)  # [items, leaders]
    best = cosine[:, : leaders[1]].max(1)
    leader = found._nearest_of(np.arange(x.shape[1]), found.by_user[:, : leaders[1]])
    chosen = cosine[np.arange(x.shape[1]), leader]
    np.testing.assert_allclose(chosen, best, rtol=1e-5)
    places = [np.flatnonzero(leader[order] == one) for one in np.unique(leader)]
    assert all((np.diff(place) == 1).all() for place in places)  # followers are consecutive
