"""`evaluate`: rank the whole catalogue for held-out users and compute metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemfold.data.array_types import Bools
from itemfold.data.interactions import IdMap
from itemfold.data.item_table import ItemTable
from itemfold.data.joining import ItemCatalogue, resized, with_new_items
from itemfold.data.split import HeldOut, Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import ActivityGroup, ByActivity, by_activity, shown_metrics
from itemfold.evaluation.conventions import wanted_metrics
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import (
    CUT_METRICS,
    GENRE_METRICS,
    Metric,
    parse_metric,
    parse_metrics,
)
from itemfold.evaluation.ranking import BUDGET
from itemfold.evaluation.significance import Interval, bootstrap_interval
from itemfold.graph.graph import Graph
from itemfold.models.base import Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.gnn import GNN
from itemfold.models.with_new_items import WithNewItems
from itemfold.reranking.item_facts import ItemFacts
from itemfold.reranking.steering import Steering, check_steering
from itemfold.validation import one_of, shown


class TrainedRun(Protocol):
    """The attributes of a run that evaluation uses."""

    model: Model
    user_ids: IdMap
    item_ids: IdMap
    titles: npt.NDArray[Any] | None
    genres: npt.NDArray[Any] | None
    metrics: dict[str, Any]

    @property
    def train(self) -> sp.csr_array:
        """What the model was trained on, `[users, items]`."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics averaged over users, together with their per-user values.

    Attributes:
        metrics: The mean of each metric.
        per_user: Per-user values of each metric.
        ids: External ids of the evaluated users.
        history: Number of items in each user's history.
        is_new: Whether each user is new: without a row in the training data of a transductive
            split. None in an inductive split, where that holds for all users.

    Examples:
        >>> import numpy as np
        >>> import itemfold as ir
        >>> values = {"hit@1": np.array([0.0, 1.0, 1.0, 1.0])}
        >>> result = ir.Evaluation({"hit@1": 0.75}, values, np.arange(4), np.ones(4, np.int64))
        >>> low, high = result.interval("hit@1")
        >>> low <= 0.75 <= high
        True
        >>> print(ir.Evaluation({"coverage@10": 0.75}, {}, result.ids, result.history))
        4 users
        coverage@10 0.7500
    """

    metrics: dict[str, float]
    per_user: dict[str, npt.NDArray[np.float64]]  # [users] each
    ids: npt.NDArray[Any]  # [users]
    history: npt.NDArray[np.int64]  # [users]
    is_new: Bools | None = None  # [users]

    def interval(self, metric: str, seed: int = 0) -> tuple[float, float]:
        """Bootstrap 95 % interval of a metric's mean over users.

        Args:
            metric: One of `per_user`, such as "ndcg@20".
            seed: Seed of the resampling.

        Returns:
            The lower and the upper bound.

        Raises:
            ItemfoldError: The metric has no per-user values.
        """
        self._check_metric(metric)
        found = bootstrap_interval(self.per_user[metric], seed=seed)
        return found.low, found.high

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Ids, history lengths, whether users are new, and metrics, as `Run.per_user` has them."""
        out = {"user": self.ids, "history": self.history}
        if self.is_new is not None:
            out["new"] = self.is_new
        return {**out, **self.per_user}

    @property
    def activity(self) -> ByActivity:
        """NDCG and recall by activity, as `metrics.json` of a run has them."""
        return by_activity(self.columns, shown_metrics(self.per_user))

    def by_activity(self, metric: str = "ndcg@20", seed: int = 0) -> dict[ActivityGroup, Interval]:
        """A metric of all users, of new and known users, and of light, middle and heavy ones.

        Light, middle and heavy are thirds of the known users by the length of their history; users
        with histories of the same length stay together.

        Args:
            metric: One of `per_user`, such as "ndcg@20".
            seed: Seed of the resampling.

        Returns:
            The mean with its bootstrap 95 % interval, for each group that has users.

        Raises:
            ItemfoldError: The metric has no per-user values.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_window(ir.load("synthetic:users=200,items=80,interactions=3000"))
            >>> result = ir.evaluate(ir.train(split, ir.models.Popularity()), split)
            >>> [group.name for group in result.by_activity("recall@20")]
            ['all', 'new', 'known', 'light', 'middle', 'heavy']
        """
        self._check_metric(metric)
        found = by_activity(self.columns, [metric], seed)
        return {group: metrics[metric] for group, metrics in found.items()}

    def _check_metric(self, metric: str) -> None:
        if metric not in self.per_user:
            raise ItemfoldError(
                f"'metric' must be one of {', '.join(self.per_user)}, got {metric!r}"
            )

    def __repr__(self) -> str:
        """A table of the metrics, for notebooks."""
        lines = [f"{len(self.ids):,} users"]
        width = max(map(len, self.metrics), default=0)
        for name, value in self.metrics.items():
            text = f"{name:<{width}} {value:.4f}"
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

    Items of a user's history are not ranked. Users without targets are left out. If whole items
    were held out (`split_items`), they are ranked by their features, among themselves or, with
    `split.among_all_items()`, among all items.

    Args:
        run: The result of `train`, or a model that was trained on this split.
        split: The split whose users are evaluated.
        k: One cut-off or several.
        part: "test" or "valid".
        metrics: Names such as "NDCG@10", or "ap" for the whole list. Default: all at each `k`.
        fold_in: "frozen" folds unseen users in with the stored item vectors, as the service does.
            "joint" adds their histories to the graph, for comparison; needs a message-passing
            model.
        budget: Memory for scores in megabytes; affects the speed, not the result.
        metrics_as: Define metrics as "recbole", "lenskit", "rectools", "implicit" or the "paper"
            does; default: as this library does.
        steering: Re-ranking settings, as in `Recommender.recommend`.
        item_table: More columns of the items, and which of them are available.

    Returns:
        The metrics and their per-user values.

    Raises:
        LeakError: The run was trained on held-out interactions.
        ItemfoldError: The part is empty, a metric is unknown, or the users or items of the split
            are not those of the run.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.EASE())
        >>> result = ir.evaluate(run, split, k=[5, 10])
        >>> 0 < result.metrics["ndcg@10"] < 1
        True
    """
    if not isinstance(run, Model) and not hasattr(run, "model"):
        raise ItemfoldError(
            f"'run' must be a Run or a model, got {shown(run)}; load a folder with Run.load(folder)"
        )
    if not isinstance(split, Split):
        kind = "a Split, such as ir.split_users(data)"
        raise ItemfoldError(f"'split' must be {kind}, got {shown(split)}")
    trained = split.train if isinstance(run, Model) else run.train
    half_life = (run if isinstance(run, Model) else run.model).half_life
    if half_life not in (None, "never") and split.times is not None:
        split = split.recent(half_life)
    held = check_held_out(run, split, part)
    one_of("fold_in", fold_in, ("frozen", "joint"))
    model = scorer_of(run, split, part)
    facts = item_facts_of(model, run, split, item_table)
    if metrics_as is not None:
        wanted = wanted_metrics(metrics_as, _cutoffs(k), metrics)
    else:
        wanted = _wanted(k, metrics, facts)
    evaluator = Evaluator(held, model.device, budget=budget)
    evaluator.steer(facts, check_steering(steering))
    held = evaluator.held
    if fold_in == "joint":
        own = replace(split, train=trained)
        model, evaluator.users = joint_scorer(model, own, held), np.arange(len(held))
    values, catalogue = evaluator.values(model, wanted, facts, metrics_as)
    means = catalogue | {name: float(np.mean(v)) for name, v in values.items()}
    known = np.diff(held.history.indptr).astype(np.int64)
    is_new = held.users < 0 if split.protocol == "transductive" else None
    return Evaluation({m.key: means[m.key] for m in wanted}, values, held.ids, known, is_new)


def scorer_of(run: TrainedRun | Model, split: Split, part: str = "test") -> Model:
    """The model to evaluate; if the test part has new items, one that scores these as well."""
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


def item_facts_of(
    model: Model, run: TrainedRun | Model, split: Split, table: ItemTable | None = None
) -> ItemFacts:
    """Facts of the items that a model scores."""
    source = split if isinstance(run, Model) else run
    train, items = source.train, ItemCatalogue(source.item_ids, source.titles, source.genres)
    if isinstance(model, WithNewItems):
        assert split.features is not None
        assert split.new_items is not None
        items = with_new_items(items, split.features, split.new_items)
        train = resized(train, (train.shape[0], len(items.item_ids)))
    return ItemFacts(model, train, items.item_ids, items.genres, items.titles, table)


def _wanted(
    k: int | Sequence[int], metrics: Sequence[str] | None, facts: ItemFacts
) -> list[Metric]:
    """The requested metrics; default: all that the data permits, at each cut-off."""
    if metrics is None:
        names = [name for name in CUT_METRICS if is_informative(name, facts)]
        return [parse_metric(f"{name}@{cut}") for cut in _cutoffs(k) for name in names]
    wanted = parse_metrics(metrics)
    of_genres = [metric.key for metric in wanted if metric.name in GENRE_METRICS]
    if of_genres and not facts.has_genres:
        raise ItemfoldError(f"'{of_genres[0]}' needs genres, and the data has none")
    return wanted


def is_informative(name: str, facts: ItemFacts) -> bool:
    """Whether a metric can be computed and varies; the popularity of new items is always 0."""
    if name in GENRE_METRICS:
        return facts.has_genres
    only_new = isinstance(facts.model, WithNewItems) and facts.model.only_new
    return not (only_new and name.startswith("popularity_bias"))


def check_held_out(run: TrainedRun | Model, split: Split, part: str = "test") -> HeldOut:
    """The validation or the test part; raises if it is empty or the run was trained on it."""
    one_of("part", part, ("valid", "test"))
    if not isinstance(run, Model) and run.metrics.get("refit"):
        if part == "valid":
            raise ItemfoldError(
                "'part' must be test for a refitted run: it was trained on the validation part"
            )
        if split.protocol == "transductive":
            split = split.refit()  # users who were new in the validation period have rows
    held = split.valid if part == "valid" else split.test
    if held is None or not len(held):
        raise ItemfoldError(f"this split has no {part} part: nothing was held out for it")
    if not isinstance(run, Model):  # its training data must not contain a held-out item
        same = np.array_equal(run.item_ids.ids, split.item_ids.ids)
        if split.protocol == "transductive":  # users are identified by their row
            same = same and np.array_equal(run.user_ids.ids, split.user_ids.ids)
        if not same:
            raise ItemfoldError(
                "'split' must have the users and items of the run, got different ones"
            )
        replace(split, train=run.train, user_ids=run.user_ids, valid=None, test=held).check()
    return held


def joint_scorer(model: Model, split: Split, held: HeldOut) -> EmbeddingModel:
    """A scorer of held-out users, whose histories are added to the graph."""
    if not isinstance(model, GNN):
        raise ItemfoldError(
            f"'fold_in' must be frozen for {type(model).__name__}; joint needs message passing"
        )
    if split.protocol == "transductive":
        raise ItemfoldError(
            "'fold_in' must be frozen in the transductive protocol: its users are in the graph"
        )
    graph = Graph.from_csr(split.train, model.device).with_users(held.history)
    with torch.no_grad():
        users, items = model.encode(graph)
    scorer = EmbeddingModel()
    scorer.store("user_vectors", users[split.n_users :])
    scorer.store("item_vectors", items)
    return scorer


def _cutoffs(k: int | Sequence[int]) -> list[int]:
    if isinstance(k, str) or not isinstance(k, Integral | Sequence):
        raise ItemfoldError(f"'k' must be a positive integer or a list of them, got {k!r}")
    cuts: list[Any] = [k] if isinstance(k, Integral) else list(k)
    if not cuts:
        raise ItemfoldError("'k' must be a positive integer or a list of them, got none")
    return cuts
