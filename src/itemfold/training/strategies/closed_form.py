"""Closed forms: settings that were left open are chosen on validation, then one fit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from itemfold import ranks
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.environment import pick_device
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.evaluation.metrics import parse_metric
from itemfold.models.base import Model
from itemfold.settings.resolve import Settings
from itemfold.settings.schema import TrainConfig
from itemfold.training.across_ranks import fit_on_first
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.progress import track, watch
from itemfold.training.strategies.noise import is_clear

Trials = list[dict[str, Any]]
CHOOSING = 6  # trials that fits and evaluations after the choice take
# Settings are compared on users with about so many held-out items. On ML-1M, with many of them for
# each user, half of the users cost .1 % on validation; on sparse data 3,000 users of 13,000
# cost up to 5 %, so there all of them are taken.
TARGETS = 2**15


@dataclass
class ClosedFormState:
    """Nothing to resume from: an interrupted fit begins again."""

    history: list[dict[str, Any]] = field(default_factory=list)


def fit(settings: Settings, split: Split, state: ClosedFormState, context: Context) -> FittedModel:
    """Choose what is open, fit, validate once, and fit again with the validation data."""
    started, config, refits = time.perf_counter(), settings.train, settings.refits(split)
    found, trials = choose_settings(settings.make_model(), split, split.valid, config, context)
    chosen = {"model": found} if found else {}
    settings = settings.choose(chosen, "chosen on validation" if trials else "typical value")
    model = solve(settings.make_model(), split, config, context)
    seconds, metrics = time.perf_counter() - started, {}
    if split.valid is not None:
        metrics = Evaluator(split.valid, model.device).metrics(model, config.metric)
        row = {"epoch": 0, "loss": 0.0, "seconds": round(seconds, 3), **metrics}
        state.history.append(row)
    refits = refits and context.deadline.left() > seconds
    if refits:
        started, split = time.perf_counter(), split.refit()
        model = solve(settings.make_model(), split, config, context)
        seconds += time.perf_counter() - started
    return FittedModel(
        model=model,
        settings=settings,
        train=split.train,
        refit=refits,
        seconds=seconds,
        valid=metrics,
        history=state.history,
        chosen=chosen,
        trials=trials,
        notes=model.fit_notes,
    )


def solve(model: Model, split: Split, config: TrainConfig, context: Context) -> Model:
    """Set up and fit a new model, by the first of several ranks."""
    set_up(model, split, config)
    watch(model, show=context.progress)
    fit_on_first(model, split.train)
    return model


def choose_settings(
    model: Model, split: Split, valid: HeldOut | None, config: TrainConfig, context: Context
) -> tuple[dict[str, Any], Trials]:
    """The settings that a model leaves open, and what was tried for them on validation.

    The first settings are kept unless the best are better beyond noise: with few users the best
    is often only lucky.
    """
    if valid is None:
        return model.typical_settings(), []
    set_up(model, split, config)
    return ranks.from_first(lambda: _try_settings(model, split, valid, config, context))


def _try_settings(
    model: Model, split: Split, valid: HeldOut, config: TrainConfig, context: Context
) -> tuple[dict[str, Any], Trials]:
    metric, began = parse_metric(config.metric), time.perf_counter()
    sample = sample_users(valid, model.device, targets=TARGETS)
    tried, trials, values = Trials(), Trials(), list[npt.NDArray[np.float64]]()
    evaluator = Evaluator(sample, model.device)
    for settings in track(model.trials(split.train), "trying settings", show=context.progress):
        started = time.perf_counter()
        found, _ = evaluator.values(model, [metric])
        seconds = round(time.perf_counter() - started, 3)
        tried.append(settings)
        values.append(found[metric.key])
        trials.append({**settings, metric.key: float(values[-1].mean()), "seconds": seconds})
        if context.deadline.left() < CHOOSING * (time.perf_counter() - began) / len(tried):
            break
    if not tried:
        return {}, []
    best = int(np.argmax([value.mean() for value in values]))
    if not is_clear(values[best] - values[0]):
        best = 0
    return dict(tried[best]), trials


def set_up(model: Model, split: Split, config: TrainConfig) -> None:
    """Set up a model for the training part, on its device."""
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))  # before the fit, which creates tensors there
