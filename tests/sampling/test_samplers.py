from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from small import pagerank

from itemfold.errors import ItemfoldError
from itemfold.graph.ppr import personalised_pagerank
from itemfold.sampling import (
    NEGATIVES,
    PPR,
    Batch,
    DrawnNegatives,
    Encoded,
    FalseNegatives,
    InBatch,
    PopularityNegatives,
    Sampler,
    Uniform,
    exact,
    positives,
)
from itemfold.sampling.exact import Draws
from itemfold.sampling.in_batch import parts_of, products
from itemfold.sampling.positives import Positives
from itemfold.sampling.ppr import reference_distribution, scale_free_temperature


def graph(
    n_users: int = 12, n_items: int = 17, density: float = 0.4, seed: int = 0
) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    dense = rng.random((n_users, n_items)) < density * rng.random(n_items) * 2
    dense[:, 0] = False  # no user has every item
    dense[0] = False  # one user has no items
    dense[-1, n_items // 2] = True
    dense[1], dense[1, n_items // 2] = True, False  # one user has all items but one
    return sp.csr_array(dense.astype(np.float32))


def drawn(sampler: Any, train: sp.csr_array, n: int, seed: int = 0) -> np.ndarray:
    """How often each item was drawn for each user, [n_users, n_items]."""
    users = torch.arange(train.shape[0])
    items = sampler(users, n, torch.Generator().manual_seed(seed))
    assert items.dtype == torch.int64
    assert items.shape == (train.shape[0], n)
    counts = np.zeros(train.shape, np.int64)
    np.add.at(counts, (np.repeat(np.arange(train.shape[0]), n), items.numpy().reshape(-1)), 1)
    return counts


def assert_drawn_from(counts: np.ndarray, weight: np.ndarray) -> None:
    """Chi-square for every user against the dense distribution; zero weight is never drawn."""
    for row, wanted in zip(counts, weight.astype(np.float64), strict=True):
        assert row[wanted == 0].sum() == 0
        some = wanted > 0
        if some.sum() > 1:
            expected = wanted[some] / wanted[some].sum() * row.sum()
            assert chisquare(row[some], expected).pvalue > 1e-5


def test_uniform_is_uniform_over_the_items_without_interaction() -> None:
    train = graph()
    sampler = Uniform()
    sampler.prepare(train, "cpu")
    assert_drawn_from(drawn(sampler, train, 20_000), 1.0 - train.toarray())


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0, 2.0])
def test_popularity_follows_the_number_of_interactions(power: float) -> None:
    train = graph()
    sampler = PopularityNegatives(power=power)
    sampler.prepare(train, "cpu")
    degree = train.toarray().sum(0).astype(np.float64)
    weight = (1.0 - train.toarray()) * degree**power
    with_mass = weight.sum(1) > 0
    assert with_mass.all()
    assert_drawn_from(drawn(sampler, train, 20_000), weight)


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixture_of_a_uniform_and_a_sparse_part(share: float, search: bool) -> None:
    train = graph(seed=1)
    rng = np.random.default_rng(2)
    sparse = (1 - train.toarray()) * (rng.random(train.shape) < 0.5) * rng.random(train.shape) ** 3
    sparse[2] = 0  # nothing stored: uniform for any share
    stored = sp.csr_array(sparse)
    parts = (stored.indptr, stored.indices, stored.data.astype(np.float64))
    shares = np.full(train.shape[0], share)
    draws = Draws(train, sparse=parts, share=shares, search=search)
    free = 1.0 - train.toarray()
    shares[sparse.sum(1) == 0] = 0
    weight = (1 - shares)[:, None] * free / free.sum(1, keepdims=True)
    weight += shares[:, None] * sparse / np.maximum(sparse.sum(1, keepdims=True), 1e-30)
    assert_drawn_from(drawn(draws, train, 20_000), weight)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(2, 60), st.floats(0, 1), st.integers(0, 99))
def test_never_a_positive(n_users: int, n_items: int, density: float, seed: int) -> None:
    train = graph(n_users, n_items, density, seed)
    users = torch.randint(n_users, (50,), generator=torch.Generator().manual_seed(seed))
    lookup = Positives(train)
    uniform = Uniform()
    uniform.prepare(train, "cpu")
    samplers: list[Any] = [uniform, Draws(train, search=True)]
    degree = train.toarray().sum(0)
    if ((1 - train.toarray()) @ degree > 0).all():
        popularity = PopularityNegatives()
        popularity.prepare(train, "cpu")
        samplers.append(popularity)
    for sampler in samplers:
        items = sampler(users, 30, torch.Generator().manual_seed(seed))
        assert ((items >= 0) & (items < n_items)).all()
        assert not lookup.is_positive(users, items).any()


