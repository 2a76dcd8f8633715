"""Training of a hybrid: the linear part, a race of networks, the blend, the refit.

Settings that were not given follow from the size of the data and the device, or are chosen on
validation. What was tried and chosen is part of the run: `chosen` and `trials` in its metrics.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from itemfold import ranks
from itemfold.data.split import HeldOut, Split
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.evaluation.metrics import parse_metric
from itemfold.models.base import Kind, Model
from itemfold.models.hybrid import Hybrid, make_part
from itemfold.models.network_with_prior import NetworkWithPrior
from itemfold.models.popularity import Popularity
from itemfold.settings.resolve import Request, Settings, resolve
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import flat
from itemfold.training.across_ranks import sharded
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.loop import descend
from itemfold.training.state import DescentState, Weights, put_weights
from itemfold.training.strategies import closed_form, descent
from itemfold.training.strategies.blend import BlendSearch
from itemfold.training.strategies.candidates import Candidate, candidates

FROM_DATA, ON_VALIDATION = "chosen from the data", "chosen on validation"
BY_SIZE = (  # what follows from the size of the data and the device
    *("model.gnn.dim", "model.linear.items", "model.linear.form", "train.batch"),
    *("negatives.group", "loss.scale"),
)


@dataclass
class HybridState:
    """How far the race has come, and the best network so far."""

    descent: DescentState = field(default_factory=DescentState)
    chosen: Config = field(default_factory=dict)
    trials: closed_form.Trials = field(default_factory=list)
    finished: list[dict[str, Any]] = field(default_factory=list)  # candidates
    others: list[dict[str, Any]] = field(default_factory=list)  # what further parts chose
    best_facts: dict[str, Any] = field(default_factory=dict)  # of the best candidate
    best_weights: Weights = field(default_factory=dict)

    def choose(self, chosen: Config) -> None:
        """Note settings that were left open; those of a part are merged into its table."""
        for section, values in chosen.items():
            if not values:
                continue
            own = self.chosen.setdefault(section, {})
            for name, value in values.items():
                is_part = isinstance(value, dict)
                own[name] = {**own.get(name, {}), **value} if is_part else value

    def facts(self) -> dict[str, Any]:
        """Plain values by the names of ``state.pt``."""
        names = ("chosen", "trials", "finished", "others")
        own = {name: getattr(self, name) for name in names}
        return {**self.descent.facts(), **own, "leader_facts": self.best_facts}

    def weights(self) -> dict[str, Weights]:
        """The best weights of the descent under way, and those of the best candidate."""
        return {**self.descent.weights(), "leader": self.best_weights}

    @classmethod
    def loaded(cls, content: dict[str, Any]) -> HybridState:
        """The state of a file's content; settings of release 0.2 get their new names."""
        best = dict(content["leader_facts"])
        if "settings" in best:
            best["settings"] = _current(best["settings"])
        return cls(
            descent=DescentState.loaded(content),
            chosen=_current(content["chosen"]),
            trials=content["trials"],
            finished=content["finished"],
            others=content.get("others", []),
            best_facts=best,
            best_weights=content["leader"],
        )


def fit(settings: Settings, split: Split, state: HybridState, context: Context) -> FittedModel:
    """Fit the linear part, race the networks, blend the parts, and refit on all data."""
    refits, settings = settings.refits(split), _choose(settings, state.chosen)
    if state.descent.phase == "select":
        model, settings = _select(settings, split, state, context)
        state.descent.begin_refit()
        state.best_weights = {}
    if refits:
        split = split.refit()
        linear = _fit_linear(settings, split, None, state, context)
        others = _fit_others(settings, split, state, context)
        model = assemble(settings, linear, others)
        _train_network(model, settings, split, None, state, context)
        _finish(model, split)
    model.unshard()
    return FittedModel(
        model=model,
        settings=settings,
        train=split.train,
        refit=refits,
        seconds=state.descent.seconds,
        best_epoch=state.descent.best.epoch,
        epochs=state.descent.selected_epochs,
        valid=state.descent.best.metrics,
        history=state.descent.history,
        chosen=state.chosen,
        trials=state.trials,
        candidates=state.finished,
        parts=parts_alone(model, split),
    )


