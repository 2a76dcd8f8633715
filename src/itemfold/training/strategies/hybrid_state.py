"""The state of a hybrid's training; with the learner's tensors, it allows an exact resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from itemfold.models.hybrid import Hybrid
from itemfold.settings.schema import Config
from itemfold.training.state import DescentState, Weights


@dataclass
class HybridState:
    """The progress of training, and the best candidate network so far."""

    descent: DescentState = field(default_factory=DescentState)
    chosen: Config = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    finished: list[dict[str, Any]] = field(
        default_factory=list
    )  # a record of each candidate network
    others: list[dict[str, Any]] = field(
        default_factory=list
    )  # settings and epochs selected for `others`
    alone: dict[str, float] = field(default_factory=dict)  # metric of each part on validation
    best_candidate: dict[str, Any] = field(default_factory=dict)  # its record, settings and blend
    best_weights: Weights = field(default_factory=dict)

    def choose(self, chosen: Config) -> None:
        """Record values for open settings; those of a part are merged into its table."""
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
        return {**self.descent.facts(), **own, "leader_facts": self.best_candidate}

    def weights(self) -> dict[str, Weights]:
        """The best weights of the current descent, and those of the best candidate."""
        return {**self.descent.weights(), "leader": self.best_weights}

    @classmethod
    def loaded(cls, content: dict[str, Any]) -> HybridState:
        """The state from the content of a file; settings of release 0.2 get their new names."""
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
            best_candidate=best,
            best_weights=content["leader"],
        )


def _current(chosen: Config) -> Config:
    """Selected settings under their current names."""
    model = chosen.get("model")
    if model is None:
        return chosen
    return {**chosen, "model": Hybrid.current_settings(model, warn=False)}
