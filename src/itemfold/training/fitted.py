"""What training takes besides settings and data, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from itemfold.models.base import Model
from itemfold.settings.resolve import Settings
from itemfold.training.deadline import Deadline

if TYPE_CHECKING:
    from itemfold.training.run_folder import RunFolder


@dataclass(frozen=True)
class Context:
    """What training takes besides settings and data.

    Attributes:
        folder: Where the state of training is saved.
        progress: Whether progress is shown.
        deadline: The time that is left.
        on_stage: Called with a model that can be used while training goes on, and its name.
    """

    folder: RunFolder | None = None
    progress: bool = False
    deadline: Deadline = field(default_factory=Deadline)
    on_stage: Callable[[FittedModel, str], None] | None = None


@dataclass(frozen=True)
class FittedModel:
    """A trained model, and how it was trained.

    Attributes:
        model: The model, ready to score.
        settings: Its complete settings, with what was chosen.
        train: The interactions that it was trained on.
        refit: Whether validation data was among them.
        seconds: Seconds of training.
        best_epoch: The epoch that was selected.
        epochs: Epochs of the selection.
        valid: Metrics on validation.
        history: One entry per validation.
        chosen: Settings that were left open, with the values they got.
        trials: Settings that were tried for a closed form, with their metric.
        candidates: Networks that were trained, with their metric.
        alone: The metric of each part alone on validation.
        parts: Models that it is made of, by name, to be compared with it on test.
        complete: Whether training ended by itself; otherwise it can be resumed.
        notes: Sentences about training.
    """

    model: Model
    settings: Settings
    train: sp.csr_array
    refit: bool
    seconds: float
    best_epoch: int = 0
    epochs: int = 0
    valid: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    alone: dict[str, float] = field(default_factory=dict)
    parts: dict[str, Model] = field(default_factory=dict)
    complete: bool = True
    notes: tuple[str, ...] = ()
