"""Training of a hybrid in stages: popularity, the linear part, the network, the refit.

Each stage ends with a usable model, and keeps what it adds only if validation shows a gain beyond
noise. Settings that were not requested follow from the size of the data and the device, or are
selected on validation. The metrics of the run record what was tried and selected: `chosen`,
`trials`, `candidates` and `alone`.
"""

from __future__ import annotations

import copy
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
from itemfold.training.strategies.estimates import (
    columns_of,
    item_pairs,
    selection_seconds,
)
from itemfold.training.strategies.hybrid_state import HybridState
from itemfold.training.strategies.noise import is_clear, standard_error
from itemfold.training.strategies.parts import parts_alone
from itemfold.training.strategies.recency import (
    OF_INTERACTIONS,
    OF_POPULARITY,
    half_lives,
    popularities,
    validates_later,
)
from itemfold.training.strategies.sum_validation import SumValidation
from itemfold.training.strategies.workbench import (
    FEW_EPOCHS,
    FITS,
    FROM_DATA,
    PARTS,
    Workbench,
)

NOT_REFITTED = "The budget left no time to fit the parts again with the validation data."
STAGE_SECONDS = 20.0  # a stage is saved only if the next one takes longer
STAGE_SAVE_SECONDS = 30.0  # and only if this much of the budget is left
NEIGHBOURS = [{"name": "itemknn", "neighbours": 200, "shrink": 50.0}]  # suits new users, with times
MAX_ITEM_PAIRS = 2**30  # within histories; neighbours of so many take about ten seconds


def fit(settings: Settings, split: Split, state: HybridState, context: Context) -> FittedModel:
    """Train a hybrid, or continue an interrupted training from ``state``."""
    stages = Stages(settings, split, state, context)
    if split.valid is None:
        stages.without_validation()
    elif state.descent.phase == "select":
        stages.prepare()
        stages.popularity()
        stages.linear()
        stages.network()
        stages.select_sum()
    return stages.result()