def test_a_seed_repeats_and_a_step_does_not() -> None:
    train = graph()
    for sampler in (Uniform(), PopularityNegatives()):
        sampler.prepare(train, "cpu")
        users = torch.arange(12)
        first = sampler(users, 9, torch.Generator().manual_seed(4))
        generator = torch.Generator().manual_seed(4)
        assert torch.equal(first, sampler(users, 9, generator))
        assert not torch.equal(first, sampler(users, 9, generator))


@pytest.mark.parametrize("sampler", [Uniform(), PopularityNegatives()])
def test_a_user_with_every_item_is_refused_by_row(sampler: Any) -> None:
    dense = np.eye(5, 4, dtype=np.float32)
    dense[3] = 1
    with pytest.raises(ItemfoldError, match="user in row 3 has every item"):
        sampler.prepare(sp.csr_array(dense), "cpu")


def test_popularity_stays_exact_with_many_users_and_heavy_items() -> None:
    n_users = 200_000
    rows = np.arange(n_users)
    items = np.where(rows % 2, 0, 1 + rows % 7)
    train = sp.csr_array((np.ones(n_users, np.float32), (rows, items)), shape=(n_users, 9))
    sampler = PopularityNegatives(power=1.0)
    sampler.prepare(train, "cpu")
    last = torch.full((100,), n_users - 1)  # a user with item 0
    counts = np.bincount(
        sampler(last, 500, torch.Generator().manual_seed(0)).reshape(-1), minlength=9
    )
    degree = np.bincount(items, minlength=9).astype(float)
    degree[0] = 0
    assert_drawn_from(counts[None], degree[None])


ALL_PAIRS = [0, 1 << 26]  # bytes: without and with a table of all pairs


@pytest.mark.parametrize("all_pairs", [0, 1 << 26])  # without and with a table of all pairs
def test_positives_are_found_in_lists_per_user(
    all_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positives, "ALL_PAIRS", all_pairs)
    train = graph()
    dense = train.toarray() > 0
    users = torch.tensor([3, 0, 11])
    items = torch.tensor([[1, 2], [16, 0], [16, 5]])
    expected = dense[users.numpy()[:, None], items.numpy()]
    assert (Positives(train).is_positive(users, items).numpy() == expected).all()
    empty = Positives(sp.csr_array((3, 4), dtype=np.float32))
    assert not empty.is_positive(torch.arange(3), torch.arange(4).expand(3, -1)).any()


@pytest.mark.parametrize(
    ("all_pairs", "block", "table", "threaded"),
    [(0, block, table, 0) for block in (1, 30, 1 << 19) for table in (1, 1 << 24)]
    + [(1 << 26, 1, 1, threaded) for threaded in (0, 1 << 22)],
)
def test_negatives_are_the_items_of_a_users_part_without_its_positives(
    all_pairs: int, block: int, table: int, threaded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positives, "ALL_PAIRS", all_pairs)
    monkeypatch.setattr(positives, "THREADED", threaded)
    monkeypatch.setattr(positives, "PLACES_PER_ENTRY", 1000)
    monkeypatch.setattr(positives, "BLOCK", block)
    monkeypatch.setattr(positives, "TABLE", table)
    train = graph()
    dense = train.toarray() > 0
    lookup, random = Positives(train), torch.Generator().manual_seed(0)
    n_users, n_items = train.shape
    size, part = 5, np.array([0] * 3 + [1] * 5 + [2] * 4)  # the first part lacks 2 rows
    for _ in range(2):  # the second call finds the table as it was
        users = torch.randint(n_users, (12,), generator=random)
        shared = torch.randint(n_items, (3, 23), generator=random)  # with repeated items
        real = torch.rand(3, 23, generator=random) < 0.7
        positive = dense[users.numpy()[:, None], shared.numpy()[part]]
        found = lookup.negatives(users, shared, real, size, before=2)
        assert (found.numpy() == (real.numpy()[part] & ~positive)).all()