def _select(
    settings: Settings, split: Split, state: HybridState, context: Context
) -> tuple[Hybrid, Settings]:
    """The best hybrid on validation, and the settings that were chosen."""
    device = pick_device(settings.train.device)
    entries = candidates(settings, split)
    sized = settings.choose({"model": entries[0].settings["model"]}, FROM_DATA)
    valid = None if split.valid is None else sample_users(split.valid, device)
    linear = _fit_linear(sized, split, valid, state, context)
    settings = _choose(settings, state.chosen)
    others = _fit_others(settings, split, state, context)
    if valid is None:  # nothing was held out to choose on
        state.choose(entries[0].settings)
        settings = _choose(settings, state.chosen)
        model = assemble(settings, linear, others)
        if model.blend is None:
            state.choose({"model": {"blend": model.typical_blend()}})
            settings = _choose(settings, state.chosen)
            model = assemble(settings, linear, others)
        _train_network(model, settings, split, None, state, context)
        return _finish(model, split), settings
    for entry in entries[len(state.finished) :]:
        if state.finished and _is_late(settings, state.descent):
            break
        entered = settings.choose(entry.settings, FROM_DATA)
        model = assemble(entered, linear, others)
        _train_network(model, entered, split, valid, state, context)
        model.count(split.train)
        _enter(entry, model, entered, valid, state, context)
    best = state.best_facts
    state.choose(best["settings"])
    settings = _choose(settings, state.chosen)
    model = assemble(settings, linear, others)
    if model.gnn is not None:
        model.gnn.setup(
            split.train,
            inductive=split.protocol == "inductive",
            generator=torch.Generator().manual_seed(0),
        )
        model.to(device)
        put_weights(model.gnn, state.best_weights)
    _finish(model, split)
    progress = state.descent
    progress.epoch, progress.lr_drops = best["epochs"], best.get("lr_drops", [])
    progress.best.epoch = best["best_epoch"]
    assert split.valid is not None
    progress.best.metrics = Evaluator(split.valid, device).metrics(model, settings.train.metric)
    progress.best.value = progress.best.metrics[settings.train.metric]
    return model, settings


def assemble(settings: Settings, linear: Model | None, others: list[Model]) -> Hybrid:
    """A hybrid with a new network, and with parts that are fitted already."""
    new = settings.make_model()
    assert isinstance(new, Hybrid)
    model = type(new)(gnn=new.gnn, linear=linear, others=others, norm=new.norm, blend=new.blend)
    sharded(model)
    return model


def _choose(settings: Settings, chosen: Config) -> Settings:
    """The settings with what was chosen, each with its source."""
    out, paths = settings.choose(chosen, ON_VALIDATION), flat(chosen)
    by_size = {path: FROM_DATA for path in BY_SIZE if path in paths}
    return replace(out, chosen={**out.chosen, **by_size})


# --- the linear part, and further parts ----------------------------------------------------------


def _fit_linear(
    settings: Settings, split: Split, valid: HeldOut | None, state: HybridState, context: Context
) -> Model | None:
    """The fitted linear part; what it leaves open is chosen on validation."""
    started = time.perf_counter()
    linear, _ = make_part("linear", settings.model.values["linear"], "rlae")
    if linear is None:
        return None
    if linear.kind is not Kind.CLOSED_FORM:
        raise ItemfoldError(
            f"'linear' must be a closed form, such as rlae or ease, got {type(linear).__name__}; "
            "give other models as 'others'"
        )
    config = settings.train
    found, trials = closed_form.choose_settings(
        copy.deepcopy(linear), split, valid, config, context
    )
    if found:
        state.choose({"model": {"linear": found}})
        state.trials += trials
    fresh = type(linear)(**{**linear.settings, **found})
    fitted = closed_form.solve(fresh, split, config, context)
    seconds = time.perf_counter() - started
    state.descent.seconds += seconds
    state.descent.elapsed += seconds
    return fitted


def _fit_others(
    settings: Settings, split: Split, state: HybridState, context: Context
) -> list[Model]:
    """Further parts, each trained with the defaults of its own kind; nothing is chosen twice."""
    out = []
    for number, value in enumerate(settings.model.values["others"]):
        part, _ = make_part("others", value, "")
        if part is None or part.kind is Kind.HYBRID:
            raise ItemfoldError("'others' must be models that are no hybrids")
        shared = {name: getattr(settings.train, name) for name in ("seed", "device", "metric")}
        own = resolve(Request({"model": copy.deepcopy(part), "train": {**shared, "refit": False}}))
        known = state.others[number] if number < len(state.others) else None
        if known is not None:
            own = own.choose(known["chosen"], ON_VALIDATION)
        if split.valid is None and known is not None and known["epochs"]:
            own = own.choose({"train": {"epochs": known["epochs"]}}, ON_VALIDATION)
        is_closed = part.kind is Kind.CLOSED_FORM
        started = time.perf_counter()
        fitted = (
            closed_form.fit(
                own, split, closed_form.ClosedFormState(), Context(None, context.progress)
            )
            if is_closed
            else descent.fit(own, split, DescentState(), Context(None, context.progress))
        )
        if known is None:
            state.others.append({"chosen": fitted.chosen, "epochs": fitted.best_epoch})
        seconds = time.perf_counter() - started
        state.descent.seconds += seconds
        state.descent.elapsed += seconds
        out.append(fitted.model)
    return out


