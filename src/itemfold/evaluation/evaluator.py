"""Evaluation of a held-out part on a device, within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.data.array_types import Floats, Ints
from itemfold.data.csr import row_of_entry
from itemfold.data.splitting.split import HeldOut
from itemfold.errors import ItemfoldError
from itemfold.evaluation.conventions import convention_values
from itemfold.evaluation.list_metrics import list_metric
from itemfold.evaluation.metrics import (
    CATALOGUE_METRICS,
    FULL_METRICS,
    METRICS,
    Metric,
    parse_metric,
)
from itemfold.evaluation.ranking import (
    BUDGET,
    IN_CACHE,
    ROW_BLOCK,
    mask_history,
    padded_scores,
    steered_items,
    top_items_for_all,
)
from itemfold.evaluation.scoring_function import ScoringFunction
from itemfold.models.base import Model
from itemfold.models.popularity import Popularity
from itemfold.ops.thread_map import thread_map
from itemfold.reranking.item_facts import ItemFacts
from itemfold.reranking.reranker import Reranker
from itemfold.reranking.steering import Steering

COMPARED = {"cpu": 2**25, "cuda": 2**29}  # most scores that are ranked to compare settings


def with_targets(held: HeldOut) -> HeldOut:
    """Only the users who have targets."""
    rows = np.flatnonzero(np.diff(held.target.indptr))
    return held if len(rows) == len(held) else held.take(rows)


def sample_users(
    held: HeldOut, device: torch.device, seed: int = 0, targets: int | None = None
) -> HeldOut:
    """Held-out users to choose settings on: all, or as many as can be ranked quickly.

    With `targets`, no more users than have about so many targets, but at least two thousand.
    """
    held = with_targets(held)
    most = COMPARED["cuda" if device.type == "cuda" else "cpu"] // held.target.shape[1]
    if targets is not None and held.target.nnz:
        most = min(most, targets * len(held) // held.target.nnz)
    most = max(most, 2000)
    if len(held) <= most:
        return held
    return held.take(np.sort(np.random.default_rng(seed).choice(len(held), most, replace=False)))


# hits and items of the lists of each length, and the ranks of all targets
RankedBlock = tuple[list[tuple[Tensor, Tensor]], Ints]


class Evaluator:
    """Evaluates models on a held-out part.

    With several ranks, each ranks the items for its own part of the users, and all gather the lists
    of all users, so that they compute the same figures.
    """

    def __init__(self, held: HeldOut, device: torch.device | str, budget: float = BUDGET) -> None:
        if budget <= 0:
            raise ItemfoldError(f"'budget' must be a positive number of MB, got {budget}")
        held = with_targets(held)
        if not len(held):
            raise ItemfoldError("the held-out part must have a user with a target, got none")
        self.held, self.users, self.device, self.budget = held, held.users, device, budget
        self.n_items = held.target.shape[1]
        self.own = ranks.own_rows(len(held), ROW_BLOCK)
        keys = row_of_entry(held.target) * self.n_items + held.target.indices
        keys = np.append(np.sort(keys), np.iinfo(np.int64).max)  # a last one that is no target
        self.targets = torch.from_numpy(keys).to(device)  # row · items + item
        self.n_target = np.diff(held.target.indptr).astype(np.int64)
        self.reranker: Reranker | None = None
        self.available: Tensor | None = None

    def steer(self, facts: ItemFacts, steering: Steering) -> None:
        """Set how lists are re-ranked from now on, and which items are available."""
        self.reranker = None if steering.is_plain else Reranker(facts, steering)
        self.available = facts.available

    def metrics(self, model: Model, metric: str) -> dict[str, float]:
        """Means of a validation metric, and of three that are always reported."""
        asked = parse_metric(metric)
        k = asked.k or 20
        wanted = [Metric(name, k) for name in ("recall", "capped_recall", "ndcg")]
        values, _ = self.values(model, [*wanted, *([] if asked in wanted else [asked])])
        return {name: float(np.mean(v)) for name, v in values.items()}

    def values(
        self,
        model: Model,
        wanted: list[Metric],
        facts: ItemFacts | None = None,
        metrics_as: str | None = None,
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """Per-user values of metrics, and the metrics of all lists together."""
        if isinstance(model, Popularity) and self._is_plain and all(m.k for m in wanted):
            depth = max((min(m.k or 1, self.n_items) for m in wanted), default=1)
            top = top_items_for_all(model.counts, self.held.history, depth)
            return self.values_of_lists(top, wanted, facts, metrics_as)
        return self._values(partial(self._ranked, model), wanted, facts, metrics_as)

    def values_of(
        self,
        blocks: Iterable[tuple[int, Tensor]],
        wanted: list[Metric],
        facts: ItemFacts | None = None,
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """The same for scores that were computed before by `blocks`."""

        def ranked(depths: list[int], with_ranks: bool) -> Iterator[RankedBlock]:
            return (self._rank(scores, start, depths, with_ranks) for start, scores in blocks)

        return self._values(ranked, wanted, facts, None)

    def _values(
        self,
        ranked: Callable[[list[int], bool], Iterator[RankedBlock]],
        wanted: list[Metric],
        facts: ItemFacts | None,
        metrics_as: str | None,
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """Metrics of ranked blocks, given the lengths of the lists and whether ranks are needed."""
        full = [metric for metric in wanted if metric.k is None]
        if full and self.reranker is not None:
            raise ItemfoldError(
                f"'{full[0].key}' needs the whole ranking; re-ranked lists are cut, so use "
                f"{full[0].name}@20"
            )
        cuts = {min(metric.k, self.n_items) for metric in wanted if metric.k} or {1}
        depths = sorted(cuts) if self.reranker else [max(cuts)]
        lists, places = _gathered(ranked(depths, bool(full)), depths)
        return self._metrics(lists, places, wanted, facts, metrics_as)

    def values_of_lists(
        self,
        top: Ints,
        wanted: list[Metric],
        facts: ItemFacts | None = None,
        metrics_as: str | None = None,
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """The same for given lists ``[users, k]``, −1 for no item or an unknown one."""
        items = torch.from_numpy(top).to(self.targets.device)
        hits = self._are_targets(items, 0).cpu().numpy()
        return self._metrics(
            {top.shape[1]: (hits, top)}, np.empty(0, np.int64), wanted, facts, metrics_as
        )

    def _metrics(
        self,
        lists: dict[int, tuple[npt.NDArray[Any], ...]],
        places: Ints,
        wanted: list[Metric],
        facts: ItemFacts | None,
        metrics_as: str | None,
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """Metrics of the hits and items of lists, by their lengths, and of the targets' ranks."""
        out: dict[str, Floats] = {}
        catalogue: dict[str, float] = {}
        where = row_of_entry(self.held.target)
        for metric in wanted:
            if metric.k is None:
                out[metric.key] = FULL_METRICS[metric.name](places, where, len(self.held))
                continue
            k = min(metric.k, self.n_items)
            hits, top = lists[min(depth for depth in lists if depth >= k)]
            if metrics_as is not None:
                out[metric.key] = convention_values(metrics_as, metric, hits, self.n_target, top)
                continue
            if metric.name in METRICS:
                out[metric.key] = METRICS[metric.name](hits, self.n_target, k)
                continue
            assert facts is not None
            held = self.held
            found = list_metric(Metric(metric.name, k), top, hits, held.history, held.target, facts)
            (catalogue if metric.name in CATALOGUE_METRICS else out)[metric.key] = found
        return out, catalogue

    def _ranked(self, model: Model, depths: list[int], with_ranks: bool) -> Iterator[RankedBlock]:
        """Ranked blocks of a model; on a CPU several at a time, each in one thread."""

        @torch.no_grad()
        def rank(part: slice) -> RankedBlock:
            return self._rank(self._scores(model, part), part.start, depths, with_ranks)

        parts = list(self._parts(model))
        if not self._is_spread(model):
            yield from map(rank, parts)
            return
        yield from map(rank, parts[:1])  # models compute what all blocks share
        with thread_map() as spread:
            yield from spread(rank, parts[1:])

    def _rank(self, scores: Tensor, start: int, depths: list[int], with_ranks: bool) -> RankedBlock:
        """The lists of a block of users, and the ranks of their targets."""
        tops = [steered_items(scores, depth, self.reranker) for depth in depths]
        lists = [(self._are_targets(top, start), top) for top in tops]
        return lists, self._ranks(scores, start) if with_ranks else np.empty(0, dtype=np.int64)

    def _is_spread(self, model: Model) -> bool:
        """Whether blocks are small and several are scored at a time."""
        return self.targets.device.type == "cpu" and not isinstance(model, ScoringFunction)

    @property
    def _is_plain(self) -> bool:
        """Whether all items are ranked but those of the histories."""
        is_whole = self.reranker is None and self.available is None
        return is_whole and not self.held.repeats and self.held.excluded is None

    def _parts(self, model: Model) -> Iterator[slice]:
        """Blocks of this rank's users whose scores fit into the budget."""
        budget = min(self.budget, IN_CACHE) if self._is_spread(model) else self.budget
        size = int(budget * 2**20 / 4 / self.n_items)
        size = max(ROW_BLOCK, size // ROW_BLOCK * ROW_BLOCK)
        for start in range(self.own.start, self.own.stop, size):
            yield slice(start, min(start + size, self.own.stop))

    def _are_targets(self, top: Tensor, start: int) -> Tensor:
        """Whether the items of the lists of users from ``start`` on, −1 for none, are targets."""
        rows = torch.arange(start, start + len(top), device=top.device).unsqueeze(1)
        wanted = rows * self.n_items + top
        found = self.targets[torch.searchsorted(self.targets, wanted)] == wanted
        return found & (top >= 0)

    @torch.no_grad()
    def blocks(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """First row and scores of each block of users; items that are not ranked have −∞."""
        for part in self._parts(model):
            yield part.start, self._scores(model, part)

    def _scores(self, model: Model, part: slice) -> Tensor:
        """Scores of a block of users, −∞ for histories, excluded and unavailable items."""
        history = self.held.history[part]
        scores = padded_scores(model, history, self.users[part])[: history.shape[0]]
        if not self.held.repeats:
            scores = mask_history(scores, history)
        if self.held.excluded is not None:
            scores = mask_history(scores, self.held.excluded[part])
        if self.available is not None:
            scores[:, ~self.available] = -torch.inf
        return scores

    def _ranks(self, scores: Tensor, start: int) -> Ints:
        """1-based rank of every target in the whole list; ties go to the lower item."""
        part = self.held.target[start : start + len(scores)]
        place = torch.argsort(scores, dim=1, descending=True, stable=True)
        rank = torch.empty_like(place)
        order = torch.arange(1, scores.shape[1] + 1, device=scores.device)
        rank.scatter_(1, place, order.expand_as(place))
        flat = torch.from_numpy(row_of_entry(part) * scores.shape[1] + part.indices).to(rank.device)
        out: Ints = rank.view(-1)[flat].cpu().numpy()
        return out


def _gathered(
    ranked: Iterable[RankedBlock], depths: list[int]
) -> tuple[dict[int, tuple[npt.NDArray[Any], ...]], Ints]:
    """Hits and items of the lists of each length, and the ranks of all targets, of all users."""
    blocks = list(ranked)

    def joined(tensors: list[Tensor]) -> npt.NDArray[Any]:
        return ranks.gather_rows(torch.cat(tensors).cpu().numpy() if tensors else None)

    lists = {
        depth: tuple(joined([lists[at][part] for lists, _ in blocks]) for part in (0, 1))
        for at, depth in enumerate(depths)
    }
    places = [np.empty(0, dtype=np.int64), *(places for _, places in blocks)]
    return lists, ranks.gather_rows(np.concatenate(places))
