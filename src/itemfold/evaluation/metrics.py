"""Ranking metrics as pure functions of hits (cut at k) or of ranks (the whole list).

Cut metrics take ``hits`` bool [rows, K] (whether a user's j-th recommendation is a target),
``n_target`` int [rows] (the number of targets |T|) and a cut-off ``k`` ≤ K; they return float64
[rows]. Full metrics take the 1-based ``ranks`` [t] of all targets of all users, the row of each
target's user, ``rows`` [t], and the number of users. The value of a user without targets is NaN.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.errors import ItemfoldError


def _cut(hits: Bools, k: int) -> Floats:
    """The first k columns of hits as numbers, [rows, k]."""
    if not 1 <= k <= hits.shape[1]:
        raise ItemfoldError(f"'k' must be between 1 and {hits.shape[1]}, got {k}")
    return hits[:, :k].astype(np.float64)


def _ratio(values: Floats, by: Ints | Floats) -> Floats:
    """values ÷ by, NaN where by is 0."""
    out = np.full(len(values), np.nan)
    np.divide(values, by, out=out, where=by > 0)
    return out


def _with_targets(values: Floats, n_target: Ints) -> Floats:
    return np.where(n_target > 0, values, np.nan)


def _ideal_dcg(n: Ints) -> Floats:
    """Σ_{i=1}^{n} 1/log₂(1 + i), 0 for n = 0."""
    discount = 1 / np.log2(np.arange(2, int(n.max(initial=0)) + 2))
    return np.concatenate([[0.0], np.cumsum(discount)])[n]


# --- cut at k ------------------------------------------------------------------------------------


def recall(hits: Bools, n_target: Ints, k: int) -> Floats:
    """Hits in the top k ÷ |T|."""
    return _ratio(_cut(hits, k).sum(1), n_target)


def capped_recall(hits: Bools, n_target: Ints, k: int) -> Floats:
    """Hits in the top k ÷ min(|T|, k): the paper's recall, 1 for a perfect list of any length."""
    return _ratio(_cut(hits, k).sum(1), np.minimum(n_target, k))


def ndcg(hits: Bools, n_target: Ints, k: int) -> Floats:
    """Σ_{j≤k} hit_j/log₂(1 + j) ÷ Σ_{j≤min(|T|,k)} 1/log₂(1 + j).

    >>> ndcg(np.array([[False, True]]), np.array([1]), 2).round(4)
    array([0.6309])
    """
    dcg = _cut(hits, k) @ (1 / np.log2(np.arange(2, k + 2)))
    return _ratio(dcg, _ideal_dcg(np.minimum(n_target, k)))


def ap(hits: Bools, n_target: Ints, k: int) -> Floats:
    """Average precision, Σ_{j≤k} hit_j·precision@j ÷ min(|T|, k); its mean over users is MAP@k."""
    cut = _cut(hits, k)
    precisions = np.cumsum(cut, 1) / np.arange(1, k + 1)
    return _ratio((cut * precisions).sum(1), np.minimum(n_target, k))


def precision(hits: Bools, n_target: Ints, k: int) -> Floats:
    """Hits in the top k ÷ k; a cut-off beyond the catalogue means the whole catalogue."""
    return _with_targets(_cut(hits, k).sum(1) / k, n_target)


def hit(hits: Bools, n_target: Ints, k: int) -> Floats:
    """1 if any of the top k is a target, else 0."""
    return _with_targets(_cut(hits, k).max(1), n_target)


def mrr(hits: Bools, n_target: Ints, k: int) -> Floats:
    """1 ÷ rank of the first hit, 0 if there is none in the top k."""
    return _with_targets((_cut(hits, k) / np.arange(1, k + 1)).max(1), n_target)


# --- the whole list ------------------------------------------------------------------------------


def full_ndcg(ranks: Ints, rows: Ints, n_rows: int) -> Floats:
    """Σ_{p∈T} 1/log₂(1 + rank(p)) ÷ Σ_{j≤|T|} 1/log₂(1 + j)."""
    dcg = np.bincount(rows, 1 / np.log2(1 + ranks), minlength=n_rows).astype(np.float64)
    return _ratio(dcg, _ideal_dcg(np.bincount(rows, minlength=n_rows)))


