"""Training of a hybrid: the linear part, a race of networks, and the blend of the two.

Settings that were not given follow from the size of the data and the device, or are chosen on
validation. What was tried and taken is part of the run: `chosen` and `trials` in its metrics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from itemrec import ranks
from itemrec.data.split import HeldOut, Split
from itemrec.environment import pick_device
from itemrec.evaluation.evaluator import Evaluator, sample_users
from itemrec.evaluation.metrics import parse_metric
from itemrec.losses import bind, unbind
from itemrec.models.hybrid import BLEND, OF_LINEAR, Hybrid
from itemrec.sampling import NEGATIVES
from itemrec.training.across_ranks import solved_on_first
from itemrec.training.blend import BlendSearch
from itemrec.training.closed_form import choose_and_fit
from itemrec.training.descent import descend
from itemrec.training.plan import Plan
from itemrec.training.run_folder import RunFolder
from itemrec.training.state import TrainState

STEPS = 16  # of an epoch, at least: weights are averaged over about a hundred steps
SMALLEST, LARGEST = 512, 32768  # interactions in a step
WIDTH = {"cpu": 64, "cuda": 256}  # length of a vector
SHARED = {"cpu": 512, "cuda": 4096}  # interactions that share their negatives
COUNTED = 4096  # ranks within a smaller group are scaled to those among as many
COVERED = {"cpu": 20_000, "cuda": 50_000}  # items of the linear part at most
DENSE = 0.005  # share of all pairs that are interactions, from which inner products are tried


@dataclass(frozen=True)
class Candidate:
    """Settings of the network, by section; a section with a name replaces the given one."""

    name: str
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)


# On sparse data cosines are better by far, on dense data either may be (docs/research/item-log.md).
INNER_PRODUCTS = Candidate(
    "inner products, uniform negatives",
    {
        "loss": {"tau": 1.5},
        "negatives": {"name": "uniform"},
        "train": {
            "batch_by": "users",
            "batch": 512,
            "similarity": "dot",
            "n_negatives": 200,
            "lr": 0.01,
            "l2": 0.003,
            "epochs": 1000,
            "eval_every": 20,
            "patience": 100,
        },
    },
)


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
    model.take(state.chosen.get("model", {}))
    entries = candidates(plan, split)
    model.take(entries[0].settings.get("model", {}))
    set_up(model, split, device)
    sample = None if valid is None else sample_users(valid, device)
    fit_linear(model, plan, split, state, valid=sample, progress=progress)
    if sample is None:
        if not state.finished:  # nothing was held out to choose on
            for section, values in entries[0].settings.items():
                state.choose(section, values)
            if model.blend is None:
                state.choose("model", {"blend": BLEND})
        plan = with_settings(plan, state.chosen)
        train_network(plan, split, state, valid=None, folder=folder, progress=progress)
        model.restore(split.train)
        return
    for entry in entries[len(state.finished) :]:
        if state.leader and is_late(plan, state):
            break
        entered = with_settings(plan, entry.settings)
        set_up(model, split, device, linear=False)
        train_network(entered, split, state, valid=sample, folder=folder, progress=progress)
        finish(entry, entered, sample, state, progress)
    take_leader(plan, split, state)
    assert valid is not None
    state.best_metrics = Evaluator(valid, device).metrics(model, plan.config.metric)
    state.best_value = state.best_metrics[plan.config.metric]


def fit_linear(
    model: Hybrid,
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    progress: bool,
) -> None:
    """Fit the linear part, on the first rank; what is left open is chosen on validation."""
    started, linear = time.perf_counter(), model.linear
    sample, train = None if linear.l2 is not None else valid, split.train
    solved_on_first(
        linear, train, lambda: choose_and_fit(linear, train, sample, plan.config, state, progress)
    )
    state.trials = ranks.from_first(lambda: state.trials)
    if model.linear_l2 is None:
        found = {f"linear_{name}": getattr(linear, name) for name in OF_LINEAR}
        model.take(found)
        state.choose("model", found)
    seconds = time.perf_counter() - started
    state.seconds, state.elapsed = state.seconds + seconds, state.elapsed + seconds


def train_network(
    plan: Plan,
    split: Split,
    state: TrainState,
    *,
    valid: HeldOut | None,
    folder: RunFolder | None,
    progress: bool,
) -> None:
    """Gradient descent on the network; the hybrid is validated with its prior alone."""
    model = plan.model
    assert isinstance(model, Hybrid)
    _, of_loss = unbind(plan.loss)
    model.temperature = of_loss.get("tau", 0.0) if plan.config.similarity == "cosine" else 0.0
    part, given = replace(plan, model=model.gnn), model.blend
    model.blend = None  # also if it is given: the epoch is selected before it is chosen
    descend(part, split, state, valid=valid, folder=folder, progress=progress, scorer=model)
    model.blend = given


def finish(entry: Candidate, plan: Plan, valid: HeldOut, state: TrainState, progress: bool) -> None:
    """Blend a trained candidate, note its result, and keep it if it is the best so far."""
    model, config = plan.model, plan.config
    assert isinstance(model, Hybrid)
    settings = entry.settings
    if model.blend is None:
        search = BlendSearch(model, valid, config.metric, config.seed)
        blend, values = search.run(progress=progress)
        settings = {**settings, "model": {**settings.get("model", {}), "blend": blend}}
    else:
        metric = parse_metric(config.metric)
        found, _ = Evaluator(valid, model.gnn.device).values(model, [metric])
        values = found[metric.key]
    facts = {
        "name": entry.name,
        config.metric: float(values.mean()),
        "best_epoch": state.best_epoch,
        "epochs": state.epoch,
        "seconds": round(state.seconds - state.begun, 3),
    }
    if facts[config.metric] > state.leader_facts.get(config.metric, -1.0):
        state.leader_facts = {**facts, "settings": settings, "lr_drops": state.lr_drops}
        state.leader = {k: v.detach().clone() for k, v in model.gnn.named_parameters()}
    state.finished.append(facts)
    state.begin_candidate()


def take_leader(plan: Plan, split: Split, state: TrainState) -> None:
    """Put the best candidate's settings and weights into the model."""
    facts, model = state.leader_facts, plan.model
    assert isinstance(model, Hybrid)
    state.epoch, state.best_epoch = facts["epochs"], facts["best_epoch"]
    state.lr_drops = facts.get("lr_drops", [])
    for section, settings in facts["settings"].items():
        state.choose(section, settings)
    with_settings(plan, facts["settings"])
    set_up(model, split, model.gnn.device, linear=False)
    with torch.no_grad():
        for name, parameter in model.gnn.named_parameters():
            parameter.copy_(state.leader[name])
    model.restore(split.train)
    model.eval()


