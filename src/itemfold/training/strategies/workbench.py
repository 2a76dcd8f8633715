"""Operations that the stages of a hybrid share: settings, fitting of parts, assembly, refit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from itemfold import ranks
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.weights import NEVER, fades
from itemfold.environment import pick_device
from itemfold.graph.graph import Graph
from itemfold.models.base import Model
from itemfold.models.growth import grown_weights
from itemfold.models.hybrid import Hybrid
from itemfold.models.hybrid_settings import make_part
from itemfold.settings.resolve import Settings
from itemfold.settings.toml_file import flat
from itemfold.training.across_ranks import sharded
from itemfold.training.fitted import Context
from itemfold.training.loop import descend
from itemfold.training.state import Weights, load_weights
from itemfold.training.strategies.candidates import candidates, is_large_sparse
from itemfold.training.strategies.estimates import (
    columns_of,
    dense_seconds,
    epoch_seconds,
    linear_seconds,
    most_columns,
    most_neighbours,
    selection_seconds,
    sparse_seconds,
    speed_of,
    start_seconds,
)
from itemfold.training.strategies.hybrid_state import HybridState
from itemfold.training.strategies.parts import ON_VALIDATION, fit_linear, fit_others

FROM_DATA = "chosen from the data"
BY_SIZE = (  # settings that follow from the size of the data and the device
    *("model.gnn.dim", "model.gnn.start", "model.linear.items", "model.linear.form"),
    *("train.batch", "train.lr", "train.patience", "train.eval_every", "train.min_gain"),
    *("negatives.group", "loss.scale"),
)
PARTS = ("gnn", "linear", "others")

FITS = 2  # of every part: to training data, then with validation data
FEW_EPOCHS = 2  # with time for fewer, a network stays as it starts
SOME_EPOCHS = 5  # with time for fewer on large sparse data, a network is wide and untrained
USUAL_EPOCHS = 20
LINEAR_SHARE = 0.3  # of a short budget, for each of two fits of the linear part: a refit with all
# data is worth more than more neighbours (docs/research)


class Workbench:
    """The settings, data and fitted parts of one training."""

    def __init__(
        self, settings: Settings, split: Split, state: HybridState, context: Context
    ) -> None:
        self.requested, self.state, self.context = settings, state, context
        self.is_resumed = bool(state.chosen)
        self.split, self.refits = split, settings.refits(split)
        self.device, self.metric = pick_device(settings.train.device), settings.train.metric
        self.candidates = candidates(settings, split)
        self.fitted: dict[str, Model] = {}  # parts fitted to the training part, by name
        self.refitted: dict[str, Model] = {}  # parts fitted to training and validation data
        self.fit_seconds: dict[str, float] = {}  # time to fit each part to the training part
        self.is_quick = False  # the budget is too short for trials
        self.skips_refit = False  # the budget is too short for a refit

    @property
    def settings(self) -> Settings:
        """The requested settings and those selected so far, each with its source."""
        chosen = self.state.chosen
        out, paths = self.requested.choose(chosen, ON_VALIDATION), flat(chosen)
        by_size = {path: FROM_DATA for path in BY_SIZE if path in paths}
        return replace(out, chosen={**out.chosen, **by_size})

    def value(self, name: str) -> Any:
        """The current value of a setting of the hybrid."""
        return self.settings.model.values[name]

    @property
    def decayed(self) -> Split:
        """The split with weights by the selected half-life; cached."""
        key = self.value("half_life") or NEVER
        if getattr(self, "_decayed", (None,))[0] != key:
            self._decayed = key, self.split.recent(key)
        return self._decayed[1]

    def _fit_closed_forms(
        self, parts: dict[str, Model], split: Split, valid: HeldOut | None
    ) -> None:
        """Fit the linear part and the others, unless they are fitted already."""
        started = time.perf_counter()
        if "linear" not in parts and self.value("linear") not in (None, "none"):
            linear = fit_linear(self.settings, split, valid, self.state, self.context)
            assert linear is not None
            parts["linear"] = linear
        if "other 0" not in parts:
            others = fit_others(self.settings, split, self.state, self.context)
            parts |= {f"other {number}": part for number, part in enumerate(others)}
        self.fit_seconds["linear"] = time.perf_counter() - started

    # --- the budget -------------------------------------------------------------------------------

    def _refit_seconds(self) -> float:
        """With a short budget, the time that a refit of all parts takes; otherwise 0."""
        return ranks.from_first(lambda: sum(self.fit_seconds.values()) if self.is_quick else 0.0)

    def _seconds(self, estimate: float, work: str = "other") -> float:
        """An estimate for two cores on the device of this training."""
        return estimate / speed_of(self.device, work)

    def _linear_seconds(self) -> float:
        """One fit of the linear part."""
        work = "other" if self._is_sparse() else "inverses"
        return self._seconds(linear_seconds(self.settings, self.split), work)

    def _start_seconds(self, columns: int | None = None) -> float:
        """A network from the SVD, scored on validation."""
        found = columns_of(self.settings) if columns is None else columns
        return self._seconds(start_seconds(self.split, found))

    def _epoch_seconds(self, columns: int | None = None) -> float:
        """One epoch of the network."""
        found = columns_of(self.settings) if columns is None else columns
        return self._seconds(epoch_seconds(self.split, found), "epochs")

    def _is_short_of_time(self) -> bool:
        """Whether the budget is too short for trials; a requested blend needs all its parts."""
        if self.requested.model.values["blend"] is not None:
            return False
        once = self._linear_seconds() + self._start_seconds() + FEW_EPOCHS * self._epoch_seconds()
        needed = self._seconds(selection_seconds(self.split)) + FITS * once
        return self.context.deadline.left() < needed

    def _network_seconds(self) -> float:
        """The usual time of the network on a GPU, where it may be short; inf on a CPU."""
        if self.device.type == "cpu":
            return math.inf
        return USUAL_EPOCHS * self._epoch_seconds()

    def _quick_form(self) -> dict[str, Any]:
        """The form of the linear part that a short budget has time for."""
        start = FITS * self._start_seconds()
        seconds = LINEAR_SHARE * (self.context.deadline.left() - start)
        neighbours = most_neighbours(self.split, seconds)
        dense = self._seconds(dense_seconds(self.split), "inverses")
        is_fast = dense <= max(seconds, self._seconds(sparse_seconds(self.split, neighbours)))
        if self._is_required("linear") or (is_fast and not self._is_sparse()):
            return {}
        return {"form": "sparse", "neighbours": neighbours}

    def _quick_columns(self) -> int | None:
        """The columns of a network that has no time for training; None: as usual.

        On large sparse data a wide one from the SVD is better than a few epochs (docs/research).
        """
        open_settings = self.candidates[0].settings["model"].get("gnn", {})
        if not is_large_sparse(self.split) or "dim" not in open_settings:
            return None
        left = self.context.deadline.left() - FITS * self._linear_seconds()
        if left >= FITS * (self._start_seconds() + SOME_EPOCHS * self._epoch_seconds()):
            return None
        return most_columns(self.split, left)

    # --- models -----------------------------------------------------------------------------------

    def _make_network(self, settings: Settings) -> Hybrid:
        """A hybrid of a new network only, which scores as in the sum."""
        new = settings.make_model()
        assert isinstance(new, Hybrid)
        model = type(new)(gnn=new.gnn, linear=None, norm=new.norm, blend=((0.0, 0.0, 0.0, 1.0),))
        model.count(self.split.train)
        model.to(self.device)
        sharded(model)
        return model

    def _load_weights(self, model: Hybrid, weights: Weights, split: Split) -> None:
        """Load weights into a network and compute its vectors."""
        gnn = model.gnn
        assert gnn is not None
        gnn.setup(
            split.train,
            inductive=split.protocol == "inductive",
            generator=torch.Generator().manual_seed(0),
        )
        model.to(self.device)
        load_weights(gnn, weights)
        gnn.eval()
        model.cache_embeddings(Graph.from_csr(split.train, self.device))

    def _descend(self, model: Hybrid, split: Split) -> None:
        """Train a network for the selected number of epochs, without validation."""
        assert model.gnn is not None
        descend(
            model.gnn,
            self.settings,
            split,
            self.state.descent,
            self.context,
            valid=None,
            saved=self.state,
            from_zero=self._starts_from_svd(self.settings),
        )

    @staticmethod
    def _starts_from_svd(settings: Settings) -> bool:
        """Whether the network starts from an SVD of the data, and so may need no training."""
        gnn = settings.model.values["gnn"]
        table = gnn.settings if isinstance(gnn, Model) else gnn
        return isinstance(table, Mapping) and str(table.get("start")).startswith("svd")

    def _is_required(self, part: str) -> bool:
        """Whether a part, or rows of the blend, were requested; such a part stays at any weight."""
        requested, template = self.requested.model.values, self.requested.model.template
        if template is not None and requested[part] == type(template)().settings[part]:
            return requested["blend"] is not None  # an unchanged default of `Hybrid(...)`
        return self.requested.is_given(f"model.{part}") or requested["blend"] is not None

    def _is_sparse(self) -> bool:
        linear, _ = make_part("linear", self.value("linear"), "rlae")
        return getattr(linear, "form", "") == "sparse"

    def _assemble(self, parts: dict[str, Model], split: Split, counted: Split) -> Hybrid:
        """The hybrid with the selected settings and these fitted parts.

        Popularity is counted in ``counted``; the other parts were fitted to ``split``.
        """
        new = self.settings.make_model()
        assert isinstance(new, Hybrid)
        network = parts.get("network")
        assert isinstance(network, Hybrid | None)
        own = {name: value for name, value in new.settings.items() if name not in PARTS}
        model = type(new)(
            gnn=None if new.gnn is None or network is None else network.gnn,
            linear=None if new.linear is None else parts.get("linear"),
            others=[parts[f"other {n}"] for n in range(len(new.others))] or new.settings["others"],
            **own,
        )
        model.to(self.device)
        recent = new.popularity_half_life
        model.count(counted.train, counted.recent(recent).train if fades(recent) else None)
        model.restore(split.train)
        return model.eval()

    def _refit(self, split: Split) -> None:
        """Fit the selected parts to training and validation data.

        The network is trained from scratch: from the SVD of all data this is better than from the
        selected weights (docs/research). After Ctrl-C, the selected weights are used on the larger
        graph. If the budget is too short to refit all parts, all of them keep their fit.
        """
        self.skips_refit = (
            bool(self.fitted) and self.context.deadline.left() < self._refit_seconds()
        )
        if self.skips_refit:
            self.refitted |= {name: part for name, part in self.fitted.items() if name != "network"}
        else:
            self._fit_closed_forms(self.refitted, split, None)
        if self.value("gnn") in (None, "none"):
            return
        model, stopped = self._make_network(self.settings), self.state.descent.stopped
        if not (self.skips_refit or stopped):
            self._descend(model, split)
        if self.skips_refit or self.state.descent.stopped:  # a refit of a few epochs is worse
            self._load_weights(model, self._grown_weights(split), split)
        self.refitted["network"] = model

    def _grown_weights(self, split: Split) -> Weights:
        """The selected weights, with rows for users who are new in the refit."""
        network = self.fitted.get("network")
        if not isinstance(network, Hybrid):  # resumed after the selection
            network = self._make_network(self.settings)
            self._load_weights(network, self.state.best_weights, self.decayed)
        assert network.gnn is not None
        generator = torch.Generator().manual_seed(self.requested.train.seed)
        return grown_weights(network.gnn, split.train, generator)
