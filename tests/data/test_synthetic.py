"""The generated data looks like real data: long tails, communities, noise, readable names."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import svds
from scipy.stats import spearmanr

from itemfold.data.named.synthetic import GENRES, synthetic
from itemfold.errors import ItemfoldError


@pytest.fixture(scope="module")
def data():
    return synthetic()


def test_default_size_and_unique_pairs(data) -> None:
    assert (data.n_users, len(data)) == (3000, 120_000)
    assert 3900 <= data.n_items <= 4000
    assert len(set(zip(data.users.tolist(), data.items.tolist(), strict=True))) == len(data)
    assert data.csr().sum(axis=1).min() >= 5


def test_same_arguments_same_data_other_seed_other_data(data) -> None:
    again, other = synthetic(interactions=120_000), synthetic(seed=1)
    assert again.fingerprint == data.fingerprint != other.fingerprint
    assert (again.times == data.times).all()
    assert (again.titles == data.titles).all()
    assert data.source == {"data": "synthetic"}
    assert "seed=1" in other.source["data"]


def test_with_drift_what_was_popular_fades() -> None:
    def agreement(drift: int) -> float:
        """Rank correlation of the popularity of items in the first and the last third of time."""
        data = synthetic(users=2000, items=400, interactions=40_000, drift=drift)
        early, late = np.quantile(data.times, [1 / 3, 2 / 3])
        counts = [
            np.bincount(data.items[some], minlength=data.n_items)
            for some in (data.times < early, data.times > late)
        ]
        return float(spearmanr(*counts).statistic)

    assert agreement(3) < agreement(1) < agreement(0) - 0.03
    drifting, still = synthetic(drift=2), synthetic()
    assert drifting.fingerprint == still.fingerprint  # only the times differ
    assert drifting.source["data"].endswith("drift=2")
    assert not (drifting.times == still.times).all()


def test_titles_are_readable_and_unique(data) -> None:
    assert len(set(data.titles.tolist())) == data.n_items
    for title, genres in zip(data.titles.tolist(), data.genres.tolist(), strict=True):
        assert title[0].isupper()
        assert 1930 < int(title[-5:-1]) < 2020
        named = genres.split("|")
        assert 1 <= len(named) <= 3
        assert set(named) <= set(GENRES)
    many = synthetic(users=30_000, items=20_000, interactions=60_000)
    assert len(set(many.titles.tolist())) == many.n_items


def test_both_tails_are_long(data) -> None:
    for degree in (data.csr().sum(axis=1), data.csr().sum(axis=0)):
        top = np.sort(degree)[::-1]
        assert top[: len(top) // 10].sum() > 0.37 * len(data)  # a tenth has over a third
        assert np.median(degree) < degree.mean() < 0.2 * degree.max()


def twentieth_singular_value(matrix: sp.csr_array) -> float:
    users, items = (1 / np.sqrt(np.maximum(matrix.sum(axis=k), 1)) for k in (1, 0))
    normal = sp.diags_array(users) @ matrix.astype(np.float64) @ sp.diags_array(items)
    return float(svds(normal, k=20, return_singular_vectors=False, rng=0).min())


def test_taste_has_many_directions(data) -> None:
    """3,000 users of MovieLens-1M have 1.29; communities without niches 1.05."""
    mixed = np.random.default_rng(0).permutation(data.items)  # the same degrees, no taste
    shuffled = sp.csr_array((np.ones(len(data)), (data.users, mixed)), data.csr().shape)
    shuffled.data[:] = 1
    ratio = twentieth_singular_value(data.csr()) / twentieth_singular_value(shuffled)
    assert 1.08 < ratio < 1.6


def recall_at_20(scores: np.ndarray, train: sp.csr_array, test: sp.csr_array) -> float:
    scores = np.where(train.toarray() > 0, -np.inf, scores)
    top = np.argsort(-scores, axis=1)[:, :20]
    hits = np.take_along_axis(test.toarray(), top, axis=1).sum(axis=1)
    wanted = np.diff(test.indptr)
    return float((hits[wanted > 0] / wanted[wanted > 0]).mean())


def test_taste_can_be_learnt_but_not_fully(data) -> None:
    held = np.random.default_rng(0).random(len(data)) < 0.2
    full = data.csr()
    test = sp.csr_array((np.ones(held.sum()), (data.users[held], data.items[held])), full.shape)
    train = sp.csr_array(full - test)
    train.eliminate_zeros()
    popularity = train.sum(axis=0)
    by_popularity = recall_at_20(np.tile(popularity, (data.n_users, 1)), train, test)
    norm = np.sqrt(np.maximum(popularity, 1))
    cosine = (train.T @ train).toarray() / norm / norm[:, None]
    np.fill_diagonal(cosine, 0)
    by_neighbours = recall_at_20(train @ cosine, train, test)
    assert 0.05 < by_popularity < 0.2
    assert 1.3 * by_popularity < by_neighbours < 0.4


def test_times_are_plausible_and_a_user_is_active_for_a_while(data) -> None:
    assert data.times.min() > 1_400_000_000
    spread = [np.ptp(data.times[data.users == u]) for u in range(50)]
    assert 86_400 < np.median(spread) < 365 * 86_400


@pytest.mark.parametrize(
    ("sizes", "word"),
    [
        ({"users": 0}, "'users' must be a positive integer, got 0"),
        ({"interactions": 100}, "between 3000"),
        ({"interactions": 4_000_000}, "30 %"),
        ({"seed": -1}, "'seed'"),
    ],
)
def test_impossible_sizes_are_rejected(sizes: dict, word: str) -> None:
    with pytest.raises(ItemfoldError, match=word):
        synthetic(**sizes)


@pytest.mark.parametrize("sizes", [(1, 4, 1), (10, 10, 30), (300, 20, 1500), (5000, 300, 5000)])
def test_small_and_dense_sizes_work(sizes: tuple) -> None:
    users, items, interactions = sizes
    data = synthetic(users, items, interactions)
    assert data.n_users == users
    assert 0.97 * interactions <= len(data) <= interactions


@pytest.mark.parametrize("sizes", [(500, 300), (50, 80), (200, 3000), (10, 10)])
def test_users_and_items_alone_are_enough(sizes):
    users, items = sizes
    data = synthetic(users, items)
    assert data.n_users == users
    assert 2.9 * users <= len(data) <= 0.3 * users * items
    if items > 2000:  # large enough for the density of the default
        assert len(data) == pytest.approx(0.01 * users * items, rel=0.03)
