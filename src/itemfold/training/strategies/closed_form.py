"""Closed forms: select open settings on validation, then fit once."""

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
RESERVED_TRIALS = 6  # fits and evaluations after the trials take about as long as so many trials
# Settings are compared on users with about this many held-out items. On ML-1M, which has many
# targets per user, using half of the users costs .1 % on validation. On sparse data, 3,000 users of
# 13,000 cost up to 5 %, so there all users are used.
TARGETS = 2**15


@dataclass
class ClosedFormState:
    """The state of a closed form: an interrupted fit starts again."""

    history: list[dict[str, Any]] = field(default_factory=list)


def fit(settings: Settings, split: Split, state: ClosedFormState, context: Context) -> FittedModel:
    """Select open settings, fit, validate once, and refit with the validation data."""
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
    """Set up and fit a new model; with several ranks, the first one fits it."""
    set_up(model, split, config)
    watch(model, show=context.progress)
    fit_on_first(model, split.train)
    return model


def choose_settings(
    model: Model, split: Split, valid: HeldOut | None, config: TrainConfig, context: Context
) -> tuple[dict[str, Any], Trials]:
    """The values for the settings that a model leaves open, and the trials on validation.

    The first trial is kept unless the best one is better beyond noise: with few users, the best
    trial is often only lucky.
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
        if context.deadline.left() < RESERVED_TRIALS * (time.perf_counter() - began) / len(tried):
            break
    if not tried:
        return {}, []
    best = int(np.argmax([value.mean() for value in values]))
    if not is_clear(values[best] - values[0]):
        best = 0
    return dict(tried[best]), trials


def set_up(model: Model, split: Split, config: TrainConfig) -> None:
    """Set up a model for the training part, on the configured device."""
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))  # before the fit, which creates tensors on it
