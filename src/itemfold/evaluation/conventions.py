"""Metrics as other libraries define them, to compare figures with theirs.

The names are the same, the definitions are not: they differ in what recall is divided by, which
ideal list NDCG is compared with, how ranks are discounted, and how lists shorter than k count.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.errors import ItemfoldError
from itemfold.evaluation import metrics as own
from itemfold.evaluation.metrics import Metric, parse_metric, parse_metrics
from itemfold.validation import one_of


class TopLists(NamedTuple):
    """The first k places of the lists of users who all have targets."""

    hits: Bools  # whether a place is a target [rows, places]; a catalogue may be smaller than k
    n_target: Ints  # |T| [rows]
    n_listed: Ints  # how many of the k places have an item [rows]
    k: int

    @property
    def n_hits(self) -> Floats:
        """Hits of each list."""
        return np.asarray(self.hits.sum(1), dtype=np.float64)

    @property
    def sum_of_precisions(self) -> Floats:
        """Σ hit_j · precision@j of each list."""
        precisions = np.cumsum(self.hits, 1) / np.arange(1, self.hits.shape[1] + 1)
        return np.asarray((self.hits * precisions).sum(1))

    def dcg(self, discount: Floats) -> Floats:
        """Σ hit_j · discount_j of each list."""
        return np.asarray(self.hits @ discount[: self.hits.shape[1]])


Definition = Callable[[TopLists], Floats]


def _own(name: str) -> Definition:
    """A metric as this library defines it."""
    return lambda top: own.METRICS[name](top.hits, top.n_target, top.hits.shape[1])


def _lenskit_ndcg(top: TopLists) -> Floats:
    """Discount 1/log₂(max(rank, 2)): the first two places count the same."""
    discount = 1 / np.log2(np.maximum(np.arange(1, top.k + 1), 2))
    ideal = np.cumsum(discount)[np.minimum(top.n_target, top.k) - 1]
    return np.asarray(top.dcg(discount) / ideal)


def _rectools_ndcg(top: TopLists) -> Floats:
    """The ideal list has k hits, even if the user has fewer targets."""
    discount = 1 / np.log2(np.arange(2, top.k + 2))
    return np.asarray(top.dcg(discount) / discount.sum())


def _implicit_precision(top: TopLists) -> Floats:
    """All hits ÷ Σ min(|T|, k) over all users, divided among users so that this is their mean."""
    return np.asarray(top.n_hits / np.minimum(top.n_target, top.k).mean())


CONVENTIONS: dict[str, dict[str, Definition]] = {
    "recbole": {
        **{name: _own(name) for name in ("recall", "ndcg", "ap", "hit", "mrr")},
        "precision": lambda top: top.n_hits / top.k,
    },
    "lenskit": {
        "recall": lambda top: top.n_hits / np.minimum(top.n_target, top.k),
        "ndcg": _lenskit_ndcg,
        "ap": lambda top: (
            top.sum_of_precisions / np.maximum(np.minimum(top.n_target, top.n_listed), 1)
        ),
        "precision": lambda top: top.n_hits / np.maximum(top.n_listed, 1),
        "hit": _own("hit"),
        "mrr": _own("mrr"),
    },
    "rectools": {
        "recall": _own("recall"),
        "ndcg": _rectools_ndcg,
        "ap": lambda top: top.sum_of_precisions / top.n_target,
        "precision": lambda top: top.n_hits / top.k,
        "hit": _own("hit"),
        "mrr": _own("mrr"),
    },
    "implicit": {"precision": _implicit_precision, "ndcg": _own("ndcg"), "ap": _own("ap")},
    "paper": {"recall": _own("capped_recall"), "ndcg": _own("ndcg")},
}


def wanted_metrics(
    convention: str, cuts: Sequence[int], names: Sequence[str] | None
) -> list[Metric]:
    """The requested metrics of a library; default: all of them at each cut-off."""
    one_of("metrics_as", convention, tuple(CONVENTIONS))
    known = CONVENTIONS[convention]
    if names is None:
        return [parse_metric(f"{name}@{cut}") for cut in cuts for name in known]
    found = parse_metrics(names)
    for metric in found:
        if metric.k is None or metric.name not in known:
            listed = ", ".join(f"{name}@k" for name in known)
            raise ItemfoldError(
                f"'metrics' must be of {listed} with metrics_as={convention!r}, got '{metric.key}'"
            )
    return found


def convention_values(
    convention: str, metric: Metric, hits: Bools, n_target: Ints, listed: Ints
) -> Floats:
    """Values of users who have targets; ``listed`` holds item rows, −1 where a list has ended."""
    assert metric.k is not None
    first = listed[:, : metric.k]
    top = TopLists(hits[:, : metric.k], n_target, (first >= 0).sum(1), metric.k)
    return CONVENTIONS[convention][metric.name](top).astype(np.float64)