def full_ap(ranks: Ints, rows: Ints, n_rows: int) -> Floats:
    """1/|T| Σ_{p∈T} rank⁺(p)/rank(p), where rank⁺ is the rank among the user's targets."""
    n_target = np.bincount(rows, minlength=n_rows)
    order = np.lexsort((ranks, rows))  # by user, then by rank
    start = np.cumsum(n_target) - n_target
    place = np.arange(len(ranks)) - start[rows[order]] + 1
    total = np.bincount(rows[order], place / ranks[order], minlength=n_rows)
    return _ratio(total.astype(np.float64), n_target)


def full_mrr(ranks: Ints, rows: Ints, n_rows: int) -> Floats:
    """1 ÷ rank of the first target."""
    best = np.zeros(n_rows)
    np.maximum.at(best, rows, 1 / ranks)
    return _with_targets(best, np.bincount(rows, minlength=n_rows))


# --- the catalogue -------------------------------------------------------------------------------


def coverage(recommended: Ints, n_items: int, k: int) -> float:
    """Share of the catalogue in some user's top k; recommended [rows, K], −1 for no item."""
    top = recommended[:, :k]
    return len(np.unique(top[top >= 0])) / n_items


def novelty(recommended: Ints, popularity: Ints, k: int) -> Floats:
    """Mean over a user's top k of −log₂(popularity ÷ Σ popularity), in bits, [rows].

    `popularity` [n_items] counts training interactions; an item without any counts as having one.
    """
    share = np.maximum(popularity, 1) / max(int(popularity.sum()), 1)
    top = recommended[:, :k]
    real = top >= 0
    bits = np.where(real, -np.log2(share[top]), 0.0)
    return _ratio(bits.sum(1), real.sum(1))


# --- names ---------------------------------------------------------------------------------------

METRICS: dict[str, Callable[[Bools, Ints, int], Floats]] = {
    "recall": recall,
    "capped_recall": capped_recall,
    "ndcg": ndcg,
    "ap": ap,
    "precision": precision,
    "hit": hit,
    "mrr": mrr,
}
FULL_METRICS: dict[str, Callable[[Ints, Ints, int], Floats]] = {
    "ndcg": full_ndcg,
    "ap": full_ap,
    "mrr": full_mrr,
}
TASTE_GROUPS = ("niche", "mixed", "popular")  # users, by the share of popular items they choose
LIST_METRICS = ("diversity", "genre_diversity", "miscalibration")  # with a value for each user
CATALOGUE_METRICS = (  # with one value for all lists
    *("coverage", "gini", "novelty", "popularity_bias"),
    *(f"popularity_bias_{group}" for group in TASTE_GROUPS),
    *("head_recall", "tail_recall"),
)
GENRE_METRICS = ("genre_diversity", "miscalibration")  # need genres
DEFINITIONS = {
    "coverage": "coverage is the share of the catalogue that is in at least one list: higher is "
    "better.",
    "gini": "gini is the Gini coefficient of how often each item of the catalogue is recommended, "
    "0 if all equally often: lower is better.",
    "novelty": "novelty is the mean of −log₂(an item's share of all training interactions) over "
    "the recommended items, in bits: higher means rarer items, not better lists.",
    "diversity": "diversity is 1 − the mean cosine of the pairs of a list, of the model's "
    "centred item vectors or, if it has none, of the items' users: higher is more diverse; it "
    "compares lists of one model, not models.",
    "genre_diversity": "genre_diversity is the same with the genres of the items: higher is more "
    "diverse, and better at the same accuracy.",
    "miscalibration": "miscalibration is the divergence KL(p‖q) of the genres of the history (p) "
    "and of the list (q, with 1 % of p; Steck 2018): lower is better.",
    "popularity_bias": "popularity_bias is the mean popularity of the lists ÷ that of the "
    "histories − 1 (ΔGAP), of all users and of those with niche, mixed and popular tastes (the "
    "fifth with the smallest share of popular items, the rest, the fifth with the largest): the "
    "closest to 0 is best.",
    "head_recall": "head_recall is the share of all targets among the most popular fifth of the "
    "items that are in their users' lists: higher is better.",
    "tail_recall": "tail_recall is the same for all other items: higher is better.",
}
CUT_METRICS = (*METRICS, *LIST_METRICS, *CATALOGUE_METRICS)
HEADLINES = ("ndcg", "recall", "hit", "coverage", "novelty")  # what a summary of a run shows
ALIASES = {"map": "ap", "hit_rate": "hit"}


