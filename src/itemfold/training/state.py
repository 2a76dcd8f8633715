"""The state of gradient descent; with the learner's tensors, it allows an exact resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.errors import ItemfoldError
from itemfold.files import atomic, check_zip
from itemfold.models.base import Model
from itemfold.ops.columns import map_tables, own_part, whole_on_first
from itemfold.settings.schema import TrainConfig
from itemfold.training.learner import Learner

Weights = dict[str, Tensor]
TENSORS = ("model", "optimizer", "generator", "average", "best", "leader")
FACTS = (  # fields stored in ``state.pt``
    *("phase", "epoch", "selected_epochs", "seconds", "begun"),
    *("history", "gain_epoch", "gain_value", "lr_drops"),
)


class State(Protocol):
    """The state that a strategy saves in ``state.pt``."""

    def facts(self) -> dict[str, Any]:
        """Plain values by name."""

    def weights(self) -> dict[str, Weights]:
        """Weights to save besides those of the learner, by name."""

    @classmethod
    def loaded(cls, content: dict[str, Any]) -> Self:
        """The state from the content of ``state.pt``."""


@dataclass
class Best:
    """The best validation so far, and its weights."""

    epoch: int = 0
    value: float = -1.0
    metrics: dict[str, float] = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)


@dataclass
class DescentState:
    """The progress of one gradient descent."""

    phase: str = "select"  # then "refit"
    epoch: int = 0
    best: Best = field(default_factory=Best)
    gain_epoch: int = 0  # the last epoch with a sufficient gain; patience starts there
    gain_value: float = -1.0
    lr_drops: list[int] = field(default_factory=list)  # epochs after which the rate fell
    selected_epochs: int = 0  # epochs of the selection, set when the refit begins
    seconds: float = 0.0  # of training
    begun: float = 0.0  # seconds of training before this descent
    candidate: int = 0  # number of this network among the candidates of a hybrid
    stopped: bool = False  # by Ctrl-C, at the best epoch so far
    history: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)  # as loaded, until `restore`

    def record(
        self, loss: float, metrics: dict[str, float], config: TrainConfig, model: Model
    ) -> None:
        """Record a validation, and the weights if they are the best so far."""
        value = metrics[config.metric]
        row = {"epoch": self.epoch, "loss": loss, "seconds": round(self.seconds, 3), **metrics}
        self.history.append({**row, "candidate": self.candidate} if self.candidate else row)
        if value > self.gain_value * (1 + config.min_gain):
            self.gain_epoch, self.gain_value = self.epoch, value
        if value > self.best.value:
            weights = {k: v.detach().clone() for k, v in model.named_parameters()}
            self.best = Best(self.epoch, value, metrics, weights)

    @property
    def first_validation_best(self) -> bool:
        """Whether the first of several validations was the best; False after several candidates."""
        validated = [row["epoch"] for row in self.history]
        return len(validated) > 1 and not self.candidate and self.best.epoch == validated[0]

    def rate(self, config: TrainConfig) -> float:
        """The factor by which the learning rate is multiplied in the next epoch."""
        return config.lr_plateau ** sum(drop <= self.epoch for drop in self.lr_drops)

    def note_plateau(self, config: TrainConfig) -> None:
        """After a validation, drop the learning rate if neither a gain nor a drop was recent."""
        recent = max([self.gain_epoch, *self.lr_drops])
        if config.lr_plateau < 1 and self.epoch - recent >= config.lr_patience:
            self.lr_drops.append(self.epoch)

    def next_candidate(self) -> None:
        """Reset for the next candidate network, which is trained from scratch."""
        self.epoch = self.gain_epoch = 0
        self.gain_value, self.lr_drops, self.best = -1.0, [], Best()
        self.begun, self.candidate = self.seconds, self.candidate + 1

    def begin_refit(self) -> None:
        """Reset for the refit, which trains from scratch for the selected number of epochs."""
        self.phase, self.selected_epochs, self.epoch = "refit", self.epoch, 0
        self.best.weights = {}

    def restore(self, learner: Learner) -> None:
        """Load saved tensors into a learner; does nothing the second time."""
        if self.tensors:
            learner.load(self.tensors)
            best = self.tensors["best"]
            self.best.weights = {k: value.to(learner.device) for k, value in best.items()}
            self.tensors = {}

    def facts(self) -> dict[str, Any]:
        """Plain values by the names of ``state.pt``."""
        best = {f"best_{name}": getattr(self.best, name) for name in ("epoch", "value", "metrics")}
        return {name: getattr(self, name) for name in FACTS} | best

    def weights(self) -> dict[str, Weights]:
        """The best weights."""
        return {"best": self.best.weights}

    @classmethod
    def loaded(cls, content: dict[str, Any]) -> DescentState:
        """The state from the content of ``state.pt``."""
        best = Best(content["best_epoch"], content["best_value"], content.get("best_metrics", {}))
        facts = {name: content[name] for name in FACTS if name in content}  # 0.1 had fewer
        gain = {"gain_epoch": best.epoch, "gain_value": best.value}
        tensors = {name: content[name] for name in TENSORS}
        number = len(content.get("finished", ()))
        return cls(**{**gain, **facts}, best=best, candidate=number, tensors=tensors)


def save_state(path: Path, state: State, learner: Learner, data: str) -> None:
    """Write ``state.pt`` atomically; ``data`` is the fingerprint of the data set.

    With several ranks, the first one collects and writes whole tables, so that any number of ranks
    can resume.
    """
    tensors = {**learner.tensors(), "leader": {}, **state.weights()}
    if ranks.size() > 1:
        width = int(learner.model.settings["dim"])
        tensors = map_tables(tensors, lambda part: whole_on_first(part, width))
    if ranks.is_first():
        with atomic(path) as draft, draft.open("wb") as file:  # errors say why a write failed
            torch.save({"data": data, **state.facts(), **tensors}, file)


def load_state(path: Path) -> dict[str, Any]:
    """Read ``state.pt``, tensors and plain values only; tables have the columns of this rank."""
    shared = ranks.size() > 1
    try:
        check_zip(path)  # torch does not
        content: dict[str, Any] = torch.load(
            path, map_location="cpu", weights_only=True, mmap=shared
        )
        content.setdefault("leader", {})  # missing in release 0.1
        tensors = {name: content[name] for name in TENSORS}
        DescentState.loaded(content)  # raises if a fact is missing
        return {**content, **(map_tables(tensors, own_part) if shared else tensors)}
    except Exception as error:  # torch raises many types of errors for damaged files
        raise ItemfoldError(
            f"{path} is not a training state that can be resumed, or it is damaged"
        ) from error


@torch.no_grad()
def load_weights(model: Model, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into the parameters of the same names."""
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
