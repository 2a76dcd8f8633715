"""Training of a hybrid in stages: popularity, the linear part, the network, the refit.

Each stage ends with a model that can be used. A stage keeps what it adds only if validation shows a
gain beyond noise. Settings that were not given follow from the size of the data and the device, or
are chosen on validation. What was tried and chosen is part of the run: `chosen`, `trials`,
`candidates` and `alone` in its metrics.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace

from itemfold.data.splitting.split import Split
from itemfold.data.weights import NEVER
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.models.hybrid import Hybrid
from itemfold.models.hybrid_settings import make_part
from itemfold.settings.resolve import Settings
from itemfold.settings.schema import Config
from itemfold.training.fitted import Context, FittedModel
from itemfold.training.loop import descend
from itemfold.training.progress import report
from itemfold.training.state import Best
from itemfold.training.strategies import closed_form
from itemfold.training.strategies.blend import Blend, BlendSearch
from itemfold.training.strategies.candidates import Candidate
from itemfold.training.strategies.chosen_sum import ChosenSum, choose_sum
from itemfold.training.strategies.hybrid_state import HybridState
from itemfold.training.strategies.noise import is_clear, standard_error
from itemfold.training.strategies.parts import (
    dense_seconds,
    item_pairs,
    linear_seconds,
    parts_alone,
)
from itemfold.training.strategies.recency import (
    OF_INTERACTIONS,
    OF_POPULARITY,
    half_lives,
    popularities,
    validates_later,
)
from itemfold.training.strategies.sum_validation import SumValidation
from itemfold.training.strategies.workbench import FROM_DATA, PARTS, Workbench

NOT_REFITTED = "The budget left no time to fit the parts again with the validation data."
CHOOSING = 10  # linear fits that choosing takes, about
SOON = 20.0  # seconds; popularity is not saved if the linear part follows within them
FOR_STAGES = 30.0  # seconds that must be left to save what a stage has reached
NEIGHBOURS = [{"name": "itemknn", "neighbours": 200, "shrink": 50.0}]  # for new users, in time
MOST_PAIRS = 2**30  # of items in one history, with which neighbours take some ten seconds
FEW_NEIGHBOURS = 50  # of an item in the sparse form, if there is little time


def fit(settings: Settings, split: Split, state: HybridState, context: Context) -> FittedModel:
    """Popularity, then the linear part, then the network while it pays; then the refit."""
    stages = Stages(settings, split, state, context)
    if split.valid is None:
        stages.without_validation()
    elif state.descent.phase == "select":
        stages.begin()
        stages.popularity()
        stages.linear()
        stages.network()
        stages.settle()
    return stages.result()


class Stages(Workbench):
    """The stages of one training; each leaves a blend and the parts that it needs."""

    search: BlendSearch  # on validation users
    blend: Blend  # the best so far
    model: Hybrid  # fitted to the training part
    entered: Hybrid | None = None  # the network trained last

    # --- stages ----------------------------------------------------------------------------------

    def popularity(self) -> None:
        """Popularity, and how fast it fades."""
        self.search = self._search(self.split)
        self.blend, _ = self.search.run()
        for half_life in self.search.popularity:
            alone = self.search.values([self.search.of_popularity(half_life)])[0]
            name = "popularity" if half_life == NEVER else f"popularity, half-life {half_life}"
            self.state.alone[name] = float(alone.mean())
        self._stage("popularity", linear_seconds(self.settings, self.split) > SOON)

    def linear(self) -> None:
        """The linear part and further parts: settings and recency, then the weights of the sum."""
        self._choose_half_life()
        self.search = self._search(self.faded)
        is_open = self.value("others") is None and self.asked.model.values["blend"] is None
        is_small = item_pairs(self.split) <= MOST_PAIRS
        if is_open and is_small and not self.is_quick and validates_later(self.split):
            self.state.choose({"model": {"others": NEIGHBOURS}})
        self._fit_closed(self.fitted, self.faded, self.search.held)
        for name, part in self.fitted.items():
            self.search.add(name, part)
            alone = self.search.values([self.search.alone(name)])[0]
            shown = name if name == "linear" else type(part).__name__
            self.state.alone[shown] = float(alone.mean())
        self.blend, _ = self.search.run()
        self._stage("linear")

    def network(self) -> None:
        """Networks, each trained as long as the sum improves; the best one is kept."""
        state, before = self.state, self.search.values([self.search.padded(self.blend)])[0]
        base, entries = self.blend, self.entries
        if self.value("gnn") in (None, "none"):
            return
        for entry in entries[len(state.finished) :]:
            is_needed = self.asked.model.values["blend"] is not None and not state.finished
            is_late = self.context.deadline.left() <= self._spent() and not is_needed
            if is_late or state.descent.stopped:
                break
            started, settings = time.perf_counter(), self.settings.choose(entry.settings, FROM_DATA)
            model = self._network_of(settings)
            assert model.gnn is not None
            descend(
                model.gnn,
                settings,
                self.faded,
                state.descent,
                self.context,
                valid=self.search.held,
                validate=SumValidation(self.search, base, model),
                saved=state,
                from_zero=self._is_informed(settings),
                most=0 if self.is_quick and self._is_informed(settings) else None,
            )
            self._enter(entry, model, settings, base)
            self.spent["network"] = time.perf_counter() - started
        best = state.best_facts
        if not best:
            return
        network = self.entered
        if network is None or len(state.finished) > 1:
            network = self._network_of(self.settings.choose(best["settings"], FROM_DATA))
            self._load(network, state.best_weights, self.faded)
            self.search.add("network", network)
        alone = self.search.values([self.search.alone("network")])[0]
        state.alone["network"] = float(alone.mean())
        blend = Blend(best["half_life"], best["prior"], tuple(best["weights"]))
        gain = self.search.values([blend])[0] - before
        is_kept = self._is_kept("gnn") or (self.search.is_small and not is_clear(-gain))
        if is_kept or is_clear(gain):
            self.blend, self.fitted["network"] = blend, network
            state.choose(best["settings"])

    def settle(self) -> None:
        """Note the chosen sum in the state; the refit follows."""
        state, best = self.state, self.state.best_facts
        state.choose(self._chosen(choose_sum(self.search, self.blend)))
        progress, has_network = state.descent, "network" in self.fitted
        progress.epoch = best["epochs"] if has_network else 0
        progress.lr_drops = best.get("lr_drops", []) if has_network else []
        self.model = self._assembled(self.fitted, self.faded, self.split)
        valid = self.search.held if self.is_quick else self.faded.valid
        assert valid is not None
        metrics = Evaluator(valid, self.device).metrics(self.model, self.metric)
        progress.best = Best(
            best["best_epoch"] if has_network else 0, metrics[self.metric], metrics
        )
        progress.begin_refit()

    def result(self) -> FittedModel:
        """The chosen sum, fitted to training and validation data if there is a refit."""
        state, split = self.state, self.faded
        if self.refits:
            whole = self.split.refit()
            split = whole.recent(self.value("half_life"))
            self._refit(split)
            self.model = self._assembled(self.late, split, whole)
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
            notes=(NOT_REFITTED,) if self.skips_refit else (),
            complete=not progress.stopped,
        )

    def without_validation(self) -> None:
        """Nothing was held out to choose on: typical settings and a typical blend."""
        state = self.state
        state.choose(self.entries[0].settings)
        for name in ("half_life", "popularity_half_life"):
            if self.value(name) is None:
                state.choose({"model": {name: NEVER}})
        self._fit_closed(self.fitted, self.faded, None)
        if self.value("blend") is None:
            typical = self.settings.make_model()
            assert isinstance(typical, Hybrid)
            state.choose({"model": {"blend": typical.typical_blend()}})
        if self.value("gnn") not in (None, "none"):
            model = self._network_of(self.settings)
            self._descend(model, self.faded)
            self.fitted["network"] = model
            state.descent.selected_epochs = state.descent.epoch
        self.model = self._assembled(self.fitted, self.faded, self.split)

    def begin(self) -> None:
        """Settings by the size of the data; with a short budget, forms that are fitted soon."""
        state = self.state
        state.choose({"model": self.entries[0].settings["model"]})
        if not self._is_short_of_time():
            return
        self.is_quick = True
        linear, _ = make_part("linear", self.value("linear"), "rlae")
        if linear is not None:
            is_sparse = self._is_sparse() or self._is_late()
            form = {"form": "sparse", "neighbours": FEW_NEIGHBOURS} if is_sparse else {}
            state.choose({"model": {"linear": {**linear.typical_settings(), **form}}})
        if not self._is_kept("gnn") and not self._is_informed(self.settings):
            state.choose({"model": {"gnn": "none"}})
        if self.value("half_life") is None:
            state.choose({"model": {"half_life": NEVER}})

    def _is_short_of_time(self) -> bool:
        """Whether the budget has no time for trials; a given blend needs all its parts."""
        if self.asked.model.values["blend"] is not None:
            return False
        return self.context.deadline.left() < CHOOSING * linear_seconds(self.settings, self.split)

    def _is_late(self) -> bool:
        """Whether the dense form of the linear part takes longer than the time that is left."""
        if self._is_kept("linear"):
            return False
        return dense_seconds(self.split) > self.context.deadline.left()

    # --- recency ---------------------------------------------------------------------------------

    def _search(self, split: Split) -> BlendSearch:
        """A search on a sample of the validation users of a split."""
        assert split.valid is not None
        asked = self.asked.model.values
        # with rows of the blend the search only selects epochs: as in the run that chose the rows
        given = asked["popularity_half_life"] if asked["blend"] is None else None
        tried = half_lives(self.split, given, OF_POPULARITY)
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
            split = self.split.recent(half_life)
            closed_form.set_up(part, split, self.asked.train)
            if next(iter(part.trials(split.train)), None) is None:
                part.solve(split.train)
            search = self._search(split)
            search.add("linear", part)
            found.append(search.run()[1])
        if found:
            best = max(range(len(found)), key=lambda place: float(found[place].mean()))
            gain = found[best] - found[0]
            if gain.mean() > 2 * standard_error(gain):
                chosen = tried[best]
        if self.value("half_life") is None:
            self.state.choose({"model": {"half_life": chosen}})

    def _enter(self, entry: Candidate, model: Hybrid, settings: Settings, base: Blend) -> None:
        """Find the weight of a trained network, and keep it if it is the best so far."""
        state, progress, search = self.state, self.state.descent, self.search
        if "network" not in search.names or progress.best.epoch != progress.epoch:
            search.add("network", model)  # else it was validated last
        self.entered = model
        blend, values = search.run(base)
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

    # --- the sum ---------------------------------------------------------------------------------

    def _chosen(self, found: ChosenSum) -> Config:
        """The settings of a sum: parts that do not count and were not asked for are left out."""
        has_linear = "linear" in self.fitted
        order = ["network"] if "network" in self.fitted else []
        order += (
            ["linear"] if has_linear and (found.counts("linear") or self._is_kept("linear")) else []
        )
        asked, others = self.asked.model.values, [n for n in self.fitted if n.startswith("other")]
        is_open = asked["others"] is None
        order += [name for name in others if found.counts(name) or not is_open]
        model = found.settings(order)
        for part, name in (("gnn", "network"), ("linear", "linear")):
            if name not in order and self.value(part) not in (None, "none"):
                model[part] = "none"
        if is_open and others and not any(name in order for name in others):
            model["others"] = []
        given = [name for name in model if name not in PARTS and asked[name] is not None]
        given += ["new_blend"] if "blend" in given else []  # the same for all users
        model = {name: value for name, value in model.items() if name not in given}
        return {"model": {name: value for name, value in model.items() if value is not None}}

    def _stage(self, name: str, is_saved: bool = True) -> None:
        """Report what a stage reached, and save it as a usable run if there is time for it."""
        context = self.context
        value = float(self.search.values([self.blend])[0].mean())
        report(f"{name}: {self.metric} {value:.4f} on validation", show=context.progress)
        asked = self.asked.model.values
        waiting = bool(asked["others"]) and "other 0" not in self.fitted
        is_open = asked["blend"] is None and not waiting  # else parts of the settings are missing
        if context.on_stage is None or not is_open or not is_saved or self.is_resumed:
            return
        if context.deadline.left() < FOR_STAGES:
            return
        stage = copy.copy(self)
        stage.state, search = copy.deepcopy(self.state), copy.copy(self.search)
        stage.state.choose(self._chosen(choose_sum(search, self.blend)))
        stage.state.descent.best = Best(0, value, {self.metric: value})
        stage.model = stage._assembled(self.fitted, self.faded, self.split)
        context.on_stage(replace(stage.result(), complete=False), name)
