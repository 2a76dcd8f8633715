"""Gradient descent: epochs, validation, the best weights, and a state to resume from."""

from __future__ import annotations

import math
import time

import torch

from itemrec import ranks
from itemrec.data.split import HeldOut, Split
from itemrec.errors import ItemrecError
from itemrec.evaluation.evaluator import Evaluator
from itemrec.models.base import Model
from itemrec.training.config import TrainConfig
from itemrec.training.interrupt import Interrupt
from itemrec.training.kept_memory import memory_returned
from itemrec.training.learner import Learner
from itemrec.training.plan import Plan
from itemrec.training.progress import EpochBar
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState


@memory_returned()
def descend(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
    scorer: Model | None = None,
) -> None:
    """Gradient descent; the model ends with the weights selected on validation.

    ``scorer`` is what is validated: the model itself, or a larger one of which it is a part.
    """
    learner, config = Learner(plan, split), plan.config
    state.restore(learner)
    step = learner.recorded_step()
    model, average, graph = learner.model, learner.average, learner.graph
    evaluator = Evaluator(valid, learner.device) if valid is not None else None
    last = config.epochs if state.phase == "select" else max(state.best_epoch, 1)
    patience = _patience(config, split, learner) if evaluator else last  # else no early stopping
    with EpochBar(state.phase, last, config.metric, show=progress) as bar, Interrupt() as interrupt:
        while state.epoch < last and state.epoch - state.gain_epoch < patience:
            started = time.perf_counter()
            learner.set_rate(state.rate(config))
            loss = learner.epoch(step)
            state.epoch += 1
            state.seconds += time.perf_counter() - started
            if not math.isfinite(loss):
                raise ItemrecError(
                    f"the loss became {loss} in epoch {state.epoch}: "
                    f"try a smaller 'lr' (now {config.lr}) or a larger temperature"
                )
            if evaluator and (config.is_look(state.epoch) or state.epoch == last):
                with average.applied():
                    model.eval()
                    model.cache_embeddings(graph)
                    metrics = evaluator.metrics(scorer or model, config.metric)
                    state.record(loss, metrics, config, model)
                    model.drop_embeddings()
                state.note_plateau(config)
            bar.update(state, loss)
            interrupt.agree()
            if folder is not None:
                pause = 0.0 if interrupt.requested else config.save_seconds
                folder.save_state(state, learner, least_seconds=pause)
            interrupt.check()
            state.elapsed += time.perf_counter() - started
            if evaluator and state.best_epoch and _is_spent(plan, state):
                break
    if evaluator:
        state.restore_best(model)
    else:
        state.best_epoch = state.epoch
        average.keep()
    model.eval()
    model.cache_embeddings(graph)


def _is_spent(plan: Plan, state: TrainState) -> bool:
    """Whether the budget has only as much left as the refit will take."""
    budget = plan.config.budget
    if budget is None:
        return False
    pace = (state.seconds - state.begun) / state.epoch
    refit = state.best_epoch * pace if plan.refits else 0.0
    return ranks.from_first(lambda: state.elapsed + refit > budget)  # by its clock


def _patience(config: TrainConfig, split: Split, learner: Learner) -> int:
    """Patience in epochs: as given, or 150, and for known users at least 400 steps.

    Trained user vectors stay on a plateau for some hundred steps before validation improves
    (docs/research/training.md).
    """
    if config.patience is not None:
        return config.patience
    steps = len(learner.batches.epoch(torch.Generator(learner.device)))
    least = math.ceil(400 / steps) if split.protocol == "transductive" else 0
    return max(150, least, config.eval_every)
