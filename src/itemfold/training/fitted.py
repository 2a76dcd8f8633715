"""The context of training, and its result."""

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
    """The environment of a training: folder, progress, time.

    Attributes:
        folder: Where the state of training is saved.
        progress: Whether to show progress.
        deadline: The time left.
        on_stage: Called with the usable model of each stage and the name of the stage.
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
        settings: The complete settings, including selected ones.
        train: The interactions that the model was trained on.
        refit: Whether these include the validation data.
        seconds: Seconds of training.
        best_epoch: The selected epoch.
        epochs: Epochs trained to select it.
        valid: Metrics on validation.
        history: One entry per validation.
        chosen: Values selected for settings that were left open.
        trials: Settings tried for a closed form, with their metrics.
        candidates: Networks trained, with their metrics.
        alone: The validation metric of each part alone.
        parts: The parts of the model by name, to compare with it on test.
        complete: Whether training ran to its end; otherwise it can be resumed.
        notes: Notes on training.
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
