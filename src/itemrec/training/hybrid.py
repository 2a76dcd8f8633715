"""Training of a hybrid: settings by the data, the linear part, the network, and their blend."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch

from itemrec.data.split import HeldOut, Split
from itemrec.environment import pick_device
from itemrec.evaluation.evaluate import Evaluator, sample_users
from itemrec.losses import unbind
from itemrec.models.hybrid import BLEND, NORM, OF_LINEAR, Hybrid
from itemrec.training.blend import BlendSearch
from itemrec.training.closed_form import fit, try_settings
from itemrec.training.descent import descend
from itemrec.training.plan import Plan
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState

STEPS = 32  # of an epoch, at least
SMALLEST, LARGEST = 512, 32768  # interactions in a step
WIDE = {"cpu": 64, "cuda": 256}  # length of a vector
COVERED = {"cpu": 20_000, "cuda": 50_000}  # items of the linear part at most


def fit_hybrid(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
) -> None:
    """Fit the linear part, train the network, and, with validation data, choose the blend."""
    model, device = plan.model, pick_device(plan.config.device)
    assert isinstance(model, Hybrid)
    if not state.chosen:
        for section, settings in by_data(plan, split).items():
            state.choose(section, settings)
    model.take(state.chosen.get("model", {}))
    plan = with_choices(plan, state)
    config, generator = plan.config, torch.Generator().manual_seed(plan.config.seed)
    model.setup(split.train, inductive=split.protocol == "inductive", generator=generator)
    model.to(device)
    cosine = config.similarity == "cosine"
    model.temperature = unbind(plan.loss)[1].get("tau", 0.0) if cosine else 0.0
    sample = None if valid is None else sample_users(valid, device)
    fit_linear(model, plan, split, state, valid=sample, progress=progress)
    part = replace(plan, model=model.gnn)
    descend(part, split, state, valid=sample, folder=folder, progress=progress, scorer=model)
    model.count(split.train)
    if model.blend is None:
        blend: dict[str, Any] = {"norm": NORM, "blend": BLEND}
        if valid is not None:
            model.scale_items()
            blend = BlendSearch(model, valid, config.metric, config.seed).run(progress=progress)
        model.take(blend)
        state.choose("model", blend)
    model.scale_items()
    model.eval()
    if valid is not None:
        state.best_metrics = Evaluator(valid, device).metrics(model, config.metric)
        state.best_value = state.best_metrics[config.metric]


def fit_linear(
    model: Hybrid,
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    progress: bool,
) -> None:
    """Fit the linear part; what is left open is chosen on validation."""
    started, linear = time.perf_counter(), model.linear
    if valid is not None and linear.l2 is None:
        try_settings(linear, split.train, valid, plan.config, state, progress)
    fit(linear, split.train, progress)
    found = {f"linear_{name}": getattr(linear, name) for name in OF_LINEAR}
    if model.linear_l2 is None:
        model.take(found)
        state.choose("model", found)
    state.seconds += time.perf_counter() - started


def by_data(plan: Plan, split: Split) -> dict[str, dict[str, Any]]:
    """Settings that follow from the size of the data and the device, unless they were given."""
    model, size = plan.model, split.train.nnz
    assert isinstance(model, Hybrid)
    out: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
    device = pick_device(plan.config.device).type
    if model.dim is None:
        out["model"]["dim"] = WIDE[device]
    if model.linear_items is None:
        out["model"]["linear_items"] = min(COVERED[device], split.n_items)
    batch = plan.config.batch
    if "train.batch" not in plan.given:
        batch = 2 ** max(size // STEPS, 1).bit_length() // 2
        out["train"]["batch"] = batch = min(max(batch, SMALLEST), LARGEST)
    if "train.lr" not in plan.given:  # the noise of a step grows as it gets smaller
        out["train"]["lr"] = round(plan.config.lr * (batch / LARGEST) ** 0.5, 6)
    return out


def with_choices(plan: Plan, state: TrainState) -> Plan:
    """The plan with the training settings that were chosen."""
    return replace(plan, config=replace(plan.config, **state.chosen.get("train", {})))