def test_in_batch_masks_padding_and_the_users_training_items() -> None:
    train = graph()
    dense = train.toarray() > 0
    sampler = InBatch()
    sampler.prepare(train, "cpu")
    users = torch.tensor([1, 2])
    positives, mask = torch.tensor([[0, 1], [3, 3]]), torch.tensor([[True, True], [True, False]])
    items = positives.reshape(-1)
    vectors = Encoded(torch.randn(train.shape[0], 4), torch.randn(train.shape[1], 4))
    batch = Batch(users, positives, mask)
    keep = sampler.score(vectors, batch, 0, torch.Generator()).neg_mask
    assert keep is not None
    for b, user in enumerate(users.tolist()):
        for m, item in enumerate(items.tolist()):
            assert keep[b, m] == (mask.reshape(-1)[m] and not dense[user, item])


@pytest.mark.parametrize("group", [1, 3, 4, 7, 50])
def test_groups_of_a_batch_have_the_negatives_that_each_would_have_alone(group: int) -> None:
    train = graph()
    whole, parts = InBatch(), InBatch(group=group)
    for sampler in (whole, parts):
        sampler.prepare(train, "cpu")
    coo = train.tocoo()
    rows, cols = torch.from_numpy(coo.row[:7]).long(), torch.from_numpy(coo.col[:7]).long()
    real = torch.ones(7, 1, dtype=torch.bool)
    real[5] = False
    vectors = Encoded(torch.randn(train.shape[0], 4), torch.randn(train.shape[1], 4))
    found = parts.score(vectors, Batch(rows, cols[:, None], real), 0, torch.Generator())
    assert found.neg_mask is not None
    assert isinstance(found.neg, torch.Tensor)
    for start in range(0, 7, group):
        part = slice(start, start + group)
        alone = whole.score(
            vectors, Batch(rows[part], cols[part, None], real[part]), 0, torch.Generator()
        )
        assert alone.neg_mask is not None
        assert isinstance(alone.neg, torch.Tensor)
        width = alone.neg.shape[1]
        torch.testing.assert_close(found.pos[part], alone.pos)
        torch.testing.assert_close(found.neg[part, :width], alone.neg)
        assert (found.neg_mask[part, :width] == alone.neg_mask).all()
        assert not found.neg_mask[part, width:].any()


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 25))
def test_any_rows_of_a_batch_are_multiplied_with_the_items_of_their_part(
    a: int, b: int, size: int
) -> None:
    rows, length, generator = slice(min(a, b), max(a, b)), 3, torch.Generator().manual_seed(a)
    users = torch.randn(20, 4, generator=generator)
    shared = torch.randn(-(-20 // size), length, 4, generator=generator)
    expected = [users[row] @ shared[row // size].T for row in range(20)[rows]]
    part = parts_of(rows, size)
    found = products(users[rows], shared[part], rows.start - part.start * size, size)
    assert found.shape == (len(expected), length)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_group_of_no_rows_is_refused() -> None:
    with pytest.raises(ItemfoldError, match="'group' must be a positive integer, got 0"):
        InBatch(group=0)


def test_settings_are_the_fields_and_bad_ones_are_refused() -> None:
    assert [f.name for f in fields(PopularityNegatives)] == ["power"]
    for name, kind in NEGATIVES.items():
        sampler = kind()
        assert name
        if issubclass(kind, DrawnNegatives):
            with pytest.raises(ItemfoldError, match="prepared"):
                sampler(torch.arange(2), 3, torch.Generator())
    with pytest.raises(ItemfoldError, match="'power' must be a number of at least 0, got -1"):
        PopularityNegatives(power=-1)


def ppr_counts(train: sp.csr_array, **given_settings: Any) -> np.ndarray:
    sampler = PPR(**given_settings)
    sampler.prepare(train, "cpu")
    return drawn(sampler, train, 20_000)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01, 0.003])
@pytest.mark.parametrize("method", ["power", "push"])
def test_ppr_is_the_dense_softmax(temperature: float, method: Any) -> None:
    train = graph(seed=3)
    known = pagerank(train)
    if method == "push":  # its default is coarse on such a small graph: compare with its own result
        known = personalised_pagerank(train, method="push").matrix().toarray().astype(np.float64)
    weight = np.exp(known / temperature) * (1 - train.toarray())
    expected = reference_distribution(train, known, temperature)
    np.testing.assert_allclose(expected, weight / weight.sum(1, keepdims=True), rtol=1e-12)
    assert_drawn_from(ppr_counts(train, temperature=temperature, method=method), expected)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01, 0.003, 1e-7])