class Stages(Workbench):
    """The stages of one training; each leaves a blend and the fitted parts of that blend."""

    search: BlendSearch  # on validation users
    blend: Blend  # the best so far
    model: Hybrid  # fitted to the training part
    last_network: Hybrid | None = None  # the candidate trained last

    # --- stages ----------------------------------------------------------------------------------

    def popularity(self) -> None:
        """Select how fast popularity decays."""
        self.search = self._new_search(self.split)
        self.blend, _ = self.search.run()
        for half_life in self.search.popularity:
            alone = self.search.values([self.search.popularity_alone(half_life)])[0]
            name = "popularity" if half_life == NEVER else f"popularity, half-life {half_life}"
            self.state.alone[name] = float(alone.mean())
        trials = self._seconds(selection_seconds(self.split))
        self._finish_stage("popularity", before=trials + self._linear_seconds())

    def linear(self) -> None:
        """Fit the linear part and the others, then select the weights of the sum so far."""
        self._select_half_life()
        self.search = self._new_search(self.decayed)
        is_open = self.value("others") is None and self.requested.model.values["blend"] is None
        is_fast = item_pairs(self.split) <= MAX_ITEM_PAIRS
        if is_open and is_fast and not self.is_quick and validates_later(self.split):
            self.state.choose({"model": {"others": NEIGHBOURS}})
        self._fit_closed_forms(self.fitted, self.decayed, self.search.held)
        for name, part in self.fitted.items():
            self.search.add(name, part)
            alone = self.search.values([self.search.single_part(name)])[0]
            shown = name if name == "linear" else type(part).__name__
            self.state.alone[shown] = float(alone.mean())
        self.blend, _ = self.search.run()
        self._finish_stage("linear", before=self._network_seconds())

    def network(self) -> None:
        """Train the candidate networks; the best one joins the sum if it is a clear gain.

        Otherwise it stays a part that new or known users may get in the last stage.
        """
        if self.value("gnn") in (None, "none"):
            return
        state, base = self.state, self.blend
        before = self.search.values([self.search.padded(base)])[0]
        for candidate in self.candidates[len(state.finished) :]:
            # requested rows of the blend have a weight for the network, whatever the budget
            is_needed = self.requested.model.values["blend"] is not None and not state.finished
            start = self._start_seconds() if self.is_quick else 0.0
            if (self.context.deadline.left() <= start and not is_needed) or state.descent.stopped:
                break
            self._train_candidate(candidate, base)
        best = state.best_candidate
        if not best:
            return
        network = self.last_network
        if network is None or len(state.finished) > 1:  # resumed, or another may be better
            network = self._make_network(self.settings.choose(best["settings"], FROM_DATA))
            self._load_weights(network, state.best_weights, self.decayed)
            self.search.add("network", network)
        alone = self.search.values([self.search.single_part("network")])[0]
        state.alone["network"] = float(alone.mean())
        blend = Blend(best["half_life"], best["prior"], tuple(best["weights"]))
        gain = self.search.values([blend])[0] - before
        stays = self._is_required("gnn") or (self.search.prefers_typical and not is_clear(-gain))
        self.fitted["network"] = network
        if stays or is_clear(gain):
            self.blend = blend

    def select_sum(self) -> None:
        """Select the final weights of all parts, and record them for the refit."""
        state, best = self.state, self.state.best_candidate
        found = choose_sum(self.search, self.blend)
        if "network" in self.fitted:
            if found.uses("network") or self._is_required("gnn"):
                state.choose(best["settings"])
            else:
                del self.fitted["network"]
        state.choose(self._sum_settings(found))
        progress, has_network = state.descent, "network" in self.fitted
        progress.epoch = best["epochs"] if has_network else 0
        progress.lr_drops = best.get("lr_drops", []) if has_network else []
        self.model = self._assemble(self.fitted, self.decayed, self.split)
        valid = self.search.held if self.is_quick else self.decayed.valid
        assert valid is not None
        metrics = Evaluator(valid, self.device).metrics(self.model, self.metric)
        progress.best = Best(
            best["best_epoch"] if has_network else 0, metrics[self.metric], metrics
        )
        progress.begin_refit()

    def result(self) -> FittedModel:
        """The selected sum, refitted to training and validation data if the settings say so."""
        state, split = self.state, self.decayed
        if self.refits:
            whole = self.split.refit()
            split = whole.recent(self.value("half_life"))
            self._refit(split)
            self.model = self._assemble(self.refitted, split, whole)
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
        """Fit all parts with typical settings and a typical blend."""
        state = self.state
        state.choose(self.candidates[0].settings)
        for name in ("half_life", "popularity_half_life"):
            if self.value(name) is None:
                state.choose({"model": {name: NEVER}})
        self._fit_closed_forms(self.fitted, self.decayed, None)
        if self.value("blend") is None:
            typical = self.settings.make_model()
            assert isinstance(typical, Hybrid)
            state.choose({"model": {"blend": typical.typical_blend()}})
        if self.value("gnn") not in (None, "none"):
            model = self._make_network(self.settings)
            self._descend(model, self.decayed)
            self.fitted["network"] = model
            state.descent.selected_epochs = state.descent.epoch
        self.model = self._assemble(self.fitted, self.decayed, self.split)

    def prepare(self) -> None:
        """Apply settings by the size of the data; with a short budget, skip slow selections."""
        state = self.state
        state.choose({"model": self.candidates[0].settings["model"]})
        if not self._is_short_of_time():
            return
        self.is_quick = True
        linear, _ = make_part("linear", self.value("linear"), "rlae")
        if linear is not None:
            chosen = {**linear.typical_settings(), **self._quick_form()}
            state.choose({"model": {"linear": chosen}})
        if not self._is_required("gnn") and not self._starts_from_svd(self.settings):
            state.choose({"model": {"gnn": "none"}})
        elif (columns := self._quick_columns()) and not self.is_resumed:
            self.candidates = [each.with_columns(columns) for each in self.candidates]
            state.choose({"model": self.candidates[0].settings["model"]})
        if self.value("half_life") is None:
            state.choose({"model": {"half_life": NEVER}})

    # --- recency ---------------------------------------------------------------------------------

    def _new_search(self, split: Split) -> BlendSearch:
        """A blend search on a sample of the validation users of a split."""
        assert split.valid is not None
        requested = self.requested.model.values
        # With requested rows of the blend, the search only selects epochs. It then has the same
        # half-lives as in the run that selected the rows.
        half_life = requested["popularity_half_life"] if requested["blend"] is None else None
        tried = half_lives(self.split, half_life, OF_POPULARITY)
        popularity = popularities(self.split, tried, self.device)
        valid = sample_users(split.valid, self.device)
        return BlendSearch(valid, popularity, self.metric, self.device, self.requested.train.seed)

    def _select_half_life(self) -> None:
        """Select the half-life of interactions: "never" unless another is clearly better."""
        tried = half_lives(self.split, self.value("half_life"), OF_INTERACTIONS)
        chosen, found = tried[0], []
        for half_life in tried if len(tried) > 1 else ():
            part, _ = make_part("linear", self.value("linear"), "rlae")
            if part is None or self.context.deadline.left() <= 0:
                break
            split = self.split.recent(half_life)
            closed_form.set_up(part, split, self.requested.train)
            if next(iter(part.trials(split.train)), None) is None:
                part.solve(split.train)
            search = self._new_search(split)
            search.add("linear", part)
            found.append(search.run()[1])
        if found:
            best = max(range(len(found)), key=lambda place: float(found[place].mean()))
            gain = found[best] - found[0]
            if gain.mean() > 2 * standard_error(gain):
                chosen = tried[best]
        if self.value("half_life") is None:
            self.state.choose({"model": {"half_life": chosen}})

    # --- candidate networks ----------------------------------------------------------------------

    def _train_candidate(self, candidate: Candidate, base: Blend) -> None:
        """Train one network as long as the sum improves, and compare it with the best so far."""
        state, settings = self.state, self.settings.choose(candidate.settings, FROM_DATA)
        model, from_svd = self._make_network(settings), self._starts_from_svd(settings)
        assert model.gnn is not None
        if not state.descent.epoch:  # what closed forms took is no pace of epochs
            state.descent.begun = state.descent.seconds
        columns = columns_of(settings)
        start = self._start_seconds(columns)
        of_refit = start
        if "linear" not in self.refitted:  # else a saved stage has refitted it
            of_refit += self._linear_seconds()
        with self.context.deadline.reserving(of_refit if self.refits else 0.0):
            epochs = FITS * FEW_EPOCHS * self._epoch_seconds(columns)
            is_late = self.context.deadline.left() < start + epochs
            descend(
                model.gnn,
                settings,
                self.decayed,
                state.descent,
                self.context,
                valid=self.search.held,
                validate=SumValidation(self.search, base, model),
                saved=state,
                from_zero=from_svd,
                most=0 if is_late and from_svd else None,
            )
        progress = state.descent
        pace = (progress.seconds - progress.begun) / max(progress.epoch, 1)
        self.fit_seconds["network"] = start + progress.best.epoch * pace
        self._compare_candidate(candidate, model, base)

    def _compare_candidate(self, candidate: Candidate, model: Hybrid, base: Blend) -> None:
        """Find the weight of a trained network, and store the network if it is the best so far."""
        state, progress, search = self.state, self.state.descent, self.search
        if "network" not in search.names or progress.best.epoch != progress.epoch:
            search.add("network", model)  # else the last validation has added it
        self.last_network = model
        blend, values = search.run(base)
        record = {
            "name": candidate.name,
            self.metric: float(values.mean()),
            "best_epoch": progress.best.epoch,
            "epochs": progress.epoch,
            "seconds": round(progress.seconds - progress.begun, 3),
        }
        if record[self.metric] > state.best_candidate.get(self.metric, -1.0):
            state.best_candidate = {
                **record,
                "settings": candidate.settings,
                "lr_drops": progress.lr_drops,
                "half_life": blend.half_life,
                "prior": blend.prior,
                "weights": list(blend.weights),
            }
            assert model.gnn is not None
            weights = dict(model.gnn.named_parameters())
            state.best_weights = {k: v.detach().clone() for k, v in weights.items()}
        state.finished.append(record)
        progress.next_candidate()

    # --- the sum ---------------------------------------------------------------------------------

    def _sum_settings(self, found: ChosenSum) -> Config:
        """The settings of a sum; parts without weight are left out unless they were requested."""
        requested = self.requested.model.values
        others = [name for name in self.fitted if name.startswith("other")]
        others_are_open = requested["others"] is None
        order = ["network"] if "network" in self.fitted else []
        if "linear" in self.fitted and (found.uses("linear") or self._is_required("linear")):
            order.append("linear")
        order += [name for name in others if found.uses(name) or not others_are_open]
        model = found.settings(order)
        for part, name in (("gnn", "network"), ("linear", "linear")):
            if name not in order and self.value(part) not in (None, "none"):
                model[part] = "none"
        if others_are_open and others and not any(name in order for name in others):
            model["others"] = []
        fixed = [name for name in model if name not in PARTS and requested[name] is not None]
        fixed += ["new_blend"] if "blend" in fixed else []  # requested rows are for all users
        model = {name: value for name, value in model.items() if name not in fixed}
        return {"model": {name: value for name, value in model.items() if value is not None}}

    def _finish_stage(self, name: str, before: float) -> None:
        """Report the metric of a stage; save it as a usable run if the next stage takes long.

        ``before`` is the estimate of the next stage's seconds.
        """
        context = self.context
        value = float(self.search.values([self.blend])[0].mean())
        report(f"{name}: {self.metric} {value:.4f} on validation", show=context.progress)
        requested = self.requested.model.values
        # a requested blend, and requested others, need parts that are not fitted yet
        lacks_others = bool(requested["others"]) and "other 0" not in self.fitted
        is_usable = requested["blend"] is None and not lacks_others
        if context.on_stage is None or not is_usable or self.is_resumed:
            return
        if before < STAGE_SECONDS or context.deadline.left() < STAGE_SAVE_SECONDS:
            return
        # selecting a sum changes the search and the state, which the next stage continues with
        stage, search = copy.copy(self), copy.copy(self.search)
        stage.state = copy.deepcopy(self.state)
        stage.state.choose(self._sum_settings(choose_sum(search, self.blend)))
        stage.state.descent.best = Best(0, value, {self.metric: value})
        stage.model = stage._assemble(self.fitted, self.decayed, self.split)
        context.on_stage(replace(stage.result(), complete=False), name)
