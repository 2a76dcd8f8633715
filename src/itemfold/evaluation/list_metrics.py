"""Metrics of lists beyond accuracy: diversity, concentration, popularity and calibration.

``lists`` are rows of recommended items, −1 for none, ``[users, k]``. Metrics of single users return
float64 ``[users]``, those of all lists together a number. `metrics.DEFINITIONS` explains them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.evaluation.metrics import TASTE_GROUPS, Metric, coverage, novelty
from itemfold.reranking.item_facts import ItemFacts, long_tail
from itemfold.reranking.list_similarity import mean_similarity
from itemfold.reranking.similarity import UnitVectors

SMOOTHING = 0.01  # α of Steck 2018: the weight of the history's distribution in that of the list
EDGE = 0.2  # share of the users in the first and in the last group


def diversity(lists: Ints, vectors: UnitVectors) -> Floats:
    """1 − the mean cosine of all pairs of a list, 0 without a pair."""
    return np.nan_to_num(1 - mean_similarity(lists, vectors), nan=0.0)


def gini(lists: Ints, n_items: int) -> float:
    """How unequally items are recommended: 0 if all equally often, 1 − 1/items for a single item.

    >>> gini(np.array([[0, 1], [2, 3]]), 4), gini(np.array([[0], [0]]), 4)
    (0.0, 0.75)
    """
    counts = np.sort(np.bincount(lists[lists >= 0], minlength=n_items))
    place = 2 * np.arange(1, n_items + 1) - n_items - 1
    return float((place * counts).sum() / max(n_items * counts.sum(), 1))


def user_groups(history: sp.csr_array, popularity: Ints) -> dict[str, Ints]:
    """Rows of users in each of `TASTE_GROUPS`, by the share of popular items in their history.

    Users without a history are in no group.
    """
    known = np.flatnonzero(np.diff(history.indptr))
    head = (~long_tail(popularity)).astype(np.float64)
    share = _means(history, head)[known]
    order = known[np.argsort(share, kind="stable")]
    edge = int(np.ceil(EDGE * len(order))) if len(order) > 2 else 0
    parts = (order[:edge], order[edge : len(order) - edge], order[len(order) - edge :])
    return dict(zip(TASTE_GROUPS, parts, strict=True))


def popularity_bias(lists: Ints, history: sp.csr_array, popularity: Ints, users: Ints) -> float:
    """Mean popularity of these users' lists ÷ that of their histories − 1 (ΔGAP)."""
    users = users[np.diff(history.indptr)[users] > 0]
    weights = popularity.astype(np.float64)
    listed = _means(_as_matrix(lists[users], len(weights)), weights).mean() if len(users) else 0.0
    known = _means(history[users], weights).mean() if len(users) else 0.0
    return float(listed / known - 1) if known else 0.0


def miscalibration(lists: Ints, history: sp.csr_array, genres: sp.csr_array) -> Floats:
    """KL(p‖q) of the genres of a history and a list, after Steck 2018; 0 for no genre in p.

    ``genres [items, genres]`` has unit rows; the genres of an item count equally.
    """
    shares = sp.csr_array(genres.multiply(genres))  # squares of a unit row sum to 1
    p = _distribution(history, shares)
    q = _distribution(_as_matrix(lists, genres.shape[0]), shares)
    q = (1 - SMOOTHING) * q + SMOOTHING * p
    ratio = np.divide(p, q, out=np.ones_like(p), where=p > 0)
    return np.asarray((p * np.log(ratio)).sum(1))


def part_recall(lists: Ints, hits: Bools, target: sp.csr_array, part: Bools) -> float:
    """Share of the targets in a part of the catalogue that are in their users' lists."""
    return float((hits & part[lists]).sum() / max(part[target.indices].sum(), 1))


def list_metric(
    metric: Metric,
    lists: Ints,
    hits: Bools,
    history: sp.csr_array,
    target: sp.csr_array,
    facts: ItemFacts,
) -> Any:
    """A metric by its name: values ``[users]``, or one number for all lists."""
    k = metric.k or lists.shape[1]
    top, popularity = lists[:, :k], facts.popularity
    tail = long_tail(popularity)
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
        "head_recall": lambda: part_recall(top, hits[:, :k], target, ~tail),
        "tail_recall": lambda: part_recall(top, hits[:, :k], target, tail),
    }
    return computed[name]()


def _as_matrix(lists: Ints, n_items: int) -> sp.csr_array:
    real = lists >= 0
    ends = np.concatenate([[0], np.cumsum(real.sum(1))])
    return sp.csr_array((np.ones(ends[-1]), lists[real], ends), shape=(len(lists), n_items))


def _means(rows: sp.csr_array, weights: Floats) -> Floats:
    """Mean weight of the items of each row, 0 for none."""
    count = np.maximum(np.diff(rows.indptr), 1)
    return np.asarray((rows.astype(bool).astype(np.float64) @ weights) / count)


def _distribution(rows: sp.csr_array, shares: sp.csr_array) -> Floats:
    """Genre shares of each row, which sum to 1, or 0 without a genre."""
    total = (rows.astype(bool).astype(np.float64) @ shares).toarray()
    return np.asarray(total / np.maximum(total.sum(1, keepdims=True), 1e-12))