class Metric(NamedTuple):
    """A metric by name, with its cut-off k, or None for the whole list."""

    name: str
    k: int | None

    @property
    def key(self) -> str:
        """The key in metrics.json: "ndcg@20", or "ndcg" for the whole list."""
        return self.name if self.k is None else f"{self.name}@{self.k}"


def parse_metric(text: str) -> Metric:
    """Parse the name and cut-off of a metric in any common spelling.

    >>> parse_metric("NDCG@10")
    Metric(name='ndcg', k=10)
    >>> parse_metric("MAP").key
    'ap'
    """
    if not isinstance(text, str):
        raise ItemfoldError(f"'metrics' must be names such as ndcg@20, got {text!r}")
    name, at, cut = text.strip().lower().replace("-", "_").partition("@")
    name = ALIASES.get(name, name)
    if at and name in CUT_METRICS:
        if not (cut.isascii() and cut.isdigit() and int(cut) > 0):
            raise ItemfoldError(f"'k' must be a positive integer in '{text}', got '{cut}'")
        return Metric(name, int(cut))
    if not at and name in FULL_METRICS:
        return Metric(name, None)
    cuts = ", ".join(f"{known}@k" for known in CUT_METRICS)
    raise ItemfoldError(
        f"'metric' must be one of {cuts}, or {', '.join(FULL_METRICS)} for the whole list, "
        f"got '{text}'"
    )


def parse_metrics(given: str | Sequence[str]) -> list[Metric]:
    """Parse one metric or several; there must be at least one."""
    texts = [given] if isinstance(given, str) else given
    if not len(texts):
        raise ItemfoldError("'metrics' must name at least one, got none")
    return [parse_metric(text) for text in texts]


def headline_metrics(names: Iterable[str]) -> list[str]:
    """Those of these metrics that a summary shows, in its order, at their first cut-off.

    >>> headline_metrics(["gini@20", "recall@20", "ndcg@20", "ndcg@50"])
    ['ndcg@20', 'recall@20']
    """
    known: dict[str, str] = {}
    for name in names:
        known.setdefault(name.partition("@")[0], name)
    return [known[name] for name in HEADLINES if name in known]


def definitions(names: Iterable[str]) -> list[str]:
    """Definitions of those of these metrics that are not accuracy metrics.

    >>> len(definitions(["ndcg@20", "novelty@10", "novelty@20"]))
    1
    """
    wanted = dict.fromkeys(_base(name) for name in names)
    return [DEFINITIONS[name] for name in wanted if name in DEFINITIONS]


def best_value(name: str, values: Iterable[float]) -> float | None:
    """The best value of a metric; None if neither higher nor lower is better.

    >>> best_value("ndcg@20", [0.1, 0.3]), best_value("gini@20", [0.9, 0.8])
    (0.3, 0.8)
    >>> best_value("popularity_bias@20", [-0.1, 0.5]), best_value("novelty@20", [9.0, 8.0])
    (-0.1, None)
    """
    name, values = _base(name), list(values)
    if name in ("novelty", "diversity") or not values:
        return None
    if name in ("gini", "miscalibration"):
        return min(values)
    return min(values, key=abs) if name == "popularity_bias" else max(values)


def _base(name: str) -> str:
    """A metric without its cut-off and its group of users."""
    plain = parse_metric(name).name
    return "popularity_bias" if plain.startswith("popularity_bias") else plain
