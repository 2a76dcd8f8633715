"""Closed forms: settings that were left open are chosen on validation, then one fit."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemrec import ranks
from itemrec.data.split import HeldOut, Split
from itemrec.environment import pick_device
from itemrec.evaluation.evaluator import Evaluator, sample_users
from itemrec.evaluation.metrics import parse_metric
from itemrec.models.base import Model
from itemrec.training.across_ranks import solved_on_first
from itemrec.training.config import TrainConfig
from itemrec.training.plan import Plan
from itemrec.training.progress import track, watch
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState


def solve(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
) -> None:
    """Closed forms: one fit, by the first of several ranks, and one validation."""
    started = time.perf_counter()
    model, config = plan.model, plan.config
    generator = torch.Generator().manual_seed(config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(pick_device(config.device))  # after the fit, which creates the tensors to move
    found = solved_on_first(
        model,
        split.train,
        lambda: choose_and_fit(model, split.train, valid, config, state, progress),
    )
    state.choose("model", found)
    state.trials = ranks.from_first(lambda: state.trials)
    state.seconds += time.perf_counter() - started
    if valid is not None:
        metrics = Evaluator(valid, model.device).metrics(model, config.metric)
        state.record(0.0, metrics, config)


def choose_and_fit(
    model: Model,
    train: sp.csr_array,
    valid: HeldOut | None,
    config: TrainConfig,
    state: TrainState,
    progress: bool,
) -> dict[str, Any]:
    """Fit a closed form; with validation data, with the settings that are returned."""
    found = {} if valid is None else try_settings(model, train, valid, config, state, progress)
    fit(model, train, progress)
    return found


def fit(model: Model, train: sp.csr_array, progress: bool) -> None:
    """Solve, with a progress bar over the steps of the solution."""
    watch(model, show=progress)
    model.fit(train)
    model.eval()


def try_settings(
    model: Model,
    train: sp.csr_array,
    valid: HeldOut,
    config: TrainConfig,
    state: TrainState,
    progress: bool,
) -> dict[str, Any]:
    """Try what `Model.trials` offers, take the best, and return it.

    The first settings are kept unless the best are better by more than a standard error of the
    difference: with few validation users the best is often only lucky.
    """
    evaluator = Evaluator(sample_users(valid, model.device), model.device)
    watch(model, show=False)
    metric = parse_metric(config.metric)
    tried, values = list[dict[str, Any]](), list[npt.NDArray[np.float64]]()
    for settings in track(model.trials(train), "trying settings", show=progress):
        started = time.perf_counter()
        found, _ = evaluator.values(model, [metric])
        seconds = round(time.perf_counter() - started, 3)
        tried.append(settings)
        values.append(found[metric.key])
        state.trials.append({**settings, metric.key: float(values[-1].mean()), "seconds": seconds})
    if not tried:
        return {}
    best = int(np.argmax([value.mean() for value in values]))
    ahead = values[best] - values[0]
    if ahead.mean() <= ahead.std() / np.sqrt(len(ahead)):
        best = 0
    model.take(tried[best])
    return dict(tried[best])