def set_up(model: Hybrid, split: Split, device: torch.device, *, linear: bool = True) -> None:
    """Allocate the network, and the linear part if it is to be fitted anew."""
    inductive, generator = split.protocol == "inductive", torch.Generator().manual_seed(0)
    if linear:
        model.setup(split.train, inductive=inductive, generator=generator)
    else:
        model.make_network()
        model.gnn.setup(split.train, inductive=inductive, generator=generator)
    model.to(device)


def candidates(plan: Plan, split: Split) -> list[Candidate]:
    """The networks that are trained; a component that was asked for is not replaced."""
    asked = {key.partition(".")[0] for key in plan.given}
    is_own = "train.similarity" in plan.given or asked & {"loss", "negatives"}
    name = "as given" if is_own else "cosines, negatives by popularity"
    cosines = Candidate(name, by_data(plan, split))
    fixed = {"train.similarity", "train.batch_by", "train.batch"} & plan.given
    density = split.train.nnz / (split.n_users * split.n_items)
    if density < DENSE or fixed or asked & {"loss", "negatives"} or not can_draw(plan):
        return [cosines]
    train = INNER_PRODUCTS.settings["train"].items()
    open_settings = {k: v for k, v in train if f"train.{k}" not in plan.given}
    every, patience = open_settings.get("eval_every"), open_settings.get("patience")
    if every and not patience and plan.config.patience:  # the one that is open follows the other
        open_settings["eval_every"] = min(every, plan.config.patience)
    if patience and not every:
        open_settings["patience"] = max(patience, plan.config.eval_every)
    own = {"train": open_settings, "model": cosines.settings["model"]}
    return [cosines, replace(INNER_PRODUCTS, settings={**INNER_PRODUCTS.settings, **own})]


def can_draw(plan: Plan) -> bool:
    """Whether every user has items to draw negatives from, in the refit, too."""
    train = (plan.split.refit() if plan.refits else plan.split).train
    return int(np.diff(train.indptr).max(initial=0)) < train.shape[1]


def by_data(plan: Plan, split: Split) -> dict[str, dict[str, Any]]:
    """Settings that follow from the size of the data and the device, unless they were given."""
    model = plan.model
    assert isinstance(model, Hybrid)
    device = "cuda" if pick_device(plan.config.device).type == "cuda" else "cpu"
    out: dict[str, dict[str, Any]] = {"model": {}}
    if "model.dim" not in plan.given and plan.model.settings["dim"] is None:
        out["model"]["dim"] = WIDTH[device]
    is_large = split.n_items > COVERED[device]
    if model.linear_form == "auto" and model.linear_items is None and is_large:
        out["model"]["linear_form"] = "sparse"
    elif model.linear_items is None and model.linear_form != "sparse":
        out["model"]["linear_items"] = min(COVERED[device], split.n_items)
    batch = plan.config.batch
    if "train.batch" not in plan.given:
        batch = 2 ** max(split.train.nnz // STEPS, 1).bit_length() // 2
        batch = min(max(batch, SMALLEST), LARGEST)
        out["train"] = {"batch": batch}
    if not any(key.startswith("negatives.") for key in plan.given):
        group = SHARED[device]
        out["negatives"] = {"group": group}
        _, of_loss = unbind(plan.loss)
        if "scale" in of_loss and not {"loss.name", "loss.scale"} & plan.given:
            out["loss"] = {"scale": min(COUNTED, batch) / min(group, batch)}
    return out


def with_settings(plan: Plan, settings: dict[str, dict[str, Any]]) -> Plan:
    """The plan with other settings, by section; the model itself takes its own."""
    plan.model.take(settings.get("model", {}))
    function, bound = unbind(plan.loss)
    loss = bind(function, {**bound, **settings.get("loss", {})})
    of_sampler = dict(settings.get("negatives", {}))
    name = of_sampler.pop("name", None)
    sampler = NEGATIVES[name](**of_sampler) if name else replace(plan.sampler, **of_sampler)  # type: ignore[type-var]
    config = replace(plan.config, **settings.get("train", {}))
    return replace(plan, loss=loss, sampler=sampler, config=config)


def is_late(plan: Plan, state: TrainState) -> bool:
    """Whether another candidate would leave too little of the budget for the refit."""
    budget = plan.config.budget
    return budget is not None and ranks.from_first(lambda: state.elapsed > budget / 3)