def test_the_mixture_that_is_drawn_from_has_the_probabilities_of_the_definition(
    temperature: float,
) -> None:
    train = graph(40, 60, 0.15, seed=8)
    scores = personalised_pagerank(train)
    weights, share = PPR(temperature=temperature).mixture(train, scores)
    parts = (weights, scores.indices, scores.indptr)
    sparse = sp.csr_array(parts, shape=train.shape).toarray()
    free = 1.0 - train.toarray()
    found = (1 - share)[:, None] * free / free.sum(1, keepdims=True)
    found += share[:, None] * sparse / np.maximum(sparse.sum(1, keepdims=True), 1e-300)
    stored = scores.matrix().toarray().astype(np.float64)
    expected = reference_distribution(train, stored, temperature)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-12)


def test_ppr_softmax_at_a_temperature_that_overflows_is_the_largest_entry() -> None:
    train = graph(seed=3)
    scores = pagerank(train) * (1 - train.toarray())
    counts = ppr_counts(train, temperature=1e-7)
    for row in range(1, train.shape[0]):
        assert counts[row, scores[row].argmax()] == counts[row].sum()


@pytest.mark.parametrize("share", [None, 0.25, 0.0])
def test_ppr_proportional_mixed_with_uniform(share: float | None) -> None:
    train = graph(seed=4)
    free = 1.0 - train.toarray()
    near = pagerank(train) * free
    part = np.full(train.shape[0], 1.0 if share is None else share)
    part[near.sum(1) == 0] = 0
    weight = (1 - part)[:, None] * free / free.sum(1, keepdims=True)
    weight += part[:, None] * near / np.maximum(near.sum(1, keepdims=True), 1e-30)
    assert_drawn_from(ppr_counts(train, mode="proportional", share=share), weight)


@pytest.mark.parametrize("share", [None, 0.5])
def test_ppr_band_is_uniform_over_its_ranks(share: float | None) -> None:
    train = graph(seed=5)
    free = 1.0 - train.toarray()
    scores = personalised_pagerank(train)  # its order, so that a tie does not matter
    part = 1.0 if share is None else share
    weight = np.zeros(train.shape)
    for row in range(train.shape[0]):
        order = scores.indices[scores.indptr[row] : scores.indptr[row + 1]][2:6]
        if len(order):
            weight[row, order] = part / len(order)
            weight[row] += (1 - part) * free[row] / free[row].sum()
        else:  # no item of that rank: uniform
            weight[row] = free[row]
    assert_drawn_from(ppr_counts(train, mode="band", band=(2, 6), share=share), weight)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_auto_temperature_gives_the_sparse_part_its_share_for_every_user(share: float) -> None:
    train = graph(40, 60, 0.15, seed=6)
    scores = personalised_pagerank(train, tolerance=1e-6)
    sampler = PPR(share=share)
    _, shares = sampler.mixture(train, scores)
    near = np.diff(scores.indptr) > 0
    assert shares[near] == pytest.approx(share, rel=1e-4)
    assert (shares[~near] == 0).all()
    counts = ppr_counts(train, share=share)
    free = 1.0 - train.toarray()
    size, flat = np.diff(scores.indptr), np.asarray(scores.values, np.float64)
    heat = scale_free_temperature(scores.indptr, flat, free.sum(1).astype(np.int64), share)
    assert len(heat) == len(size)
    x = pagerank(train) * free / heat[:, None]
    assert_drawn_from(counts, np.exp(x - x.max(1, keepdims=True)) * free)


