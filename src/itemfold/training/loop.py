"""The epoch loop: gradient descent, validation, the best weights, saved states."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from itemfold.data.splitting.split import HeldOut, Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluator import Evaluator
from itemfold.models.base import Model
from itemfold.settings.resolve import Settings
from itemfold.training.fitted import Context
from itemfold.training.interrupt import Interrupt
from itemfold.training.kept_memory import returning_memory
from itemfold.training.learner import Learner
from itemfold.training.progress import EpochBar
from itemfold.training.state import DescentState, State, load_weights


@returning_memory()
def descend(
    model: Model,
    settings: Settings,
    split: Split,
    state: DescentState,
    context: Context,
    *,
    valid: HeldOut | None,
    validate: Callable[[Model], dict[str, float]] | None = None,
    start: Mapping[str, Tensor] | None = None,
    saved: State | None = None,
    from_zero: bool = False,
    most: int | None = None,
) -> None:
    """Train a model by gradient descent; it ends with the weights selected on validation.

    Ctrl-C saves the state, stops at the best epoch so far, and sets ``state.stopped``.

    Args:
        model: A new model; it is set up for the training part of ``split``.
        settings: Loss, negatives and training settings.
        split: The data.
        state: The state to start or resume from.
        context: The folder of saved states, the deadline and the progress setting.
        valid: Held-out users to select the epoch on; None: train all epochs.
        validate: Returns the validation metrics; default: those of the model itself.
        start: Weights to start from instead of random ones.
        saved: The state to save, of which ``state`` may be a part; default: ``state``.
        from_zero: Whether the untrained weights are validated and may be selected.
        most: Maximum number of epochs of the selection, instead of ``train.epochs``.
    """
    is_new = not start and not state.tensors
    learner, config = Learner(model, settings, split, initialise=is_new), settings.train
    load_weights(model, start or {})
    state.restore(learner)
    step = learner.recorded_step()
    average, graph = learner.average, learner.graph
    evaluator = Evaluator(valid, learner.device) if valid is not None else None
    last = config.epochs if most is None else most
    if state.phase != "select":
        last = max(state.best.epoch, not from_zero)
    if evaluator and validate is None:
        validate = partial(evaluator.metrics, metric=config.metric)
    patience = _patience(settings, split, learner) if evaluator else last  # else no early stopping
    with EpochBar(state.phase, last, config.metric, show=context.progress) as bar, Interrupt() as i:
        if validate and from_zero and not state.epoch:
            model.eval()
            model.cache_embeddings(graph)
            state.record(0.0, validate(model), config, model)
            model.drop_embeddings()
        while state.epoch < last and state.epoch - state.gain_epoch < patience:
            started = time.perf_counter()
            learner.set_rate(state.rate(config))
            loss = learner.epoch(step)
            state.epoch += 1
            state.seconds += time.perf_counter() - started
            if not math.isfinite(loss):
                raise ItemfoldError(
                    f"the loss became {loss} in epoch {state.epoch}: "
                    f"try a smaller 'lr' (now {config.lr}) or a larger temperature"
                )
            validated = time.perf_counter()
            if validate and (config.validates_at(state.epoch) or state.epoch == last):
                with average.applied():
                    model.eval()
                    model.cache_embeddings(graph)
                    state.record(loss, validate(model), config, model)
                    model.drop_embeddings()
                state.note_plateau(config)
            validated = time.perf_counter() - validated
            bar.update(state, loss)
            i.agree()
            if context.folder is not None:
                pause = 0.0 if i.requested else config.save_seconds
                context.folder.save_state(saved or state, learner, least_seconds=pause)
            if i.number == signal.SIGINT and (state.best.weights or not evaluator):
                state.stopped = True
                break
            i.check()
            if not evaluator or not state.best.weights:
                continue
            if _is_spent(settings, split, state, context, validated):
                break
    if evaluator:
        load_weights(model, state.best.weights)
    else:
        if state.phase == "select" or not state.stopped:
            state.best.epoch = state.epoch
        average.keep()
    model.eval()
    model.cache_embeddings(graph)


def _is_spent(
    settings: Settings, split: Split, state: DescentState, context: Context, validation: float
) -> bool:
    """Whether the budget leaves no time for further epochs, a validation and the refit."""
    pace = (state.seconds - state.begun) / state.epoch
    refit = (state.best.epoch + settings.train.eval_every) * pace if settings.refits(split) else 0.0
    return context.deadline.left() < refit + settings.train.eval_every * pace + validation


def _patience(settings: Settings, split: Split, learner: Learner) -> int:
    """Patience in epochs: the setting, or 150, but at least 400 steps if users are known.

    Trained user vectors stay on a plateau for a few hundred steps before validation improves
    (docs/research).
    """
    config = settings.train
    if config.patience is not None:
        return config.patience
    steps = len(learner.batches.epoch(torch.Generator(learner.device)))
    least = math.ceil(400 / steps) if split.protocol == "transductive" else 0
    return max(150, least, config.eval_every)
