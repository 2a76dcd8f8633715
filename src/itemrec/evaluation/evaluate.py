"""Full ranking of the catalogue within a memory budget, and the metrics of each user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.data.interactions import IdMap
from itemrec.data.item_table import ItemTable
from itemrec.data.joining import Catalogue, resized, with_new_items
from itemrec.data.split import HeldOut, Split
from itemrec.errors import ItemrecError
from itemrec.evaluation.conventions import convention_values, wanted_metrics
from itemrec.evaluation.list_metrics import list_metric
from itemrec.evaluation.metrics import (
    CATALOGUE_METRICS,
    CUT_METRICS,
    FULL_METRICS,
    GENRE_METRICS,
    METRICS,
    Metric,
    parse_metric,
    parse_metrics,
)
from itemrec.evaluation.ranking import BUDGET, ROWS, block_scores, mask_history, steered_items
from itemrec.evaluation.significance import bootstrap_interval
from itemrec.graph.graph import Graph
from itemrec.models.base import Model
from itemrec.models.embedding_model import EmbeddingModel
from itemrec.models.gnn import GNN
from itemrec.models.with_new_items import WithNewItems
from itemrec.reranking.item_facts import ItemFacts
from itemrec.reranking.reranker import Reranker
from itemrec.reranking.steering import Steering, check_steering
from itemrec.validation import one_of, shown

COMPARED = {"cpu": 2**27, "cuda": 2**29}  # scores that are ranked at most to compare settings


class TrainedRun(Protocol):
    """What evaluation needs from a run."""

    model: Model
    train: sp.csr_array
    user_ids: IdMap
    item_ids: IdMap
    titles: npt.NDArray[Any] | None
    genres: npt.NDArray[Any] | None
    metrics: dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """Metrics averaged over users, together with their per-user values.

    Attributes:
        metrics: The mean of each metric.
        per_user: Per-user values of each metric, `[users]` each.
        ids: External ids of the users evaluated.
        history: Number of items in each user's history.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.EASE())
        >>> result = ir.evaluate(run, split, metrics=["recall@10", "ndcg@10"])
        >>> list(result.metrics), len(result.per_user["ndcg@10"])
        (['recall@10', 'ndcg@10'], 6)
    """

    metrics: dict[str, float]
    per_user: dict[str, npt.NDArray[np.float64]]  # [users] each
    ids: npt.NDArray[Any]  # external ids of the users evaluated
    history: npt.NDArray[np.int64]  # number of items in each history

    def interval(self, metric: str, seed: int = 0) -> tuple[float, float]:
        """Bootstrap 95 % interval of a metric's mean over users.

        Args:
            metric: One of `per_user`, such as "ndcg@20".
            seed: Seed of the resampling.

        Returns:
            The lower and the upper bound.

        Raises:
            ItemrecError: The metric has no per-user values.

        Examples:
            >>> import numpy as np
            >>> import itemrec as ir
            >>> values = {"hit@1": np.array([0.0, 1.0, 1.0, 1.0])}
            >>> result = ir.Evaluation({"hit@1": 0.75}, values, np.arange(4), np.ones(4, np.int64))
            >>> low, high = result.interval("hit@1")
            >>> low <= 0.75 <= high
            True
        """
        if metric not in self.per_user:
            raise ItemrecError(
                f"'metric' must be one of {', '.join(self.per_user)}, got {metric!r}"
            )
        found = bootstrap_interval(self.per_user[metric], seed=seed)
        return found.low, found.high

    def __str__(self) -> str:
        lines = [f"{len(self.ids)} users"]
        for name, value in self.metrics.items():
            text = f"{name:>18} {value:.4f}"
            if name in self.per_user:
                low, high = self.interval(name)
                text += f"  [{low:.4f}, {high:.4f}]"
            lines.append(text)
        return "\n".join(lines)


def evaluate(
    run: TrainedRun | Model,
    split: Split,
    k: int | Sequence[int] = 20,
    *,
    part: Literal["valid", "test"] = "test",
    metrics: Sequence[str] | None = None,
    fold_in: Literal["frozen", "joint"] = "frozen",
    budget: float = BUDGET,
    metrics_as: str | None = None,
    steering: Steering | None = None,
    item_table: ItemTable | None = None,
) -> Evaluation:
    """Rank the whole catalogue for every held-out user and compute metrics of the lists.

    Items of a user's history are never recommended. Users without targets do not count. If whole
    items were held out (`split_items`), they are ranked by their features, among themselves or,
    with `split.among_all_items()`, among all items.

    Args:
        run: The result of `train`, or a model that was trained on this split.
        split: The split whose users are evaluated.
        k: One cut-off or several.
        part: "test" or "valid".
        metrics: Names such as "NDCG@10", or "ap" for the whole list. Default: all at each `k`.
        fold_in: "frozen" folds unseen users in with the stored item vectors, as the service does.
            "joint" adds their histories to the graph, for comparison only; it needs a
            message-passing model.
        budget: Memory for scores in megabytes. It changes the speed, never the result.
        metrics_as: Define metrics as "recbole", "lenskit", "rectools", "implicit" or the "paper"
            does; default: as this library does.
        steering: How lists are re-ranked; the same as in `Recommender.recommend`.
        item_table: More columns of the items, and which of them are available.

    Returns:
        The metrics and their per-user values.

    Raises:
        LeakError: The run was trained on held-out interactions.
        ItemrecError: The part is empty, a metric is unknown, or the users or items of the split are
            not those of the run.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.EASE())
        >>> result = ir.evaluate(run, split, k=[5, 10])
        >>> 0 < result.metrics["ndcg@10"] < 1
        True
    """
    if not isinstance(run, Model) and not hasattr(run, "model"):
        raise ItemrecError(
            f"'run' must be a Run or a model, got {shown(run)}; load a folder with Run.load(folder)"
        )
    if not isinstance(split, Split):
        kind = "a Split, such as ir.split_users(data)"
        raise ItemrecError(f"'split' must be {kind}, got {shown(split)}")
    trained = split.train if isinstance(run, Model) else run.train
    held = check_held_out(run, split, part)
    one_of("fold_in", fold_in, ("frozen", "joint"))
    model = scorer_of(run, split, part)
    facts = facts_of(model, run, split, item_table)
    if metrics_as is not None:
        wanted = wanted_metrics(metrics_as, _cuts(k), metrics)
    else:
        wanted = _wanted(k, metrics, facts)
    evaluator = Evaluator(held, model.device, budget=budget)
    evaluator.steer(facts, check_steering(steering))
    held = evaluator.held
    if fold_in == "joint":
        own = replace(split, train=trained)
        model, evaluator.users = joined(model, own, held), np.arange(len(held))
    values, catalogue = evaluator.values(model, wanted, facts, metrics_as)
    means = catalogue | {name: float(np.mean(v)) for name, v in values.items()}
    known = np.diff(held.history.indptr).astype(np.int64)
    return Evaluation({m.key: means[m.key] for m in wanted}, values, held.ids, known)


def scorer_of(run: TrainedRun | Model, split: Split, part: str = "test") -> Model:
    """The model that is evaluated: of a test part of new items, one that scores these as well."""
    model = run if isinstance(run, Model) else run.model
    if split.new_items is None or part != "test":
        return model
    assert split.features is not None
    trained, chosen = split.train, None
    if not isinstance(run, Model):
        trained, chosen = run.train, run.metrics.get("new_items")
    parts = (split.features, split.item_ids, split.new_items)
    found = WithNewItems.of(model, trained, *parts, chosen)
    found.only_new = not split.ranks_all
    return found


def facts_of(
    model: Model, run: TrainedRun | Model, split: Split, table: ItemTable | None = None
) -> ItemFacts:
    """What is known of the items that a model of a run, or of this split, scores."""
    source = split if isinstance(run, Model) else run
    train, items = source.train, Catalogue(source.item_ids, source.titles, source.genres)
    if isinstance(model, WithNewItems):
        assert split.features is not None
        assert split.new_items is not None
        items = with_new_items(items, split.features, split.new_items)
        train = resized(train, (train.shape[0], len(items.item_ids)))
    return ItemFacts(model, train, items.item_ids, items.genres, items.titles, table)


def _wanted(
    k: int | Sequence[int], metrics: Sequence[str] | None, facts: ItemFacts
) -> list[Metric]:
    """The metrics that are asked for, or all that the data permits."""
    wanted = _defaults(k) if metrics is None else parse_metrics(metrics)
    if facts.has_genres:
        return wanted
    needy = [metric.key for metric in wanted if metric.name in GENRE_METRICS]
    if needy and metrics is not None:
        raise ItemrecError(f"'{needy[0]}' needs genres, and the data has none")
    return [metric for metric in wanted if metric.name not in GENRE_METRICS]


def check_held_out(run: TrainedRun | Model, split: Split, part: str = "test") -> HeldOut:
    """The validation or the test part, if it can be evaluated and the run has not seen it."""
    one_of("part", part, ("valid", "test"))
    held = split.valid if part == "valid" else split.test
    if part == "valid" and not isinstance(run, Model) and run.metrics.get("refit"):
        raise ItemrecError(
            "'part' must be test for a refitted run: it was trained on the validation part"
        )
    if held is None or not len(held):
        raise ItemrecError(f"this split has no {part} part: nothing was held out for it")
    if not isinstance(run, Model):
        _check_unseen(run, split, held)
    return held


def _check_unseen(run: TrainedRun, split: Split, held: HeldOut) -> None:
    """Check that no held-out item was in the run's training data, whatever split it came from."""
    same = np.array_equal(run.item_ids.ids, split.item_ids.ids)
    if split.protocol == "transductive":  # users are identified by their row
        same = same and np.array_equal(run.user_ids.ids, split.user_ids.ids)
    if not same:
        raise ItemrecError("'split' must have the users and items of the run, got different ones")
    replace(split, train=run.train, user_ids=run.user_ids, valid=None, test=held).check()


