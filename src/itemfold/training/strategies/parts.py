"""The closed-form and other parts of a hybrid: fitting them, and each part as a model."""

from __future__ import annotations

import copy
import time

from itemfold.data.splitting.split import HeldOut, Split
from itemfold.models.base import Kind, Model
from itemfold.models.hybrid import Hybrid
from itemfold.models.hybrid_settings import as_list, make_part, renewed
from itemfold.settings.resolve import Request, Settings, resolve
from itemfold.training.fitted import Context
from itemfold.training.references import POPULARITY, popularity_model
from itemfold.training.state import DescentState
from itemfold.training.strategies import closed_form, descent
from itemfold.training.strategies.hybrid_state import HybridState

ON_VALIDATION = "chosen on validation"


def fit_linear(
    settings: Settings, split: Split, valid: HeldOut | None, state: HybridState, context: Context
) -> Model | None:
    """The fitted linear part; its open settings are selected on validation."""
    started = time.perf_counter()
    linear, _ = make_part("linear", settings.model.values["linear"], "rlae")
    if linear is None:
        return None
    config = settings.train
    found, trials = closed_form.choose_settings(
        copy.deepcopy(linear), split, valid, config, context
    )
    if found:
        state.choose({"model": {"linear": found}})
        state.trials += trials
    fresh = renewed(linear, **found)
    fitted = closed_form.solve(fresh, split, config, context)
    state.descent.seconds += time.perf_counter() - started
    return fitted


def fit_others(
    settings: Settings, split: Split, state: HybridState, context: Context
) -> list[Model]:
    """The fitted models of `others`, each trained with its own defaults.

    A refit, or a resumed training, reuses the settings and epochs selected before.
    """
    out = list[Model]()
    for number, value in enumerate(as_list(settings.model.values["others"])):
        part, _ = make_part("others", value, "")
        assert part is not None  # the constructor of the hybrid checks that
        shared = {name: getattr(settings.train, name) for name in ("seed", "device", "metric")}
        own = resolve(Request({"model": copy.deepcopy(part), "train": {**shared, "refit": False}}))
        known = state.others[number] if number < len(state.others) else None
        if known is not None:
            own = own.choose(known["chosen"], ON_VALIDATION)
        if split.valid is None and known is not None and known["epochs"]:
            own = own.choose({"train": {"epochs": known["epochs"]}}, ON_VALIDATION)
        started, inner = time.perf_counter(), Context(None, context.progress)
        if part.kind is Kind.CLOSED_FORM:
            fitted = closed_form.fit(own, split, closed_form.ClosedFormState(), inner)
        else:
            fitted = descent.fit(own, split, DescentState(), inner)
        if not fitted.complete:  # Ctrl-C, before there is a sum to fall back on
            raise KeyboardInterrupt
        if known is None:
            state.others.append({"chosen": fitted.chosen, "epochs": fitted.best_epoch})
        state.descent.seconds += time.perf_counter() - started
        out.append(fitted.model)
    return out


def parts_alone(model: Hybrid, split: Split) -> dict[str, Model]:
    """Each part as a separate model, and popularity, to compare with the sum."""
    out: dict[str, Model] = {}
    if model.gnn is not None:
        network = copy.copy(model)  # shares its weights
        for name in ("blend", "new_blend"):
            rows = getattr(model, name) or model.blend or model.typical_blend()
            alone = tuple((*row[:3], row[3] or 1.0, *(0.0 for _ in row[4:])) for row in rows)
            setattr(network, name, alone)
        out["network and prior"] = network
    if model.linear is not None:
        out["linear"] = model.linear
    for part in model.others:
        assert isinstance(part, Model)
        out[type(part).__name__] = part
    return {**out, POPULARITY: popularity_model(split, model.device)}
