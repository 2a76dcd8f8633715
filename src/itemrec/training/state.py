"""The training state: with the learner's tensors, everything that an exact resume needs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.files import atomic, check_zip
from itemrec.models.base import Model
from itemrec.training.learner import Learner

TENSORS = ("model", "optimizer", "generator", "average", "best")
FACTS = (
    *("data", "phase", "epoch", "best_epoch", "best_value", "best_metrics"),
    *("selected_epochs", "seconds", "history"),
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
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)  # as loaded, until restored
    saved_at: float = field(default_factory=time.monotonic)

    def record(
        self, loss: float, metrics: dict[str, float], metric: str, model: Model | None = None
    ) -> None:
        """Record one validation, and the weights if they are the best so far."""
        self.history.append(
            {"epoch": self.epoch, "loss": loss, "seconds": round(self.seconds, 3), **metrics}
        )
        if metrics[metric] > self.best_value:
            self.best_epoch, self.best_value = self.epoch, metrics[metric]
            self.best_metrics = metrics
            if model is not None:
                self.best_weights = {k: v.detach().clone() for k, v in model.named_parameters()}

    def begin_refit(self) -> None:
        """Selection is over: the refit starts from scratch for the selected number of epochs."""
        self.phase, self.selected_epochs, self.epoch, self.best_weights = "refit", self.epoch, 0, {}

    def restore(self, learner: Learner) -> None:
        """Continue from loaded tensors, once."""
        if self.tensors:
            learner.load(self.tensors)
            best = self.tensors["best"]
            self.best_weights = {name: value.to(learner.device) for name, value in best.items()}
            self.tensors = {}

    def restore_best(self, model: Model) -> None:
        """Put the best weights back."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in self.best_weights:
                    parameter.copy_(self.best_weights[name])

    def save(self, path: Path, learner: Learner) -> None:
        """Write ``state.pt``, complete or not at all."""
        facts = {name: getattr(self, name) for name in FACTS}
        with atomic(path) as draft, draft.open("wb") as file:  # its errors say why a write failed
            torch.save({**facts, **learner.tensors(), "best": self.best_weights}, file)
        self.saved_at = time.monotonic()

    @classmethod
    def load(cls, path: Path) -> TrainState:
        """Read ``state.pt``: tensors and plain values only."""
        try:
            check_zip(path)  # torch does not
            content = torch.load(path, map_location="cpu", weights_only=True)
            tensors = {name: content.pop(name) for name in TENSORS}
            return cls(tensors=tensors, **content)
        except Exception as error:  # torch raises many types of errors for damaged files
            raise ItemrecError(
                f"{path} is not a training state that can be resumed, or it is damaged"
            ) from error
