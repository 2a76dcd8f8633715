"""Metrics of lists besides accuracy: variety, concentration, popularity and calibration.

``lists`` are rows of recommended items, −1 for none, int ``[users, k]``. Metrics of single users
return float64 ``[users]``, those of all lists together a number. `metrics.py` has the definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.evaluation.metrics import GROUPS, Metric, coverage, novelty
from itemrec.reranking.item_facts import ItemFacts, long_tail
from itemrec.reranking.similarity import UnitVectors, mean_similarity

Floats = npt.NDArray[np.float64]
Lists = npt.NDArray[Any]
SMOOTHING = 0.01  # α of Steck 2018: the share of the history's distribution in that of the list
EDGE = 0.2  # share of the users in the group with the least, and with the most popular tastes


def diversity(lists: Lists, vectors: UnitVectors) -> Floats:
    """1 − the mean cosine of all pairs of a list, 0 without a pair."""
    return np.nan_to_num(1 - mean_similarity(lists, vectors), nan=0.0)


def gini(lists: Lists, n_items: int) -> float:
    """How unequally items are recommended: 0 all alike, 1 − 1/items a single one.

    >>> gini(np.array([[0, 1], [2, 3]]), 4), gini(np.array([[0], [0]]), 4)
    (0.0, 0.75)
    """
    counts = np.sort(np.bincount(lists[lists >= 0], minlength=n_items))
    place = 2 * np.arange(1, n_items + 1) - n_items - 1
    return float((place * counts).sum() / max(n_items * counts.sum(), 1))


def user_groups(history: sp.csr_array, popularity: npt.NDArray[Any]) -> dict[str, Lists]:
    """Users by the share of popular items in their history, the fifth with the smallest first.

    Users without a history are in none of the groups.
    """
    known = np.flatnonzero(np.diff(history.indptr))
    head = (~long_tail(popularity)).astype(np.float64)
    share = _means(history, head)[known]
    order = known[np.argsort(share, kind="stable")]
    edge = int(np.ceil(EDGE * len(order))) if len(order) > 2 else 0
    parts = (order[:edge], order[edge : len(order) - edge], order[len(order) - edge :])
    return dict(zip(GROUPS, parts, strict=True))


def popularity_bias(
    lists: Lists, history: sp.csr_array, popularity: npt.NDArray[Any], users: Lists
) -> float:
    """Mean popularity of these users' lists ÷ that of their histories − 1 (ΔGAP)."""
    users = users[np.diff(history.indptr)[users] > 0]
    weights = popularity.astype(np.float64)
    listed = _means(_as_matrix(lists[users], len(weights)), weights).mean() if len(users) else 0.0
    known = _means(history[users], weights).mean() if len(users) else 0.0
    return float(listed / known - 1) if known else 0.0


def miscalibration(lists: Lists, history: sp.csr_array, genres: sp.csr_array) -> Floats:
    """KL(p‖q) of the genres of a history and a list, after Steck 2018; 0 for no genre in p.

    ``genres [items, genres]`` has unit rows, of which only the places count: the genres of an item
    share it equally.
    """
    shares = sp.csr_array(genres.multiply(genres))  # squares of a unit row sum to 1
    p = _distribution(history, shares)
    q = _distribution(_as_matrix(lists, genres.shape[0]), shares)
    q = (1 - SMOOTHING) * q + SMOOTHING * p
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    out: Floats = (p * np.log(ratio)).sum(1)
    return out


def list_metric(metric: Metric, lists: Lists, history: sp.csr_array, facts: ItemFacts) -> Any:
    """A metric of lists by its name: ``[users]``, or one number for all."""
    k = metric.k or lists.shape[1]
    top, popularity = lists[:, :k], facts.popularity
    name, _, group = metric.name.partition("popularity_bias_")
    if group:
        return popularity_bias(top, history, popularity, user_groups(history, popularity)[group])
    everybody = np.arange(len(top))
    computed: dict[str, Callable[[], Any]] = {
        "diversity": lambda: diversity(top, facts.vectors()),
        "genre_diversity": lambda: diversity(top, facts.multi_hot("genres")),
        "miscalibration": lambda: miscalibration(top, history, facts.multi_hot("genres")),
        "coverage": lambda: coverage(top, len(popularity), k),
        "novelty": lambda: float(np.mean(novelty(top, popularity, k))),
        "gini": lambda: gini(top, len(popularity)),
        "popularity_bias": lambda: popularity_bias(top, history, popularity, everybody),
    }
    return computed[name]()


def _as_matrix(lists: Lists, n_items: int) -> sp.csr_array:
    real = lists >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(1))])
    return sp.csr_array((np.ones(ends[-1]), lists[real], ends), shape=(len(lists), n_items))


def _means(rows: sp.csr_array, weights: Floats) -> Floats:
    """Mean weight of the items of each row, 0 for none."""
    count = np.maximum(np.diff(rows.indptr), 1)
    out: Floats = (rows.astype(bool).astype(np.float64) @ weights) / count
    return out


def _distribution(rows: sp.csr_array, shares: sp.csr_array) -> Floats:
    """Genres of the items of each row as shares that sum to 1, or 0 without a genre."""
    total = (rows.astype(bool).astype(np.float64) @ shares).toarray()
    out: Floats = total / np.maximum(total.sum(1, keepdims=True), 1e-12)
    return out
