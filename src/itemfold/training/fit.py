"""Fit a model, evaluate the test users once, save the run.

The kind of the model determines its strategy (`strategies`). The epoch loop is `loop.descend`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.data.interactions import IdMap
from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.splitting.split import Split
from itemfold.data.weights import is_weighted
from itemfold.environment import memory_of, pick_device
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluate import evaluate
from itemfold.models.base import Kind, Model
from itemfold.models.with_new_items import WithNewItems
from itemfold.sampling import Sampler
from itemfold.sampling.exact import check_negatives_left
from itemfold.settings.resolve import Request, Settings, resolve
from itemfold.settings.schema import list_settings
from itemfold.training.across_ranks import join_ranks
from itemfold.training.deadline import Deadline
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.progress import watch
from itemfold.training.references import add_references
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder
from itemfold.training.strategies import STRATEGIES
from itemfold.validation import shown

SECONDS_PER_SCORE = 3e-9  # to score and rank one item for one user, about
COPIES = 4  # per weight in training: the weight, its gradient and Adam's two moments


@list_settings
def train(
    split: Split,
    model: Model | None = None,
    *,
    loss: Callable[..., Tensor] | None = None,
    negatives: Sampler | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Train a model on a split, select the epoch on validation, evaluate the test users once.

    With `out`, the run and its state during training are saved there, so that `resume=True`
    continues an interrupted run to the same weights. Ctrl-C stops at the best epoch so far: the run
    is evaluated and returned, and `run.metrics["complete"]` is False. `model` is not modified:
    `run.model` is a new object. Training `run.model` again keeps the settings selected by its run.

    Args:
        split: A split, as returned by `split_interactions`, `split_users` and the others.
        model: A model, such as `ir.models.LightGCN()`; default: `ir.models.Hybrid()`, which selects
            its own settings.
        loss: A loss, such as `ir.losses.item_ndcg(tau=0.5)`; default: the model's. A model with
            its own objective or a closed form does not use it.
        negatives: A sampler, such as `ir.negatives.PPR()`; default: the model's.
        out: The run folder; without it, the run is not saved.
        resume: Continue the run in `out`.
        progress: Show a progress bar.
        **settings: Fields of `TrainConfig`. Defaults come from the model, then from the loss, then
            from `TrainConfig`.

    Returns:
        The run: the trained model, its settings, and its metrics on validation and test.

    Raises:
        ItemfoldError: A setting is unknown or invalid, components are incompatible, `out`
            holds another run, or the loss became infinite.
        LeakError: A held-out interaction is part of the training data.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> model = ir.models.LightGCN(dim=8, layers=2)
        >>> run = ir.train(ir.split_users(data), model, loss=ir.losses.item_ndcg(tau=0.5), epochs=2)
        >>> sorted(run.metrics["valid"])
        ['capped_recall@20', 'ndcg@20', 'recall@20']
    """
    _check_types(split, model, loss, negatives)
    values = {"model": model or {}, "loss": loss, "negatives": negatives, "train": settings}
    complete = resolve(Request(values, source="argument")).of_split(split, "argument")
    return fit_and_test(complete, split, out=out, resume=resume, progress=progress)


def fit_and_test(
    settings: Settings,
    split: Split,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    started: float | None = None,
    metrics: Sequence[str] | None = None,
) -> Run:
    """Fit a model, evaluate it and save it; all ranks call this together.

    The first rank shows progress and writes the folder. If a rank fails and ``torchrun`` restarts
    all of them, they continue from the last state. The budget counts from ``started``, a value of
    `time.monotonic`; default: now.

    With ``metrics``, only these are computed, reference models are not evaluated, and the folder
    keeps only the state of an interrupted training: a suite stores metrics, not runs.
    """
    deadline = Deadline(settings.train.budget, time.monotonic() if started is None else started)
    settings = settings.of_split(split)
    model, device = settings.make_model(), settings.train.device
    join_ranks(model, settings.make_sampler(), device)
    progress, resume = progress and ranks.is_first(), resume or ranks.is_restart()
    check(settings, model, split)
    deadline.reserve = len(split.test) * split.n_items * SECONDS_PER_SCORE
    context = Context(progress=progress, deadline=deadline)
    strategy = STRATEGIES[settings.model_class.kind]
    if out is None:
        fitted = strategy.fit(settings, split, strategy.state(), context)
        return _tested(fitted, split, context, metrics)
    folder = RunFolder(out)

    def save_stage(fitted: FittedModel, name: str) -> None:
        began = time.perf_counter()
        run = _tested(replace(fitted, parts={}), split, context)
        run.metrics["stage"] = name
        ranks.from_first(lambda: folder.save(run))
        deadline.reserve = time.perf_counter() - began

    with folder.locked():
        if resume and ranks.from_first(lambda: folder.is_finished_run_of(settings, split)):
            return folder.load()
        found = folder.claim(settings, split, resume)
        state = strategy.state() if found is None else strategy.state.loaded(found)
        on_stage = save_stage if metrics is None else None
        context = replace(context, folder=folder, on_stage=on_stage)
        run = _tested(strategy.fit(settings, split, state, context), split, context, metrics)
        if metrics is None:
            ranks.from_first(lambda: folder.save(run))
    return run


