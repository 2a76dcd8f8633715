"""A run: a trained model with everything needed to evaluate it, use it and repeat it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
import scipy.sparse as sp

from itemrec.config_file import Config
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import ItemFeatures
from itemrec.evaluation.evaluate import Evaluation
from itemrec.models.base import Model
from itemrec.training.plan import Plan
from itemrec.training.state import TrainState


@dataclass(repr=False)
class Run:
    """The result of training: the model and everything needed to evaluate, use and repeat it.

    Attributes:
        model: The trained model.
        config: Its complete settings: sections data, split, model, loss, negatives and train.
        protocol: "transductive" or "inductive".
        dataset: Name, fingerprint and counts of the data.
        user_ids: External ids of the training users.
        item_ids: External ids of the items.
        titles: Title of each item, or None.
        genres: Genres of each item, or None.
        train: The interactions that the model was trained on, ones or weights, `[users, items]`.
        notes: Sentences about what was left out of the data.
        history: One entry per validation.
        metrics: The content of `metrics.json`.
        per_user: Per-user test metrics.
        asked: The settings before the run chose those that were left open.
        features: Features of items, also of items without interactions, or None.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.LightGCN(dim=8), epochs=2, eval_every=1)
        >>> run.metrics["loss"], len(run.history)
        ('item-ndcg', 2)
    """

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
    asked: Config = field(default_factory=dict)
    features: ItemFeatures | None = None

    def __repr__(self) -> str:
        name, test = self.config["model"]["name"], self.metrics.get("test", {})
        figures = "".join(f", {key} {value:.4f}" for key, value in test.items() if "ndcg" in key)
        return f"Run({name} on {self.dataset.get('name')!r}, {self.protocol}{figures})"

    @classmethod
    def of(cls, plan: Plan) -> Run:
        """A run that has not been trained yet.

        Args:
            plan: The components of the run and its complete settings.

        Returns:
            A run with neither history nor metrics.

        Examples:
            >>> from itemrec.training.plan import Plan
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> sampler, settings = ir.negatives.Uniform(), ir.TrainConfig()
            >>> plan = Plan(split, ir.models.LightGCN(), ir.losses.bpr, sampler, settings)
            >>> ir.Run.of(plan).config["loss"]
            {'name': 'bpr'}
        """
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
            notes=plan.notes,
            asked=plan.as_asked(),
            features=split.features,
        )

    def finish(self, train: sp.csr_array, state: TrainState, *, refit: bool) -> None:
        """Store the outcome of training; called by `train`.

        Args:
            train: The interactions that the final model was trained on.
            state: The training state after the last epoch.
            refit: Whether validation data was included.

        Examples:
            >>> from itemrec.training.state import TrainState
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> run = ir.train(split, ir.models.Popularity())
            >>> run.finish(split.train, TrainState(), refit=False)
            >>> run.metrics["test"]  # to be evaluated again
            {}
        """
        self.train, self.history = train, state.history
        if state.first_look_won:
            self.notes = (*self.notes, first_look_note(state.best_epoch))
        for section, settings in state.chosen.items():  # the run repeats itself without choosing
            kept = {} if "name" in settings else self.config[section]
            self.config[section] = {**kept, **settings}
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
            "chosen": json.loads(json.dumps(state.chosen)),  # lists, as in the file
            "trials": state.trials,
            "candidates": state.finished,
            "seconds": {"train": round(state.seconds, 3), "evaluate": 0.0},
            "valid": state.best_metrics,
            "test": {},
        }

    def add_evaluation(self, result: Evaluation, seconds: float) -> None:
        """Store the test metrics; called by `train`.

        Args:
            result: The result of `evaluate`.
            seconds: How long the evaluation took.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> run = ir.train(split, ir.models.Popularity())
            >>> run.add_evaluation(ir.evaluate(run, split, k=5), seconds=0.1)
            >>> "ndcg@5" in run.metrics["test"]
            True
        """
        self.metrics["test"] = result.metrics
        self.metrics["users"] = {"judged": len(result.ids)}  # the key in the file format
        self.metrics["seconds"]["evaluate"] = round(seconds, 3)
        self.per_user = {"user": result.ids, "history": result.history, **result.per_user}

    def save(self, folder: str | Path) -> None:
        """Write a run folder. Each file is complete or absent; `metrics.json` is written last.

        Args:
            folder: The folder; it is created if necessary.

        Raises:
            ItemrecError: The path is a file.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> folder = Path(tempfile.mkdtemp()) / "run"
            >>> ir.train(split, ir.models.Popularity()).save(folder)
            >>> (folder / "metrics.json").exists()
            True
        """
        from itemrec.training.run_folder import RunFolder

        RunFolder(folder).save(self)

    def track(self, to: str, folder: str | Path) -> str:
        """Write settings, curves and final metrics to an experiment tracker.

        Args:
            to: "mlflow" (where its `MLFLOW_TRACKING_URI` points to) or "tensorboard" (into the
                subfolder `tensorboard`).
            folder: The run folder; its name is the name of the run.

        Returns:
            Where they were written.

        Raises:
            ItemrecError: The tracker is unknown or not installed.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> ir.train(split, ir.models.Popularity()).track("paper", "runs/first")
            Traceback (most recent call last):
            itemrec.errors.ItemrecError: 'track' must be mlflow or tensorboard, got 'paper'
        """
        from itemrec.training.tracking import track_run

        return track_run(self, to, folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Run:
        """Load a run folder; nothing in it is ever executed.

        Args:
            folder: The folder of a finished run.
            device: "cpu", "cuda" or "auto".

        Returns:
            The run as it was saved.

        Raises:
            ItemrecError: The folder is missing, incomplete or damaged, or its model is unknown.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> folder = Path(tempfile.mkdtemp()) / "run"
            >>> ir.train(split, ir.models.Popularity()).save(folder)
            >>> ir.Run.load(folder).metrics["model"]
            'popularity'
        """
        from itemrec.training.run_folder import RunFolder

        return RunFolder(folder).load(device)


def first_look_note(epoch: int) -> str:
    """What to say if the first validation was the best one."""
    return (
        f"The first validation, after epoch {epoch}, was the best: look earlier (train.eval_early) "
        "or lower train.lr, since a better epoch may have been passed over."
    )
