"""The training state: with the learner's tensors, everything that an exact resume needs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from itemrec import ranks
from itemrec.errors import ItemrecError
from itemrec.files import atomic, check_zip
from itemrec.models.base import Model
from itemrec.ops.columns import map_tables, own_part, whole_on_first
from itemrec.training.config import TrainConfig
from itemrec.training.learner import Learner

TENSORS = ("model", "optimizer", "generator", "average", "best", "leader")
FACTS = (
    *("data", "phase", "epoch", "best_epoch", "best_value", "best_metrics"),
    *("selected_epochs", "seconds", "history", "chosen", "trials"),
    *("gain_epoch", "gain_value", "elapsed", "begun", "finished", "leader_facts"),
    "lr_drops",
)


@dataclass
class TrainState:
    """Epochs, the best validation so far, and its weights."""

    data: str = ""  # fingerprint of the data set
    phase: str = "select"  # then "refit"
    epoch: int = 0
    best_epoch: int = 0
    best_value: float = -1.0
    best_metrics: dict[str, float] = field(default_factory=dict)
    selected_epochs: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)  # settings, by section
    trials: list[dict[str, Any]] = field(default_factory=list)  # what was tried for them
    gain_epoch: int = 0  # the last epoch with a gain that counts, from which patience is counted
    gain_value: float = -1.0
    lr_drops: list[int] = field(default_factory=list)  # epochs after which the rate fell
    elapsed: float = 0.0  # seconds of training and validation, those before a resume included
    begun: float = 0.0  # seconds before the candidate
    finished: list[dict[str, Any]] = field(default_factory=list)  # candidates of a race
    leader_facts: dict[str, Any] = field(default_factory=dict)  # the best of them
    leader: dict[str, Tensor] = field(default_factory=dict)  # and its weights
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)  # as loaded, until restored
    start: dict[str, Tensor] = field(default_factory=dict)  # weights instead of random ones
    saved_at: float = field(default_factory=time.monotonic)

    def record(
        self,
        loss: float,
        metrics: dict[str, float],
        config: TrainConfig,
        model: Model | None = None,
    ) -> None:
        """Record one validation, and the weights if they are the best so far."""
        metric = config.metric
        row = {"epoch": self.epoch, "loss": loss, "seconds": round(self.seconds, 3), **metrics}
        if self.finished:
            row["candidate"] = len(self.finished)
        self.history.append(row)
        if metrics[metric] > self.gain_value * (1 + config.min_gain):
            self.gain_epoch, self.gain_value = self.epoch, metrics[metric]
        if metrics[metric] > self.best_value:
            self.best_epoch, self.best_value = self.epoch, metrics[metric]
            self.best_metrics = metrics
            if model is not None:
                self.best_weights = {k: v.detach().clone() for k, v in model.named_parameters()}

    @property
    def first_look_won(self) -> bool:
        """Whether the first of several validations was the best; unknown after a race."""
        looks = [row["epoch"] for row in self.history]
        return len(looks) > 1 and not self.finished and self.best_epoch == looks[0]

    def rate(self, config: TrainConfig) -> float:
        """The share of the learning rate that is left for the next epoch."""
        return config.lr_plateau ** sum(drop <= self.epoch for drop in self.lr_drops)

    def note_plateau(self, config: TrainConfig) -> None:
        """After a validation: let the rate fall if neither a gain nor a fall was recent."""
        recent = max([self.gain_epoch, *self.lr_drops])
        if config.lr_plateau < 1 and self.epoch - recent >= config.lr_patience:
            self.lr_drops.append(self.epoch)

    def choose(self, section: str, settings: Mapping[str, Any]) -> None:
        """Note settings that were left open and are now chosen."""
        if settings:
            self.chosen.setdefault(section, {}).update(settings)

    def begin_candidate(self) -> None:
        """The next candidate of a race starts from scratch."""
        self.epoch = self.best_epoch = self.gain_epoch = 0
        self.best_value = self.gain_value = -1.0
        self.lr_drops = []
        self.begun = self.seconds
        self.best_weights, self.best_metrics = {}, {}

    def begin_refit(self) -> None:
        """Selection is over: the refit starts from scratch for the selected number of epochs."""
        self.phase, self.selected_epochs, self.epoch = "refit", self.epoch, 0
        self.best_weights, self.leader = {}, {}

    def restore(self, learner: Learner) -> None:
        """Continue from loaded tensors, once, or start from given weights."""
        put_weights(learner.model, self.start)
        if self.tensors:
            learner.load(self.tensors)
            for own, name in (("best_weights", "best"), ("leader", "leader")):
                saved = self.tensors[name]
                setattr(self, own, {k: value.to(learner.device) for k, value in saved.items()})
            self.tensors = {}

    def restore_best(self, model: Model) -> None:
        """Put the best weights back."""
        put_weights(model, self.best_weights)

    def save(self, path: Path, learner: Learner) -> None:
        """Write ``state.pt``, complete or not at all.

        With several ranks the first one collects and writes whole tables, so that any number of
        them can resume.
        """
        facts = {name: getattr(self, name) for name in FACTS}
        best = {"best": self.best_weights, "leader": self.leader}
        tensors = {**learner.tensors(), **best}
        if ranks.size() > 1:
            width = int(learner.model.settings["dim"])
            tensors = map_tables(tensors, lambda part: whole_on_first(part, width))
        if ranks.is_first():
            with atomic(path) as draft, draft.open("wb") as file:  # errors say why a write failed
                torch.save({**facts, **tensors}, file)
        self.saved_at = time.monotonic()

    @classmethod
    def load(cls, path: Path) -> TrainState:
        """Read ``state.pt``: tensors and plain values only; of tables, the columns of this rank."""
        shared = ranks.size() > 1
        try:
            check_zip(path)  # torch does not
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=shared)
            content.setdefault("leader", {})  # 0.1 had no races
            tensors = {name: content.pop(name) for name in TENSORS}
            tensors = map_tables(tensors, own_part) if shared else tensors
            content.setdefault("gain_epoch", content["best_epoch"])
            content.setdefault("gain_value", content["best_value"])
            return cls(tensors=tensors, **content)
        except Exception as error:  # torch raises many types of errors for damaged files
            raise ItemrecError(
                f"{path} is not a training state that can be resumed, or it is damaged"
            ) from error


@torch.no_grad()
def put_weights(model: Model, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into the parameters of these names."""
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
