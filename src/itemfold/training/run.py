"""A run: a trained model with everything needed to evaluate it, use it and repeat it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Floats
from itemfold.data.interactions import IdMap
from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.splitting.split import Split
from itemfold.data.weights import is_weighted
from itemfold.evaluation.activity import activity_record
from itemfold.evaluation.evaluation import Evaluation
from itemfold.models.base import Model
from itemfold.settings.schema import Config
from itemfold.training.fitted import FittedModel


@dataclass(repr=False)
class Run:
    """The result of training: the model and everything needed to evaluate, use and repeat it.

    Attributes:
        model: The trained model.
        config: The complete settings: sections data, split, model, loss, negatives and train.
        protocol: "transductive" or "inductive".
        dataset: Name, fingerprint and counts of the data.
        user_ids: External ids of the training users.
        item_ids: External ids of the items.
        titles: Title of each item, or None.
        genres: Genres of each item, or None.
        interactions: The training interactions, ones or weights, `[users, items]`.
        notes: Notes on the data and on training.
        history: One entry per validation.
        metrics: The content of `metrics.json`.
        per_user: Per-user test metrics.
        features: Features of items, also of items without interactions, or None.
        sources: The source of each setting, such as "train.lr": "option"; empty if loaded.
        times: Seconds of each interaction, aligned with the entries of `interactions`, or None.

    Examples:
        >>> import itemfold as ir
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
    interactions: sp.csr_array  # the training interactions, [users, items]
    notes: tuple[str, ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    per_user: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    features: ItemFeatures | None = None
    sources: dict[str, str] = field(default_factory=dict)
    times: Floats | None = None

    def __repr__(self) -> str:
        name, test = self.config["model"]["name"], self.metrics.get("test", {})
        figures = "".join(f", {key} {value:.4f}" for key, value in test.items() if "ndcg" in key)
        return f"Run({name} on {self.dataset.get('name')!r}, {self.protocol}{figures})"

    @property
    def train(self) -> sp.csr_array:
        """`interactions`, under its name in release 0.2."""
        return self.interactions

    @classmethod
    def of(cls, fitted: FittedModel, split: Split) -> Run:
        """The run of a fitted model, before its test users are evaluated.

        Args:
            fitted: A trained model, and how it was trained.
            split: The data; after a refit, the refitted split.

        Returns:
            A run without test metrics.
        """
        config = fitted.settings.record()
        notes = (*split.notes, *_weight_notes(fitted.model, split), *fitted.notes)
        return cls(
            model=fitted.model,
            config=config,
            protocol=split.protocol,
            dataset=split.dataset,
            user_ids=split.user_ids,
            item_ids=split.item_ids,
            titles=split.titles,
            genres=split.genres,
            interactions=fitted.train,
            notes=notes,
            history=fitted.history,
            features=split.features,
            sources=fitted.settings.sources,
            times=_times(split, fitted.train),
            metrics={
                "dataset": split.dataset,
                "protocol": split.protocol,
                "model": config["model"]["name"],
                "loss": config["loss"]["name"],
                "negatives": config["negatives"]["name"],
                "seed": config["train"]["seed"],
                "best_epoch": fitted.best_epoch,
                "epochs": fitted.epochs,
                "refit": fitted.refit,
                "notes": list(notes),
                "chosen": json.loads(json.dumps(fitted.chosen)),  # lists, as in the file
                "trials": fitted.trials,
                "candidates": fitted.candidates,
                "alone": fitted.alone,
                "complete": fitted.complete,
                "seconds": {"train": round(fitted.seconds, 3), "evaluate": 0.0},
                "valid": fitted.valid,
                "test": {},
            },
        )

    def add_evaluation(self, result: Evaluation, seconds: float) -> None:
        """Store the test metrics; called by `train`.

        Args:
            result: The result of `evaluate`.
            seconds: How long the evaluation took.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> run = ir.train(split, ir.models.Popularity())
            >>> run.add_evaluation(ir.evaluate(run, split, k=5), seconds=0.1)
            >>> "ndcg@5" in run.metrics["test"]
            True
        """
        self.metrics["test"] = result.metrics
        self.metrics["users"] = {"judged": len(result.ids)}  # the key in the file format
        self.metrics["seconds"]["evaluate"] = round(seconds, 3)
        self.per_user = result.columns
        self.metrics["activity"] = activity_record(result.activity)

    def save(self, folder: str | Path) -> None:
        """Write a run folder. Each file is complete or absent; `metrics.json` is written last.

        Args:
            folder: The folder; it is created if necessary.

        Raises:
            ItemfoldError: The path is a file.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> folder = Path(tempfile.mkdtemp()) / "run"
            >>> ir.train(split, ir.models.Popularity()).save(folder)
            >>> (folder / "metrics.json").exists()
            True
        """
        from itemfold.training.run_folder import RunFolder

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
            ItemfoldError: The tracker is unknown or not installed.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> ir.train(split, ir.models.Popularity()).track("paper", "runs/first")
            Traceback (most recent call last):
            itemfold.errors.ItemfoldError: 'track' must be mlflow or tensorboard, got 'paper'
        """
        from itemfold.training.tracking import track_run

        return track_run(self, to, folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Run:
        """Load a run folder; loading never executes code from it.

        Args:
            folder: The folder of a finished run.
            device: "cpu", "cuda" or "auto".

        Returns:
            The run as it was saved.

        Raises:
            ItemfoldError: The folder is missing, incomplete or damaged, or its model is unknown.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> folder = Path(tempfile.mkdtemp()) / "run"
            >>> ir.train(split, ir.models.Popularity()).save(folder)
            >>> ir.Run.load(folder).metrics["model"]
            'popularity'
        """
        from itemfold.training.run_folder import RunFolder

        return RunFolder(folder).load(device)


def _times(split: Split, train: sp.csr_array) -> Floats | None:
    """The times of the training interactions, or None if some have no time."""
    if split.times is None or not split.times.has(train, split.user_ids):
        return None
    return split.times.of(train, split.user_ids)


# The effect of interaction weights on a model, by `Model.weighs`.
WEIGHT_EFFECTS = {
    "graph": "a message counts by its weight, and is normalised by sums of weights",
    "loss": "an interaction is drawn for the loss in proportion to its weight",
    "linear": "the linear model is fitted to weights instead of ones",
    "counts": "popularity is a sum of weights",
}


def _weight_notes(model: Model, split: Split) -> list[str]:
    """A note on the effect of interaction weights, if there are any."""
    if not is_weighted(split.train):
        return []
    return [
        f"What the weights change: {'; '.join(WEIGHT_EFFECTS[effect] for effect in model.weighs)}."
    ]