def test_entries_that_are_not_stored_are_drawn_with_their_mean() -> None:
    train = graph(40, 60, 0.15, seed=7)
    free = 1.0 - train.toarray()
    near = pagerank(train) * free
    stored = personalised_pagerank(train, top=5).matrix().toarray() > 0
    for row in range(train.shape[0]):
        rest = np.flatnonzero(~stored[row] & (free[row] > 0))
        near[row, rest] = near[row, rest].sum() / max(len(rest), 1)
    for settings_, weight in (
        ({"temperature": 0.004}, np.exp(near / 0.004) * free),
        ({"mode": "proportional"}, np.where(near.sum(1, keepdims=True) > 0, near, free)),
    ):
        assert_drawn_from(ppr_counts(train, top=5, **settings_), weight)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"mode": "x"}, "'mode' must be one of temperature, proportional, band, avoid, got 'x'"),
        ({"temperature": 0}, "'temperature' must be a positive number or 'auto', got 0"),
        ({"share": 1.5}, "'share' must be in [0, 1], got 1.5"),
        ({"band": (5, 5)}, "'band' must be two ranks 0 <= low < high, got (5, 5)"),
        ({"mode": "band", "band": (5, 999)}, "'top' must reach the end of the band (5, 999)"),
    ],
)
def test_bad_ppr_settings_get_one_sentence(settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(ItemfoldError) as caught:
        PPR(**settings_)
    assert message in str(caught.value)


def test_ppr_keeps_large_graphs_in_the_cache(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    PPR().prepare(graph())
    assert list(tmp_path.iterdir()) == []
    rng = np.random.default_rng(0)
    dense = rng.random((400, 500)) < 0.6
    large = sp.csr_array(dense.astype(np.float32))
    PPR().prepare(large)
    PPR(share=0.1).prepare(large)  # another way to draw from the same PageRank
    assert len(list((tmp_path / "itemfold" / "ppr").iterdir())) == 1


def test_avoiding_draws_evenly_from_all_but_the_nearest_and_the_positives() -> None:
    rng = np.random.default_rng(3)
    train = sp.csr_array((rng.random((6, 40)) < 0.2).astype(np.float32))
    sampler = PPR(mode="avoid", top=5)
    sampler.prepare(train)
    near = personalised_pagerank(train, top=5).matrix().toarray() > 0
    drawn = sampler(torch.zeros(1, dtype=torch.int64), 40_000, torch.Generator().manual_seed(0))
    counts = np.bincount(drawn[0].numpy(), minlength=40)
    allowed = ~(near[0] | (train.toarray()[0] > 0))
    assert counts[~allowed].sum() == 0
    assert chisquare(counts[allowed]).pvalue > 1e-3


def test_a_sampler_without_its_method_is_named_with_what_it_lacks() -> None:
    @dataclass
    class Silent(Sampler):
        pass

    @dataclass
    class Empty(DrawnNegatives):
        pass

    batch = Batch(torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[True]]))
    encoded = Encoded(torch.ones(1, 2), torch.ones(3, 2))
    with pytest.raises(ItemfoldError, match="Silent must define 'score'"):
        Silent().score(encoded, batch, 2, torch.Generator())
    with pytest.raises(ItemfoldError, match="Empty must define '__call__'"):
        Empty().score(encoded, batch, 2, torch.Generator())


def test_draws_do_not_depend_on_how_many_users_are_marked_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = graph(60, 40)
    users, found = torch.arange(60), []
    for filled in (1, 100, exact.FILLED):
        monkeypatch.setattr(exact, "FILLED", filled)
        draws = exact.Draws(train)(users, 30, torch.Generator().manual_seed(0))
        assert not train.toarray()[users.unsqueeze(1), draws].any()
        found.append(draws)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("n", [1, 30])
def test_draws_are_the_same_whether_positives_are_marked_or_searched(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = graph(60, 40)
    users = torch.arange(60).repeat(20)
    found = []
    for searched in (0, 10**9):  # every draw is searched, and none before the marks
        monkeypatch.setattr(exact, "SEARCHED", searched)
        draws = exact.Draws(train)(users, n, torch.Generator().manual_seed(0))
        assert not train.toarray()[users.unsqueeze(1), draws].any()
        found.append(draws)
    assert torch.equal(*found)


# --- false negatives -----------------------------------------------------------------------------


def test_false_negatives_are_positives_at_the_given_share() -> None:
    train = graph()
    known = train.toarray() > 0
    free, own = (~known).sum(1, keepdims=True), known.sum(1, keepdims=True)
    sampler = FalseNegatives(share=0.3)
    sampler.prepare(train)
    share = np.where(own > 0, 0.3, 0.0)  # a user without items has no false negatives
    weight = np.where(known, share / np.maximum(own, 1), (1 - share) / free)
    assert_drawn_from(drawn(sampler, train, 4000), weight)
    none = FalseNegatives(share=0.0)
    none.prepare(train)
    assert drawn(none, train, 500)[known].sum() == 0
    with pytest.raises(ItemfoldError, match="'share' must be at least 0 and below 1, got 1"):
        FalseNegatives(share=1)
