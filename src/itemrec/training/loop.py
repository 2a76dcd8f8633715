"""The training loop: select the epoch on validation, refit, evaluate the test users once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from itemrec.data.split import HeldOut, Split
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.evaluation.evaluate import Evaluator, evaluate
from itemrec.losses import item_ndcg
from itemrec.models.base import Kind, Model
from itemrec.sampling import Sampler, Uniform
from itemrec.training.config import TrainConfig, list_settings, resolve_training
from itemrec.training.interrupt import Interrupt
from itemrec.training.learner import Learner
from itemrec.training.plan import Plan, check_epochs_known
from itemrec.training.progress import EpochBar
from itemrec.training.run import Run
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState
from itemrec.validation import shown


@list_settings
def train(
    split: Split,
    model: Model,
    *,
    loss: Callable[..., Tensor] = item_ndcg,
    negatives: Sampler | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Train a model on a split, select the epoch on validation, evaluate the test users once.

    With `out`, the run and its state during training are saved there, so that `resume=True`
    continues an interrupted run to the same weights. A model that is already trained is left
    unchanged: a new model with the same settings is trained.

    Args:
        split: A split, as returned by `split_interactions`, `split_users` and the others.
        model: A model, such as `ir.models.LightGCN()`.
        loss: A loss, such as `ir.losses.item_ndcg(tau=0.5)`. A model with its own objective or a
            closed form does not use it.
        negatives: A sampler, such as `ir.negatives.PPR()`; uniform negatives by default.
        out: The run folder; without it, the run is not saved.
        resume: Continue the run in `out`.
        progress: Show a progress bar.
        **settings: Fields of `TrainConfig`. Defaults come from the model, then from the loss, then
            from `TrainConfig`.

    Returns:
        The run: the trained model, its settings, and its metrics on validation and test.

    Raises:
        ItemrecError: A setting is unknown or invalid, the components do not fit together, `out`
            holds another run, or the loss became infinite.
        LeakError: A held-out interaction is part of the training data.

    Examples:
        >>> import itemrec as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> model = ir.models.LightGCN(dim=8, layers=2)
        >>> run = ir.train(ir.split_users(data), model, loss=ir.losses.item_ndcg(tau=0.5), epochs=2)
        >>> sorted(run.metrics["valid"])
        ['capped_recall@20', 'ndcg@20', 'recall@20']
    """
    sampler = negatives if negatives is not None else Uniform()
    _check_types(split, model, loss, sampler)
    if "n_items" in vars(model):  # it was set up before
        model = type(model)(**model.settings)
    config = resolve_training(model, loss, settings)
    check_epochs_known(split, model, settings)
    plan = Plan(split, model, loss, sampler, config)
    return run_plan(plan, out=out, resume=resume, progress=progress)


def run_plan(
    plan: Plan, *, out: str | Path | None = None, resume: bool = False, progress: bool = False
) -> Run:
    """Train according to a plan."""
    plan.check()
    if out is None:
        return _run_in(None, plan, resume=resume, progress=progress)
    folder = RunFolder(out)
    with folder.locked():
        return _run_in(folder, plan, resume=resume, progress=progress)


def _run_in(folder: RunFolder | None, plan: Plan, *, resume: bool, progress: bool) -> Run:
    """Select, refit, evaluate and save, from the state in the folder if there is one."""
    split, run = plan.split, Run.of(plan)
    state = TrainState(data=run.dataset["fingerprint"])
    if folder is not None:
        state = folder.claim(run, state, resume)
        if resume and folder.is_finished:
            return folder.load()
    fit = solve if plan.model.kind is Kind.CLOSED_FORM else descend
    if state.phase == "select":
        fit(plan, split, state, valid=split.valid, folder=folder, progress=progress)
        state.begin_refit()
    if plan.refits:
        split = split.refit()
        fit(plan, split, state, valid=None, folder=folder, progress=progress)
    run.finish(split.train, state, refit=plan.refits)
    if len(split.test):
        started = time.perf_counter()
        run.add_evaluation(evaluate(run, split), time.perf_counter() - started)
    if folder is not None:
        folder.save(run)
    return run


def descend(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
) -> None:
    """Gradient descent; the model ends with the weights selected on validation."""
    learner, config = Learner(plan, split), plan.config
    state.restore(learner)
    step = learner.recorded_step()
    model, average, graph = learner.model, learner.average, learner.graph
    evaluator = Evaluator(valid, learner.device) if valid is not None else None
    last = config.epochs if state.phase == "select" else max(state.best_epoch, 1)
    patience = _patience(config, split, learner) if evaluator else last  # else no early stopping
    with EpochBar(state.phase, last, config.metric, show=progress) as bar, Interrupt() as interrupt:
        while state.epoch < last and state.epoch - state.best_epoch < patience:
            started = time.perf_counter()
            loss = learner.epoch(step)
            state.epoch += 1
            state.seconds += time.perf_counter() - started
            if not math.isfinite(loss):
                raise ItemrecError(
                    f"the loss became {loss} in epoch {state.epoch}: "
                    f"try a smaller 'lr' (now {config.lr}) or a larger temperature"
                )
            if evaluator and (state.epoch % config.eval_every == 0 or state.epoch == last):
                with average.applied():
                    model.eval()
                    model.cache_embeddings(graph)
                    metrics = evaluator.metrics(model, config.metric)
                    state.record(loss, metrics, config.metric, model)
            bar.update(state, loss)
            if folder is not None:
                pause = 0.0 if interrupt.requested else config.save_seconds
                folder.save_state(state, learner, least_seconds=pause)
            interrupt.check()
    if evaluator:
        state.restore_best(model)
    else:
        state.best_epoch = state.epoch
        average.keep()
    model.eval()
    model.cache_embeddings(graph)


def solve(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
) -> None:
    """Closed forms: one fit and one validation."""
    started = time.perf_counter()
    model, config = plan.model, plan.config
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))  # after the fit, which creates the tensors to move
    model.fit(split.train)
    model.eval()
    state.seconds += time.perf_counter() - started
    if valid is not None:
        metrics = Evaluator(valid, model.device).metrics(model, config.metric)
        state.record(0.0, metrics, config.metric)


def _patience(config: TrainConfig, split: Split, learner: Learner) -> int:
    """Patience in epochs: as given, or 150, and for known users at least 400 steps.

    Trained user vectors stay on a plateau for some hundred steps before validation improves
    (LOG.md).
    """
    if config.patience is not None:
        return config.patience
    steps = len(learner.batches.epoch(torch.Generator(learner.device)))
    least = math.ceil(400 / steps) if split.protocol == "transductive" else 0
    return max(150, least, config.eval_every)


def _check_types(split: Any, model: Any, loss: Any, sampler: Any) -> None:
    """Reject names and classes, which belong in a configuration: instances are expected."""
    for name, value, right, kind in (
        ("split", split, isinstance(split, Split), "a Split, such as ir.split_users(data)"),
        ("model", model, isinstance(model, Model), "a model, such as ir.models.LightGCN()"),
        ("loss", loss, callable(loss), "a function, such as ir.losses.bpr"),
        (
            "negatives",
            sampler,
            isinstance(sampler, Sampler) and is_dataclass(sampler),
            "a sampler, such as ir.negatives.PPR()",
        ),
    ):
        if not right:
            raise ItemrecError(f"'{name}' must be {kind}, got {shown(value)}")