def joined(model: Model, split: Split, held: HeldOut) -> EmbeddingModel:
    """A scorer for held-out users, encoded in a graph that includes their histories."""
    if not isinstance(model, GNN):
        raise ItemrecError(
            f"'fold_in' must be frozen for {type(model).__name__}: joint needs message passing"
        )
    if split.protocol == "transductive":
        raise ItemrecError(
            "'fold_in' must be frozen in the transductive protocol: its users are in the graph"
        )
    graph = Graph.from_csr(split.train, model.device).with_users(held.history)
    with torch.no_grad():
        users, items = model.encode(graph)
    scorer = EmbeddingModel()
    scorer.store("user_vectors", users[split.n_users :])
    scorer.store("item_vectors", items)
    return scorer


def with_targets(held: HeldOut) -> HeldOut:
    """Only the users who have targets."""
    rows = np.flatnonzero(np.diff(held.target.indptr))
    return held if len(rows) == len(held) else held.take(rows)


def sample_users(held: HeldOut, device: torch.device, seed: int = 0) -> HeldOut:
    """Held-out users to choose settings on: all, or as many as can be ranked in a short time."""
    held = with_targets(held)
    most = max(COMPARED["cuda" if device.type == "cuda" else "cpu"] // held.target.shape[1], 1000)
    if len(held) <= most:
        return held
    return held.take(np.sort(np.random.default_rng(seed).choice(len(held), most, replace=False)))


def _defaults(k: int | Sequence[int]) -> list[Metric]:
    return [parse_metric(f"{name}@{cut}") for cut in _cuts(k) for name in CUT_METRICS]


def _cuts(k: int | Sequence[int]) -> list[int]:
    if isinstance(k, str) or not isinstance(k, Integral | Sequence):
        raise ItemrecError(f"'k' must be a positive integer or a list of them, got {k!r}")
    cuts: list[Any] = [k] if isinstance(k, Integral) else list(k)
    if not cuts:
        raise ItemrecError("'k' must be a positive integer or a list of them, got none")
    return cuts


class Evaluator:
    """A held-out part on a device, ready to be evaluated many times."""

    def __init__(self, held: HeldOut, device: torch.device | str, budget: float = BUDGET) -> None:
        if budget <= 0:
            raise ItemrecError(f"'budget' must be a positive number of MB, got {budget}")
        held = with_targets(held)
        if not len(held):
            raise ItemrecError("no user can be evaluated: no held-out user has a target")
        self.held, self.users, self.device, self.budget = held, held.users, device, budget
        self.n_items = held.target.shape[1]
        rows = np.repeat(np.arange(len(held)), np.diff(held.target.indptr))
        keys = np.append(rows * self.n_items + held.target.indices, np.iinfo(np.int64).max)
        self.targets = torch.from_numpy(np.sort(keys)).to(device)  # row · items + item
        self.n_target = np.diff(held.target.indptr).astype(np.int64)
        self.reranker: Reranker | None = None
        self.available: Tensor | None = None

    def steer(self, facts: ItemFacts, steering: Steering) -> None:
        """Re-rank lists from now on, unless the settings are those of a plain list."""
        self.reranker = None if steering.is_plain else Reranker(facts, steering)
        self.available = facts.available

    def metrics(self, model: Model, metric: str) -> dict[str, float]:
        """Validation metrics: the one that selects the epoch, and three that are always shown."""
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
    ) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, float]]:
        """Per-user values of each metric, and the metrics of the catalogue as a whole."""
        return self.values_of(self.blocks(model), wanted, facts, metrics_as)

    def values_of(
        self,
        blocks: Iterable[tuple[int, Tensor]],
        wanted: list[Metric],
        facts: ItemFacts | None = None,
        metrics_as: str | None = None,
    ) -> tuple[dict[str, npt.NDArray[np.float64]], dict[str, float]]:
        """The same of scores that were computed before, as `blocks` gives them."""
        full = [metric for metric in wanted if metric.k is None]
        if full and self.reranker is not None:
            raise ItemrecError(
                f"'{full[0].key}' is of the whole ranking: a steered list needs a cut-off, such as "
                f"{full[0].name}@20"
            )
        depths = self._depths(wanted)
        lists, ranks = self._lists(blocks, depths, with_ranks=bool(full))
        out: dict[str, npt.NDArray[np.float64]] = {}
        catalogue: dict[str, float] = {}
        where = np.repeat(np.arange(len(self.held)), self.n_target)
        for metric in wanted:
            if metric.k is None:
                out[metric.key] = FULL_METRICS[metric.name](ranks, where, len(self.held))
                continue
            k = min(metric.k, self.n_items)
            hits, top = lists[min(depth for depth in depths if depth >= k)]
            if metrics_as is not None:
                out[metric.key] = convention_values(metrics_as, metric, hits, self.n_target, top)
                continue
            if metric.name in METRICS:
                out[metric.key] = METRICS[metric.name](hits, self.n_target, k)
                continue
            assert facts is not None
            found = list_metric(Metric(metric.name, k), top, self.held.history, facts)
            (catalogue if metric.name in CATALOGUE_METRICS else out)[metric.key] = found
        return out, catalogue

    def _lists(
        self, blocks: Iterable[tuple[int, Tensor]], depths: list[int], *, with_ranks: bool
    ) -> tuple[dict[int, tuple[npt.NDArray[Any], ...]], npt.NDArray[np.int64]]:
        """Hits and items of the lists of each length, and the ranks of all targets."""
        made: dict[int, list[tuple[Tensor, Tensor]]] = {depth: [] for depth in depths}
        ranks = [np.empty(0, dtype=np.int64)]
        for start, scores in blocks:
            for depth in depths:
                made[depth].append(self._hits(scores, start, depth))
            if with_ranks:
                ranks.append(self._ranks(scores, start))
        lists = {
            depth: tuple(torch.cat(parts).cpu().numpy() for parts in zip(*pairs, strict=True))
            for depth, pairs in made.items()
        }
        return lists, np.concatenate(ranks)

    def _depths(self, wanted: list[Metric]) -> list[int]:
        """Lengths of the lists to make: the longest, or each one if lists are steered."""
        cuts = {min(metric.k, self.n_items) for metric in wanted if metric.k} or {1}
        return sorted(cuts) if self.reranker else [max(cuts)]

    @torch.no_grad()
    def compare(
        self, scorings: Callable[[sp.csr_array, npt.NDArray[np.int64]], Iterator[Tensor]], key: str
    ) -> npt.NDArray[np.float64]:
        """One metric of several scorings of the same users, ``[scorings, users]``.

        ``scorings`` yields the scores of a block of users, one tensor for each scoring.
        """
        metric, blocks = parse_metric(key), []
        depth = min(metric.k or self.n_items, self.n_items)
        for start in range(0, len(self.users), self._rows()):
            part = slice(start, start + self._rows())
            history, values = self.held.history[part], []
            for scores in scorings(history, self.users[part]):
                hits, _ = self._hits(self._masked(scores, part), start, depth)
                found, n_target = hits.cpu().numpy(), self.n_target[part]
                values.append(METRICS[metric.name](found, n_target, depth))
            blocks.append(np.stack(values))
        return np.concatenate(blocks, axis=1)

    def _rows(self) -> int:
        """Users in a block, so that its scores fit into the budget."""
        size = int(self.budget * 2**20 / 4 / self.n_items)
        return max(ROWS, size // ROWS * ROWS)

    def _hits(self, scores: Tensor, start: int, depth: int) -> tuple[Tensor, Tensor]:
        """Whether each of the best items is a target, and these items, both ``[b, depth]``."""
        top = steered_items(scores, depth, self.reranker)  # −1 where no item is left
        rows = torch.arange(start, start + len(top), device=top.device).unsqueeze(1)
        wanted = rows * self.n_items + top
        found = self.targets[torch.searchsorted(self.targets, wanted)] == wanted
        return found & (top >= 0), top

    @torch.no_grad()
    def blocks(self, model: Model) -> Iterator[tuple[int, Tensor]]:
        """Scores of one block of users after another, with the items of their history at −∞."""
        size, history, users = self._rows(), self.held.history, self.users
        for start in range(0, len(users), size):
            part = slice(start, start + size)
            rows = history[part]
            count = rows.shape[0]
            yield start, self._masked(block_scores(model, rows, users[part]), part)[:count]

    def _masked(self, scores: Tensor, part: slice) -> Tensor:
        """−∞ at what is not ranked: histories, what is excluded besides, what is not available."""
        scores = mask_history(scores, self.held.history[part])
        if self.held.excluded is not None:
            scores = mask_history(scores, self.held.excluded[part])
        if self.available is not None:
            scores[:, ~self.available] = -torch.inf
        return scores

    def _ranks(self, scores: Tensor, start: int) -> npt.NDArray[np.int64]:
        """1-based rank of every target in the whole list; ties go to the lower item."""
        part = self.held.target[start : start + len(scores)]
        place = torch.argsort(scores, dim=1, descending=True, stable=True)
        rank = torch.empty_like(place)
        order = torch.arange(1, scores.shape[1] + 1, device=scores.device)
        rank.scatter_(1, place, order.expand_as(place))
        rows = np.repeat(np.arange(part.shape[0], dtype=np.int64), np.diff(part.indptr))
        flat = torch.from_numpy(rows * scores.shape[1] + part.indices).to(rank.device)
        out: npt.NDArray[np.int64] = rank.view(-1)[flat].cpu().numpy()
        return out
