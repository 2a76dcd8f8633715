"""`evaluate`: rank the whole catalogue for held-out users and compute metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemfold.data.array_types import Floats
from itemfold.data.interactions import IdMap
from itemfold.data.items.item_table import ItemTable
from itemfold.data.joining import ItemCatalogue, resized, with_new_items
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.conventions import wanted_metrics
from itemfold.evaluation.evaluation import Evaluation
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.lists import Lists, is_frame, lists_of
from itemfold.evaluation.metrics import (
    CUT_METRICS,
    GENRE_METRICS,
    Metric,
    parse_metric,
    parse_metrics,
)
from itemfold.evaluation.ranking import BUDGET
from itemfold.evaluation.scoring_function import scorer_of_function
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
    def interactions(self) -> sp.csr_array:
        """What the model was trained on, `[users, items]`."""


def evaluate(
    run: TrainedRun | Model | Any,
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

    Recommendations of any other library can be evaluated as well, under the same protocol: as a
    frame of lists, or as a function that scores. Train it on `split.train` alone: what a function
    or a frame was made from cannot be checked.

    Items of a user's history are not ranked. Users without targets are left out. If whole items
    were held out (`split_items`), they are ranked by their features, among themselves or, with
    `split.among_all_items()`, among all items.

    Args:
        run: The result of `train`, or a model that was trained on this split. Or a frame with
            columns user and item, and rank or score (default: the order of its rows); unknown items
            count as misses, users without a list as 0. Or a function of the histories,
            `[B, items]`, and the rows of the users in `split.train` (−1: unseen), that returns
            scores `[B, items]`.
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
        ItemfoldError: The part is empty, a metric is unknown, the users or items of the split
            are not those of the run, or lists or scores are invalid.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.EASE())
        >>> result = ir.evaluate(run, split, k=[5, 10])
        >>> 0 < result.metrics["ndcg@10"] < 1
        True
        >>> popularity = split.train.sum(0)
        >>> theirs = ir.evaluate(lambda history, users: [popularity] * len(users), split, k=10)
        >>> theirs.metrics["ndcg@10"] < result.metrics["ndcg@10"]
        True
    """
    if not isinstance(split, Split):
        kind = "a Split, such as ir.split_users(data)"
        raise ItemfoldError(f"'split' must be {kind}, got {shown(split)}")
    lists = None
    if not isinstance(run, Model) and not hasattr(run, "model"):
        lists = lists_of(run) if is_frame(run) else None
        run = _other_system(run, split)
    trained = split.train if isinstance(run, Model) else run.interactions
    if split.times is not None:
        split = split.recent((run if isinstance(run, Model) else run.model).half_life)
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
    if lists is not None:
        return _evaluation_of_lists(lists, evaluator, split, wanted, facts, metrics_as)
    if fold_in == "joint":
        own = replace(split, train=trained)
        model, evaluator.users = joint_scorer(model, own, held), np.arange(len(held))
    found = evaluator.values(model, wanted, facts, metrics_as)
    return _evaluation(found, evaluator.held, split, wanted)


def _other_system(given: Any, split: Split) -> Model:
    """What another library made, as a model; raises if it is neither a frame nor a function."""
    if not (is_frame(given) or callable(given)) or isinstance(given, type):
        raise ItemfoldError(
            "'run' must be a Run, a model, a frame of lists or a function that scores, got "
            f"{shown(given)}; load a folder with Run.load(folder)"
        )
    if split.new_items is not None:
        raise ItemfoldError("'run' must be a Run or a model if whole items are held out")
    split.check()
    return scorer_of_function(given, split)


def _evaluation(
    found: tuple[dict[str, Floats], dict[str, float]],
    held: HeldOut,
    split: Split,
    wanted: list[Metric],
    notes: tuple[str, ...] = (),
) -> Evaluation:
    values, catalogue = found
    means = catalogue | {name: float(np.mean(v)) for name, v in values.items()}
    known = np.diff(held.history.indptr).astype(np.int64)
    is_new = held.users < 0 if split.protocol == "transductive" else None
    metrics = {m.key: means[m.key] for m in wanted}
    return Evaluation(metrics, values, held.ids, known, is_new, notes)


def _evaluation_of_lists(
    lists: Lists,
    evaluator: Evaluator,
    split: Split,
    wanted: list[Metric],
    facts: ItemFacts,
    metrics_as: str | None,
) -> Evaluation:
    """The metrics of given lists."""
    if evaluator.reranker is not None:
        raise ItemfoldError("'steering' needs a run or a model: lists are evaluated as they are")
    if full := [metric for metric in wanted if metric.k is None]:
        raise ItemfoldError(f"'{full[0].key}' needs the whole ranking: use {full[0].name}@20")
    depth = min(max(metric.k or 1 for metric in wanted), evaluator.n_items)
    top, notes = lists.ranked(evaluator.held, facts.item_ids, depth)
    found = evaluator.values_of_lists(top, wanted, facts, metrics_as)
    return _evaluation(found, evaluator.held, split, wanted, notes)


def scorer_of(run: TrainedRun | Model, split: Split, part: str = "test") -> Model:
    """The model to evaluate; if the test part has new items, one that scores these as well."""
    model = run if isinstance(run, Model) else run.model
    if split.new_items is None or part != "test":
        return model
    assert split.features is not None
    trained, chosen = split.train, None
    if not isinstance(run, Model):
        trained, chosen = run.interactions, run.metrics.get("new_items")
    parts = (split.features, split.item_ids, split.new_items)
    found = WithNewItems.of(model, trained, *parts, chosen)
    found.only_new = not split.ranks_all
    return found


def item_facts_of(
    model: Model, run: TrainedRun | Model, split: Split, table: ItemTable | None = None
) -> ItemFacts:
    """Facts of the items that a model scores."""
    source = split if isinstance(run, Model) else run
    train = split.train if isinstance(run, Model) else run.interactions
    items = ItemCatalogue(source.item_ids, source.titles, source.genres)
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
    by_popularity = name.startswith(("popularity_bias", "head_recall", "tail_recall"))
    return not (only_new and by_popularity)


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
        replace(split, train=run.interactions, user_ids=run.user_ids, valid=None, test=held).check()
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
