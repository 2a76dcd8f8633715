"""A run: a trained model with everything needed to evaluate it, use it and repeat it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
import scipy.sparse as sp

from itemrec.config_file import Config
from itemrec.data.interactions import IdMap
from itemrec.evaluation.evaluate import Evaluation
from itemrec.models.base import Model
from itemrec.training.plan import Plan
from itemrec.training.state import TrainState


@dataclass
class Run:
    """What training leaves behind. It is data; `RunFolder` reads and writes it."""

    model: Model
    config: Config  # data, split, model, loss, negatives, train
    protocol: str
    dataset: dict[str, Any]
    user_ids: IdMap
    item_ids: IdMap
    titles: npt.NDArray[Any] | None
    genres: npt.NDArray[Any] | None
    train: sp.csr_array  # what the model was trained on, [users, items]
    notes: tuple[str, ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    per_user: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Run:
        """A run that has not been trained yet."""
        split = plan.split
        return cls(
            model=plan.model,
            config=plan.record(),
            protocol=split.protocol,
            dataset=split.dataset,
            user_ids=split.user_ids,
            item_ids=split.item_ids,
            titles=split.titles,
            genres=split.genres,
            train=split.train,
            notes=split.notes,
        )

    def finish(self, train: sp.csr_array, state: TrainState, *, refit: bool) -> None:
        """Take over what training has found."""
        self.train, self.history = train, state.history
        self.metrics = {
            "dataset": self.dataset,
            "protocol": self.protocol,
            "model": self.config["model"]["name"],
            "loss": self.config["loss"]["name"],
            "negatives": self.config["negatives"]["name"],
            "seed": self.config["train"]["seed"],
            "best_epoch": state.best_epoch,
            "epochs": state.selected_epochs,
            "refit": refit,
            "notes": list(self.notes),
            "seconds": {"train": round(state.seconds, 3), "evaluate": 0.0},
            "valid": state.best_metrics,
            "test": {},
        }

    def add_evaluation(self, result: Evaluation, seconds: float) -> None:
        """Take over the test figures."""
        self.metrics["test"] = result.metrics
        self.metrics["users"] = {"judged": len(result.ids)}  # the file format's word
        self.metrics["seconds"]["evaluate"] = round(seconds, 3)
        self.per_user = {"user": result.ids, "history": result.history, **result.per_user}

    def save(self, folder: str | Path) -> None:
        """Write a run folder, see `RunFolder.save`."""
        from itemrec.training.run_folder import RunFolder

        RunFolder(folder).save(self)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Run:
        """Read a run folder, see `RunFolder.load`."""
        from itemrec.training.run_folder import RunFolder

        return RunFolder(folder).load(device)
