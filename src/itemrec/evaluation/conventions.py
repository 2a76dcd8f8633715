"""Metrics as other libraries define them, so that figures can be compared with theirs.

The names are the same, the definitions are not: what recall is divided by, which ideal list NDCG
is compared with, how ranks are discounted, and what happens to lists shorter than k.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError
from itemrec.evaluation import metrics as own
from itemrec.evaluation.metrics import Bools, Floats, Ints, Metric, parse_metric, parse_metrics
from itemrec.validation import one_of


class Lists(NamedTuple):
    """The first k places of the lists of users who all have targets."""

    hits: Bools  # whether a place is a target [rows, ≤ k]
    n_target: Ints  # [rows]
    n_listed: Ints  # how many of the k places have an item [rows]
    k: int

    @property
    def cut(self) -> int:
        """The number of places that there are: a catalogue may be smaller than k."""
        return int(self.hits.shape[1])


Definition = Callable[[Lists], Floats]


def _own(name: str) -> Definition:
    """A metric as it is defined here."""
    return lambda lists: own.METRICS[name](lists.hits, lists.n_target, lists.cut)


def _hits_over_k(lists: Lists) -> Floats:
    out: Floats = lists.hits.sum(1) / lists.k
    return out


def _sum_of_precisions(lists: Lists) -> Floats:
    precisions = np.cumsum(lists.hits, 1) / np.arange(1, lists.cut + 1)
    out: Floats = (lists.hits * precisions).sum(1)
    return out


# --- LensKit -------------------------------------------------------------------------------------


def _lenskit_precision(lists: Lists) -> Floats:
    """Hits ÷ length of the list."""
    out: Floats = lists.hits.sum(1) / np.maximum(lists.n_listed, 1)
    return out


def _lenskit_recall(lists: Lists) -> Floats:
    """Hits ÷ min(|T|, k)."""
    out: Floats = lists.hits.sum(1) / np.minimum(lists.n_target, lists.k)
    return out


def _lenskit_ndcg(lists: Lists) -> Floats:
    """Discount 1/log₂(max(rank, 2)): the first two places count alike."""
    discount = 1 / np.log2(np.maximum(np.arange(1, lists.k + 1), 2))
    ideal = np.cumsum(discount)[np.minimum(lists.n_target, lists.k) - 1]
    out: Floats = lists.hits @ discount[: lists.cut] / ideal
    return out


def _lenskit_ap(lists: Lists) -> Floats:
    """÷ min(|T|, length of the list)."""
    out: Floats = _sum_of_precisions(lists) / np.maximum(
        np.minimum(lists.n_target, lists.n_listed), 1
    )
    return out


# --- RecTools ------------------------------------------------------------------------------------


def _rectools_ndcg(lists: Lists) -> Floats:
    """The ideal is k hits, also for a user with fewer targets."""
    discount = 1 / np.log2(np.arange(2, lists.k + 2))
    out: Floats = lists.hits @ discount[: lists.cut] / discount.sum()
    return out


def _rectools_ap(lists: Lists) -> Floats:
    """÷ |T|."""
    out: Floats = _sum_of_precisions(lists) / lists.n_target
    return out


# --- implicit ------------------------------------------------------------------------------------


def _implicit_precision(lists: Lists) -> Floats:
    """All hits ÷ Σ min(|T|, k) over users; each user has the part that makes this the mean."""
    possible = np.minimum(lists.n_target, lists.k)
    out: Floats = lists.hits.sum(1) / possible.mean()
    return out


CONVENTIONS: dict[str, dict[str, Definition]] = {
    "recbole": {
        **{name: _own(name) for name in ("recall", "ndcg", "ap", "hit", "mrr")},
        "precision": _hits_over_k,
    },
    "lenskit": {
        "recall": _lenskit_recall,
        "ndcg": _lenskit_ndcg,
        "ap": _lenskit_ap,
        "precision": _lenskit_precision,
        "hit": _own("hit"),
        "mrr": _own("mrr"),
    },
    "rectools": {
        "recall": _own("recall"),
        "ndcg": _rectools_ndcg,
        "ap": _rectools_ap,
        "precision": _hits_over_k,
        "hit": _own("hit"),
        "mrr": _own("mrr"),
    },
    "implicit": {"precision": _implicit_precision, "ndcg": _own("ndcg"), "ap": _own("ap")},
    "paper": {"recall": _own("capped_recall"), "ndcg": _own("ndcg")},
}


def wanted_metrics(
    convention: str, cuts: Sequence[int], names: Sequence[str] | None
) -> list[Metric]:
    """The metrics of a library at each cut-off, or those that are asked for."""
    one_of("metrics_as", convention, tuple(CONVENTIONS))
    known = CONVENTIONS[convention]
    if names is None:
        return [parse_metric(f"{name}@{cut}") for cut in cuts for name in known]
    found = parse_metrics(names)
    for metric in found:
        if metric.k is None or metric.name not in known:
            listed = ", ".join(f"{name}@k" for name in known)
            raise ItemrecError(
                f"'metrics' must be of {listed} with metrics_as={convention!r}, got '{metric.key}'"
            )
    return found


def convention_values(
    convention: str, metric: Metric, hits: Bools, n_target: Ints, listed: npt.NDArray[np.integer]
) -> Floats:
    """Values of users who have targets; ``listed`` holds item rows, −1 where a list has ended."""
    assert metric.k is not None
    first = listed[:, : metric.k]
    lists = Lists(hits[:, : metric.k], n_target, (first >= 0).sum(1), metric.k)
    return CONVENTIONS[convention][metric.name](lists).astype(np.float64)
