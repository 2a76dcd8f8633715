"""Whether a given test part is a random draw: a naive loop, random splits, and published splits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.describe import describe
from itemfold.data.splitting import exchangeability
from itemfold.data.splitting.exchangeability import compare_draw, compare_test_part


def naive(users, items, held_out) -> tuple[float, int]:
    """Mean square of the standardised counts, by loops over pairs."""
    n, t = {}, {}
    for u, h in zip(users, held_out, strict=True):
        n[u], t[u] = n.get(u, 0) + 1, t.get(u, 0) + int(h)
    squares = []
    for item in sorted(set(items)):
        pairs = [(u, h) for u, i, h in zip(users, items, held_out, strict=True) if i == item]
        p = [t[u] / n[u] for u, _ in pairs]
        variance = sum(x * (1 - x) for x in p)
        if sum(p) >= exchangeability.MIN_EXPECTED and variance >= exchangeability.MIN_VARIANCE:
            squares.append((sum(int(h) for _, h in pairs) - sum(p)) ** 2 / variance)
    return math.fsum(squares) / max(len(squares), 1), len(squares)


def random_likes(rng, n_users=200, n_items=60):
    chance = rng.random(n_items) * rng.uniform(0.2, 0.8)
    return np.nonzero(rng.random((n_users, n_items)) < chance)


def random_part(rng, users, share):
    """A random share of each user's pairs."""
    held_out = np.zeros(len(users), bool)
    for user in np.unique(users):
        rows = np.flatnonzero(users == user)
        held_out[rng.permutation(rows)[: round(share * len(rows))]] = True
    return held_out


def test_the_figure_is_that_of_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    users, items = random_likes(rng)
    for held_out in (random_part(rng, users, 0.2), items % 7 == 0):
        found = compare_draw(users, items, held_out)
        variance, count = naive(users.tolist(), items.tolist(), held_out.tolist())
        assert found.items == count
        assert found.variance == pytest.approx(variance, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.1, 0.2, 0.5, 0.8]))
def test_random_splits_raise_no_alarm(seed, share) -> None:
    rng = np.random.default_rng(seed)
    users, items = random_likes(rng)
    found = compare_draw(users, items, random_part(rng, users, share))
    assert found is None or found.is_random


def test_the_deviation_is_that_of_simulated_splits() -> None:
    rng = np.random.default_rng(1)
    users, items = random_likes(rng)
    found = [compare_draw(users, items, random_part(rng, users, 0.3)) for _ in range(200)]
    values = np.array([f.variance for f in found])
    assert values.mean() == pytest.approx(1, abs=0.05)
    assert values.std() == pytest.approx(found[0].deviation, rel=0.2)


def test_a_shift_is_reported_by_describe_and_by_the_split() -> None:
    data = ir.load("synthetic:users=300,items=100,interactions=9000")
    rng = np.random.default_rng(2)
    fair = replace(data, held_out=random_part(rng, data.users, 0.2))
    rare = 1 / np.bincount(data.items)[data.items]
    shifted = replace(data, held_out=rng.random(len(data)) < np.minimum(15 * rare, 0.9))
    for given_part, alarm in ((fair, False), (shifted, True)):
        description, split = describe(given_part), ir.split_interactions(given_part)
        for texts in (description.warnings, split.notes):
            assert any("not a random draw" in text for text in texts) == alarm
    variance = compare_test_part(shifted).variance
    assert any(
        f"vary {variance:.1f} times" in note for note in ir.split_interactions(shifted).notes
    )
    assert description.test_draw == pytest.approx(variance, abs=1e-4)
    assert compare_test_part(data) is None
    few = ir.load("synthetic:users=20,items=15,interactions=90")
    assert compare_test_part(replace(few, held_out=few.items < 5)) is None


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "published"), [("ml-1m", 0.97), ("amazon-cds", 1.2), ("yelp2018", 5.3)]
)
def test_published_splits(data_root, name, published) -> None:
    found = compare_test_part(ir.load(name, data_root=data_root))
    assert found.variance == pytest.approx(published, abs=0.05)
    assert found.is_random == (published < 1.5)