# --- the network ---------------------------------------------------------------------------------


def _train_network(
    model: Hybrid,
    settings: Settings,
    split: Split,
    valid: HeldOut | None,
    state: HybridState,
    context: Context,
) -> None:
    """Gradient descent on the network, if there is one; it is validated with its prior."""
    if model.gnn is None:
        return
    temperature = temperature_of(settings)
    descend(
        model.gnn,
        settings,
        split,
        state.descent,
        context,
        valid=valid,
        scorer=lambda network: NetworkWithPrior(network, split.train, temperature),  # type: ignore[arg-type]
        saved=state,
    )


def temperature_of(settings: Settings) -> float:
    """The temperature of a loss over cosines; 0 for inner products."""
    on_cosines = settings.train.similarity == "cosine"
    return float(settings.loss.values.get("tau", 0.0)) if on_cosines else 0.0


def _enter(
    entry: Candidate,
    model: Hybrid,
    settings: Settings,
    valid: HeldOut,
    state: HybridState,
    context: Context,
) -> None:
    """Blend a trained candidate, note its result, and keep it if it is the best so far."""
    config, chosen, progress = settings.train, entry.settings, state.descent
    if model.blend is None:
        has_prior = model.gnn is not None and temperature_of(settings) > 0
        search = BlendSearch(model, valid, config.metric, config.seed, has_prior=has_prior)
        blend, values = search.run(progress=context.progress)
        chosen = {**chosen, "model": {**chosen.get("model", {}), "blend": blend}}
    else:
        metric = parse_metric(config.metric)
        found, _ = Evaluator(valid, model.device).values(model, [metric])
        values = found[metric.key]
    facts = {
        "name": entry.name,
        config.metric: float(values.mean()),
        "best_epoch": progress.best.epoch,
        "epochs": progress.epoch,
        "seconds": round(progress.seconds - progress.begun, 3),
    }
    if facts[config.metric] > state.best_facts.get(config.metric, -1.0):
        state.best_facts = {**facts, "settings": chosen, "lr_drops": progress.lr_drops}
        weights = {} if model.gnn is None else dict(model.gnn.named_parameters())
        state.best_weights = {k: v.detach().clone() for k, v in weights.items()}
    state.finished.append(facts)
    progress.next_candidate()


def _finish(model: Hybrid, split: Split) -> Hybrid:
    """The assembled hybrid with everything that scoring needs."""
    model.count(split.train)
    model.restore(split.train)
    model.eval()
    return model


def _is_late(settings: Settings, state: DescentState) -> bool:
    """Whether another candidate would leave too little of the budget for the refit."""
    budget = settings.train.budget
    return budget is not None and ranks.from_first(lambda: state.elapsed > budget / 3)


def parts_alone(model: Hybrid, split: Split) -> dict[str, Model]:
    """The parts as models of their own, and popularity, to be compared with the sum."""
    out: dict[str, Model] = {}
    if model.gnn is not None:
        network = copy.copy(model)  # shares the weights
        rows = model.blend or model.typical_blend()
        network.blend = tuple((*row[:2], *(0.0 for _ in row[2:])) for row in rows)
        out["network and prior"] = network
    if model.linear is not None:
        out["linear"] = model.linear
    for part in model.others:
        assert isinstance(part, Model)
        out[type(part).__name__] = part
    popularity = Popularity()
    popularity.n_users, popularity.n_items = split.train.shape
    popularity.fit(split.train)
    popularity.to(model.device)
    return {**out, "popularity": popularity}


def _current(chosen: Config) -> Config:
    """Chosen settings under their names of today."""
    model = chosen.get("model")
    if model is None:
        return chosen
    return {**chosen, "model": Hybrid.current_settings(model, warn=False)}
