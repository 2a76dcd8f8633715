"""Training of a hybrid in stages: popularity, the linear part, the network, the refit.

Each stage ends with a model that can be used. A stage keeps what it adds only if validation shows a
gain beyond noise. Settings that were not given follow from the size of the data and the device, or
are chosen on validation. What was tried and chosen is part of the run: `chosen`, `trials`,
`candidates` and `alone` in its metrics.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from itemfold.data.split import HeldOut, Split
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.graph.graph import Graph
from itemfold.models.base import Kind, Model
from itemfold.models.growth import grown_weights
from itemfold.models.hybrid import Hybrid
from itemfold.models.hybrid_settings import make_part
from itemfold.models.popularity import Popularity
from itemfold.settings.resolve import Request, Settings, resolve
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import flat
from itemfold.training.across_ranks import sharded
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.loop import descend
from itemfold.training.state import Best, DescentState, Weights, put_weights
from itemfold.training.strategies import closed_form, descent
from itemfold.training.strategies.blend import Blend, BlendSearch, standard_error
from itemfold.training.strategies.candidates import Candidate, candidates
from itemfold.training.strategies.recency import (
    NEVER,
    OF_INTERACTIONS,
    OF_POPULARITY,
    fading,
    half_lives,
    popularities,
)
from itemfold.training.strategies.sum_validation import SumValidation

FROM_DATA, ON_VALIDATION = "chosen from the data", "chosen on validation"
BY_SIZE = (  # what follows from the size of the data and the device
    *("model.gnn.dim", "model.gnn.start", "model.linear.items", "model.linear.form"),
    *("train.batch", "negatives.group", "loss.scale"),
)
WARM_EPOCHS = 3  # of a refit that starts from the selected weights


@dataclass
class HybridState:
    """How far training has come, and the best network so far."""

    descent: DescentState = field(default_factory=DescentState)
    chosen: Config = field(default_factory=dict)
    trials: closed_form.Trials = field(default_factory=list)
    finished: list[dict[str, Any]] = field(default_factory=list)  # candidates
    others: list[dict[str, Any]] = field(default_factory=list)  # what further parts chose
    alone: dict[str, float] = field(default_factory=dict)  # each part on validation
    best_facts: dict[str, Any] = field(default_factory=dict)  # of the best candidate
    best_weights: Weights = field(default_factory=dict)

    def choose(self, chosen: Config) -> None:
        """Note settings that were left open; those of a part are merged into its table."""
        for section, values in chosen.items():
            if not values:
                continue
            own = self.chosen.setdefault(section, {})
            for name, value in values.items():
                before = own.get(name)
                is_part = isinstance(value, dict) and isinstance(before, dict | None)
                own[name] = {**(before or {}), **value} if is_part else value

    def facts(self) -> dict[str, Any]:
        """Plain values by the names of ``state.pt``."""
        names = ("chosen", "trials", "finished", "others", "alone")
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
            alone=content.get("alone", {}),
            best_facts=best,
            best_weights=content["leader"],
        )


def fit(settings: Settings, split: Split, state: HybridState, context: Context) -> FittedModel:
    """Popularity, then the linear part, then the network while it pays; then the refit."""
    stages = Stages(settings, split, state, context)
    if split.valid is None:
        stages.without_validation()
    elif state.descent.phase == "select":
        stages.popularity()
        stages.linear()
        stages.network()
        stages.settle()
    return stages.result()


class Stages:
    """The stages of one training; each leaves `blend` and the parts that it needs."""

    def __init__(
        self, settings: Settings, split: Split, state: HybridState, context: Context
    ) -> None:
        self.refits = settings.refits(split)
        self.asked, self.state, self.context = settings, state, context
        self.split = split  # without recency
        self.device = pick_device(settings.train.device)
        self.entries = candidates(settings, split)
        self.metric = settings.train.metric
        self.fitted: dict[str, Model] = {}  # parts fitted to the training part, by name
        self.late: dict[str, Model] = {}  # parts fitted to training and validation data

    @property
    def settings(self) -> Settings:
        """What was asked for, and what was chosen so far, each with its source."""
        chosen = self.state.chosen
        out, paths = self.asked.choose(chosen, ON_VALIDATION), flat(chosen)
        by_size = {path: FROM_DATA for path in BY_SIZE if path in paths}
        return replace(out, chosen={**out.chosen, **by_size})

    def value(self, name: str) -> Any:
        """A setting of the hybrid."""
        return self.settings.model.values[name]

    # --- stages ----------------------------------------------------------------------------------

    def popularity(self) -> None:
        """Popularity, and how fast it fades."""
        self.state.choose({"model": self.entries[0].settings["model"]})
        self.search = self._search(self.split)
        self.blend, self.values = self.search.run()
        for half_life in self.search.popularity:
            alone = self.search.values([self.search.of_popularity(half_life)])[0]
            name = "popularity" if half_life == NEVER else f"popularity, half-life {half_life}"
            self.state.alone[name] = float(alone.mean())
        self._stage("popularity")

    def linear(self) -> None:
        """The linear part and further parts: settings and recency, then the weights of the sum."""
        self._choose_half_life()
        self.search = self._search(self.faded)
        valid = self.search.held
        linear = self._linear(self.faded, valid)
        if linear is not None:
            self.fitted["linear"] = linear
        for number, part in enumerate(self._others(self.faded)):
            self.fitted[f"other {number}"] = part
        for name, part in self.fitted.items():
            self.search.add(name, part)
            alone = self.search.values([self.search.alone(name)])[0]
            self.state.alone[name] = float(alone.mean())
        self.blend, self.values = self.search.run()
        self._stage("linear")

    def network(self) -> None:
        """Networks, each trained as long as the sum improves; the best one is kept."""
        state, before = self.state, self.search.values([self.search.padded(self.blend)])[0]
        base, entries = self.blend, self.entries
        if self.value("gnn") in (None, "none"):
            return
        for entry in entries[len(state.finished) :]:
            if self.context.deadline.left() <= 0 or state.descent.stopped:
                break
            settings = self.settings.choose(entry.settings, FROM_DATA)
            model = self._network_of(settings)
            assert model.gnn is not None
            descend(
                model.gnn,
                settings,
                self.faded,
                state.descent,
                self.context,
                valid=self.search.held,
                validate=SumValidation(self.search, base, lambda _, scored=model: scored),
                saved=state,
            )
            self._enter(entry, model, settings, base)
        best = state.best_facts
        if not best:
            return
        network = self._network_of(self.settings.choose(best["settings"], FROM_DATA))
        self._load(network, state.best_weights, self.faded)
        self.search.add("network", network)
        alone = self.search.values([self.search.alone("network")])[0]
        state.alone["network"] = float(alone.mean())
        blend = Blend(best["half_life"], best["prior"], tuple(best["weights"]))
        gain = self.search.values([blend])[0] - before
        if gain.mean() > standard_error(gain) or self._is_kept("gnn"):
            self.blend, self.fitted["network"] = blend, network
            state.choose(best["settings"])

    def settle(self) -> None:
        """Note the chosen sum in the state; the refit follows."""
        state, best = self.state, self.state.best_facts
        rows = self.search.by_length(self.search.padded(self.blend))
        chosen = self._chosen(self.blend, rows)
        if self.value("blend") is not None:
            chosen["model"].pop("blend", None)
        state.choose(chosen)
        progress, has_network = state.descent, "network" in self.fitted
        progress.epoch = best["epochs"] if has_network else 0
        progress.lr_drops = best.get("lr_drops", []) if has_network else []
        progress.best = Best(best["best_epoch"] if has_network else 0)
        model = self._assembled(self.fitted, self.faded)
        assert self.split.valid is not None
        valid = fading(self.split, self.value("half_life")).valid
        assert valid is not None
        progress.best.metrics = Evaluator(valid, self.device).metrics(model, self.metric)
        progress.best.value = progress.best.metrics[self.metric]
        self.model = model
        progress.begin_refit()

    def result(self) -> FittedModel:
        """The chosen sum, fitted to training and validation data if there is a refit."""
        state, split = self.state, fading(self.split, self.value("half_life"))
        if self.refits:
            split = fading(self.split.refit(), self.value("half_life"))
            self._refit(split)
            self.model = self._assembled(self.late, split)
        self.model.unshard()
        progress = state.descent
        return FittedModel(
            model=self.model,
            settings=self.settings,
            train=split.train,
            refit=self.refits,
            seconds=progress.seconds,
            best_epoch=progress.best.epoch,
            epochs=progress.selected_epochs,
            valid=progress.best.metrics,
            history=progress.history,
            chosen=state.chosen,
            trials=state.trials,
            candidates=state.finished,
            alone=state.alone,
            parts=parts_alone(self.model, split),
            complete=not progress.stopped,
        )

    def without_validation(self) -> None:
        """Nothing was held out to choose on: typical settings and a typical blend."""
        state = self.state
        state.choose(self.entries[0].settings)
        for name in ("half_life", "popularity_half_life"):
            if self.value(name) is None:
                state.choose({"model": {name: NEVER}})
        split = self.faded
        linear = self._linear(split, None)
        parts = {} if linear is None else {"linear": linear}
        parts |= {f"other {n}": part for n, part in enumerate(self._others(split))}
        if self.value("blend") is None:
            state.choose({"model": {"blend": self.settings.make_model().typical_blend()}})
        if self.value("gnn") not in (None, "none"):
            model = self._network_of(self.settings)
            self._descend(model, split, state.descent)
            parts["network"] = model
        self.model = self._assembled(parts, split)

    # --- recency ---------------------------------------------------------------------------------

    @property
    def faded(self) -> Split:
        """The split with the chosen half-life of interactions; computed once."""
        key = self.value("half_life") or NEVER
        if getattr(self, "_faded", (None,))[0] != key:
            self._faded = key, fading(self.split, key)
        return self._faded[1]

    def _search(self, split: Split) -> BlendSearch:
        """A search on a sample of the validation users of a split."""
        assert split.valid is not None
        tried = half_lives(self.split, self.value("popularity_half_life"), OF_POPULARITY)
        popularity = popularities(self.split, tried, self.device)
        valid = sample_users(split.valid, self.device)
        return BlendSearch(valid, popularity, self.metric, self.device, self.asked.train.seed)

    def _choose_half_life(self) -> None:
        """How fast interactions fade: the longest half-life unless another is clearly better."""
        tried = half_lives(self.split, self.value("half_life"), OF_INTERACTIONS)
        chosen, found = tried[0], []
        for half_life in tried if len(tried) > 1 else ():
            part, _ = make_part("linear", self.value("linear"), "rlae")
            if part is None or self.context.deadline.left() <= 0:
                break
            split = fading(self.split, half_life)
            closed_form.set_up(part, split, self.asked.train)
            if next(iter(part.trials(split.train)), None) is None:
                part.fit(split.train)
            search = self._search(split)
            search.add("linear", part)
            found.append(search.run()[1])
        if found:
            best = max(range(len(found)), key=lambda place: float(found[place].mean()))
            gain = found[best] - found[0]
            if gain.mean() > 2 * standard_error(gain):
                chosen = tried[best]
        self.state.choose({"model": {"half_life": chosen}})

    # --- parts -----------------------------------------------------------------------------------

    def _linear(self, split: Split, valid: HeldOut | None) -> Model | None:
        """The fitted linear part; what it leaves open is chosen on validation."""
        started, state = time.perf_counter(), self.state
        linear, _ = make_part("linear", self.value("linear"), "rlae")
        if linear is None:
            return None
        if linear.kind is not Kind.CLOSED_FORM:
            raise ItemfoldError(
                "'linear' must be a closed form, such as rlae or ease, got "
                f"{type(linear).__name__}; give other models as 'others'"
            )
        config = self.asked.train
        found, trials = closed_form.choose_settings(
            copy.deepcopy(linear), split, valid, config, self.context
        )
        if found:
            state.choose({"model": {"linear": found}})
            state.trials += trials
        fresh = type(linear)(**{**linear.settings, **found})
        fitted = closed_form.solve(fresh, split, config, self.context)
        state.descent.seconds += time.perf_counter() - started
        return fitted

    def _others(self, split: Split) -> list[Model]:
        """Further parts, each trained with the defaults of its kind; nothing is chosen twice."""
        out, state = list[Model](), self.state
        for number, value in enumerate(self.value("others")):
            part, _ = make_part("others", value, "")
            if part is None or part.kind is Kind.HYBRID:
                raise ItemfoldError("'others' must be models that are no hybrids")
            config = self.asked.train
            shared = {name: getattr(config, name) for name in ("seed", "device", "metric")}
            own = resolve(
                Request({"model": copy.deepcopy(part), "train": {**shared, "refit": False}})
            )
            known = state.others[number] if number < len(state.others) else None
            if known is not None:
                own = own.choose(known["chosen"], ON_VALIDATION)
            if split.valid is None and known is not None and known["epochs"]:
                own = own.choose({"train": {"epochs": known["epochs"]}}, ON_VALIDATION)
            started, context = time.perf_counter(), Context(None, self.context.progress)
            if part.kind is Kind.CLOSED_FORM:
                fitted = closed_form.fit(own, split, closed_form.ClosedFormState(), context)
            else:
                fitted = descent.fit(own, split, DescentState(), context)
            if known is None:
                state.others.append({"chosen": fitted.chosen, "epochs": fitted.best_epoch})
            state.descent.seconds += time.perf_counter() - started
            out.append(fitted.model)
        return out

    def _network_of(self, settings: Settings) -> Hybrid:
        """A hybrid of a new network alone, as it is scored in the sum."""
        new = settings.make_model()
        assert isinstance(new, Hybrid)
        model = type(new)(gnn=new.gnn, linear=None, norm=new.norm, blend=((0.0, 0.0, 1.0),))
        model.count(self.split.train)
        model.to(self.device)
        sharded(model)
        return model

    def _enter(self, entry: Candidate, model: Hybrid, settings: Settings, base: Blend) -> None:
        """Find the weight of a trained network, and keep it if it is the best so far."""
        state, progress, search = self.state, self.state.descent, self.search
        search.add("network", model)
        blend, values = max(
            (search.run(base), search.run()), key=lambda found: float(found[1].mean())
        )
        facts = {
            "name": entry.name,
            self.metric: float(values.mean()),
            "best_epoch": progress.best.epoch,
            "epochs": progress.epoch,
            "seconds": round(progress.seconds - progress.begun, 3),
        }
        if facts[self.metric] > state.best_facts.get(self.metric, -1.0):
            state.best_facts = {
                **facts,
                "settings": entry.settings,
                "lr_drops": progress.lr_drops,
                "half_life": blend.half_life,
                "prior": blend.prior,
                "weights": list(blend.weights),
            }
            assert model.gnn is not None
            weights = dict(model.gnn.named_parameters())
            state.best_weights = {k: v.detach().clone() for k, v in weights.items()}
        state.finished.append(facts)
        progress.next_candidate()

    def _load(self, model: Hybrid, weights: Weights, split: Split) -> None:
        """Put weights into a network and pass messages once."""
        gnn = model.gnn
        assert gnn is not None
        gnn.setup(
            split.train,
            inductive=split.protocol == "inductive",
            generator=torch.Generator().manual_seed(0),
        )
        model.to(self.device)
        put_weights(gnn, weights)
        gnn.eval()
        model.cache_embeddings(Graph.from_csr(split.train, self.device))

    def _descend(self, model: Hybrid, split: Split, state: DescentState, **how: Any) -> None:
        assert model.gnn is not None
        descend(
            model.gnn, self.settings, split, state, self.context, valid=None, saved=self.state, **how
        )

    # --- the sum ---------------------------------------------------------------------------------

    def _is_kept(self, part: str) -> bool:
        """Whether a part was asked for, and so stays even if its weight is 0."""
        return self.asked.is_given(f"model.{part}")

    def _chosen(self, blend: Blend, rows: Any) -> Config:
        """The settings of a sum: parts that do not count and were not asked for are left out."""
        names = self.search.names
        weight_of = dict(zip(names, blend.weights, strict=False))
        asked = [f"other {n}" for n in range(len(self.value("others")))]
        kept = {
            "network": bool(weight_of.get("network")) or ("network" in self.fitted),
            "linear": bool(weight_of.get("linear")) or self._is_kept("linear"),
            **dict.fromkeys(asked, True),
        }
        kept["linear"] = kept["linear"] and "linear" in self.fitted
        order = [name for name in ("network", "linear", *asked) if kept[name]]
        places = {name: place for place, name in enumerate(names)}
        scale = next((row[2 + places[n]] for n in order for row in rows if row[2 + places[n]]), 1.0)
        table = tuple(
            (row[0], row[1] / scale, *(row[2 + places[name]] / scale for name in order))
            for row in rows
        )
        model: dict[str, Any] = {"blend": table, "popularity_half_life": blend.half_life}
        if not kept["network"]:
            model["gnn"] = "none"
        if not kept["linear"]:
            model["linear"] = "none"
        return {"model": model}

    def _assembled(self, parts: dict[str, Model], split: Split) -> Hybrid:
        """The hybrid of the chosen settings from parts that are fitted already."""
        new = self.settings.make_model()
        assert isinstance(new, Hybrid)
        network = parts.get("network") if new.gnn is not None else None
        assert isinstance(network, Hybrid | None)
        model = type(new)(
            gnn=None if network is None else network.gnn,
            linear=parts.get("linear") if new.linear is not None else None,
            others=[parts[f"other {number}"] for number in range(len(new.others))],
            norm=new.norm,
            blend=new.blend,
            popularity_half_life=new.popularity_half_life,
            half_life=new.half_life,
        )
        model.to(self.device)
        base = self.split.refit() if self.refits and parts is self.late else self.split
        model.count(fading(base, new.popularity_half_life).train)
        model.restore(split.train)
        return model.eval()

    def _refit(self, split: Split) -> None:
        """Fit the chosen parts to training and validation data; the network starts warm."""
        state = self.state
        if self.value("linear") not in (None, "none") and "linear" not in self.late:
            linear = self._linear(split, None)
            assert linear is not None
            self.late["linear"] = linear
        for number, part in enumerate(self._others(split)):
            self.late[f"other {number}"] = part
        if self.value("gnn") in (None, "none"):
            return
        model = self._network_of(self.settings)
        warm = self._warm_weights(split) if not state.descent.tensors else None
        if state.descent.stopped:  # the selected weights on the larger graph
            assert warm is not None
            self._load(model, warm, split)
        else:
            selected = state.descent.best.epoch
            state.descent.best.epoch = min(WARM_EPOCHS, max(selected, 1))
            self._descend(model, split, state.descent, start=warm)
            state.descent.best.epoch = selected
        self.late["network"] = model

    def _warm_weights(self, split: Split) -> Weights:
        """The selected weights, with rows for users who came later."""
        network = self.fitted.get("network")
        if not isinstance(network, Hybrid):  # resumed before the refit began
            network = self._network_of(self.settings)
            self._load(network, self.state.best_weights, self.faded)
        assert network.gnn is not None
        generator = torch.Generator().manual_seed(self.asked.train.seed)
        return grown_weights(network.gnn, split.train, generator)

    def _stage(self, name: str) -> None:
        """Save what a stage reached as a run that can be used, if there is time for it."""
        context = self.context
        if context.on_stage is None or context.deadline.left() < context.deadline.reserve:
            return
        stage = copy.copy(self)
        stage.state, stage.late = copy.deepcopy(self.state), self.late
        rows = self.search.by_length(self.blend)
        stage.state.choose(self._chosen(self.blend, rows))
        stage.state.descent.best.metrics = {self.metric: float(self.values.mean())}
        stage.model = stage._assembled(self.fitted, self.faded)
        context.on_stage(replace(stage.result(), complete=False), name)


def parts_alone(model: Hybrid, split: Split) -> dict[str, Model]:
    """The parts as models of their own, and popularity, to be compared with the sum."""
    out: dict[str, Model] = {}
    if model.gnn is not None:
        network = copy.copy(model)  # shares the weights
        rows = model.blend or model.typical_blend()
        network.blend = tuple((*row[:3], *(0.0 for _ in row[3:])) for row in rows)
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