def _tested(
    fitted: FittedModel, split: Split, context: Context, metrics: Sequence[str] | None = None
) -> Run:
    """The run of a fitted model, with the metrics of the test users."""
    split, progress = split.refit() if fitted.refit else split, context.progress
    run = Run.of(fitted, split)
    if split.features is not None:
        watch(run.model, show=progress)
        run.metrics["new_items"] = map_settings(run, split.features)
    if len(split.test):
        started = time.perf_counter()
        run.add_evaluation(evaluate(run, split, metrics=metrics), time.perf_counter() - started)
        if split.new_items is not None:
            run.metrics["among_all_items"] = evaluate(run, split.among_all_items()).metrics
        elif metrics is None or fitted.parts:
            parts = fitted.parts if _can_test_parts(run, fitted, context) else {}
            add_references(run, parts, split.recent(run.model.half_life))
    return run


def _can_test_parts(run: Run, fitted: FittedModel, context: Context) -> bool:
    """Whether the budget leaves time to evaluate every part."""
    left = context.deadline.left() + context.deadline.reserve  # the reserved evaluation is done
    each = run.metrics["seconds"]["evaluate"]
    return bool(ranks.from_first(lambda: left > len(fitted.parts) * each))


def map_settings(run: Run, features: ItemFeatures) -> dict[str, float]:
    """The settings of the map from features to scores, selected on the training interactions."""
    none = IdMap(features.ids.ids[:0])
    found = WithNewItems.of(run.model, run.interactions, features, run.item_ids, none)
    return found.map.settings.record()


# --- checks before anything is written or trained ------------------------------------------------


def check(settings: Settings, model: Model, split: Split) -> None:
    """Reject invalid combinations of settings and data."""
    is_blind = split.valid is None and not len(split.test)
    if is_blind and not settings.is_given("train.epochs") and model.kind is not Kind.CLOSED_FORM:
        raise ItemfoldError("'epochs' must be given if no data is held out for validation")
    check_memory(model, split, pick_device(settings.train.device))
    split.check()
    if is_weighted(split.train):
        model.check_weights()
    if split.protocol == "inductive":
        model.check_inductive()
    elif not model.inductive and any(
        (held.users < 0).any() for held in (split.valid, split.test) if held is not None
    ):
        raise ItemfoldError(
            f"{type(model).__name__} cannot score the new users of this split: "
            f'{model.why_not_inductive}; leave them out with new_users="drop"'
        )
    if settings.refits(split) and model.kind.has_lists and settings.make_sampler().draws:
        check_negatives_left(split.n_items - np.diff(split.refit().train.indptr))


def check_memory(model: Model, split: Split, device: torch.device) -> None:
    """Raise if the embeddings of a model need more memory than the device has.

    The estimate is a lower bound: a model that passes may still be too large.
    """
    dim = model.network.settings.get("dim")
    if not isinstance(dim, int):
        return
    rows = split.n_items + (split.n_users if split.protocol == "transductive" else 0)
    copies = 1 if model.kind is Kind.CLOSED_FORM else COPIES
    needed, available = 4 * copies * rows * dim // ranks.size(), memory_of(device)
    if needed > available:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemfoldError(
            f"'dim' must be smaller: {rows:,} rows of {dim:,} numbers need at least "
            f"{needed / 2**30:,.0f} GiB in training; {where} has {available / 2**30:,.0f} GiB"
        )


def _check_types(split: Any, model: Any, loss: Any, sampler: Any) -> None:
    """Raise if an argument is a name or a class instead of an instance."""
    for name, value, right, kind in (
        ("split", split, isinstance(split, Split), "a Split, such as ir.split_users(data)"),
        (
            "model",
            model,
            model is None or isinstance(model, Model),
            "a model, such as ir.models.LightGCN()",
        ),
        ("loss", loss, loss is None or callable(loss), "a function, such as ir.losses.bpr"),
        (
            "negatives",
            sampler,
            sampler is None or (isinstance(sampler, Sampler) and is_dataclass(sampler)),
            "a sampler, such as ir.negatives.PPR()",
        ),
    ):
        if not right:
            is_table = name == "split" and hasattr(value, "columns")
            hint = "; ir.fit takes a table" if is_table else ""
            raise ItemfoldError(f"'{name}' must be {kind}, got {shown(value)}{hint}")
