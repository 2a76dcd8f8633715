"""The schema: sections of a configuration, settings of training, and their defaults.

The signature of a component is its schema, so models, losses, samplers and splits declare their own
settings. This module imports no component, so help can show the defaults without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from inspect import cleandoc
from typing import Any, Literal, TypeVar

from itemfold.errors import ItemfoldError
from itemfold.validation import (
    at_least_zero,
    one_of,
    positive,
    positive_integers,
    share_below_one,
)

Config = dict[str, dict[str, Any]]  # settings by section, as in a run's config.toml

SECTIONS = ("data", "split", "model", "loss", "negatives", "train")
DEFAULTS = {"model": "hybrid", "loss": "item-ndcg", "negatives": "uniform"}
PROTOCOL = "transductive"
SPLIT_OF = {"transductive": "interactions", "inductive": "users"}  # default split of a protocol
PROTOCOL_OF = {strategy: protocol for protocol, strategy in SPLIT_OF.items()}

COUNTS = ("epochs", "batch", "positives", "n_negatives", "eval_every", "patience", "lr_patience")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training; each is an option of the command line and a key of a config file.

    Raises:
        ItemfoldError: A value is invalid.

    Examples:
        >>> import itemfold as ir
        >>> ir.TrainConfig(lr=0.005, ema_decay=0).batch_by
        'users'
        >>> ir.TrainConfig(lr=0)
        Traceback (most recent call last):
        itemfold.errors.ItemfoldError: 'lr' must be a positive number, got 0
    """

    epochs: int = _setting(1000, "maximum number of passes over the training users")
    lr: float = _setting(0.01, "learning rate of Adam")
    batch: int = _setting(2048, "users (or interactions) per step")
    batch_by: Literal["users", "interactions"] = _setting(
        "users", "unit of a batch: users or interactions"
    )
    positives: int = _setting(5, "positives per user in a list")
    n_negatives: int = _setting(1000, "negatives in a list")
    similarity: Literal["dot", "cosine"] = _setting("dot", "score in training; ranking uses dot")
    ema_decay: float = _setting(0.99, "decay of the moving average of weights; 0: no average")
    l2: float = _setting(0.0, "weight of the squared layer-0 vectors of a batch")
    eval_every: int = _setting(5, "epochs between validations")
    eval_early: int = _setting(0, "validate after each of this many first epochs")
    patience: int | None = _setting(
        None, "epochs without improvement on validation before stopping; default 150"
    )
    lr_plateau: float = _setting(
        1.0, "factor of the learning rate each time validation stops improving; 1: never"
    )
    lr_patience: int = _setting(
        1, "epochs without improvement on validation before the learning rate falls"
    )
    min_gain: float = _setting(0.0, "minimum relative gain on validation that resets patience")
    metric: str = _setting("ndcg@20", "metric that selects the epoch on validation")
    budget: float | None = _setting(
        None, "maximum seconds of training, refit included; default: no limit"
    )
    refit: bool = _setting(True, "transductive: train again on training + validation data")
    seed: int = _setting(0, "seed of initial weights, batches and negatives")
    device: str = _setting("auto", "cpu, cuda or auto")
    precision: Literal["auto", "full"] = _setting(
        "auto",
        "auto: bfloat16 neighbours on a GPU and in large graphs, and TF32 on a GPU",
    )
    save_seconds: float = _setting(30.0, "minimum seconds between two saved states")

    def __post_init__(self) -> None:
        for name in COUNTS:
            if (value := getattr(self, name)) is not None:
                positive_integers(**{name: value})
                if value >= 2**31:
                    raise ItemfoldError(f"'{name}' must be below 2^31, got {value}")
        positive(lr=self.lr, lr_plateau=self.lr_plateau)
        if self.lr_plateau > 1:
            raise ItemfoldError(f"'lr_plateau' must be at most 1, got {self.lr_plateau}")
        if self.eval_early:
            positive_integers(eval_early=self.eval_early)
        if self.budget is not None:
            positive(budget=self.budget)
        share_below_one(ema_decay=self.ema_decay)
        at_least_zero(l2=self.l2, min_gain=self.min_gain, save_seconds=self.save_seconds)
        one_of("batch_by", self.batch_by, ("users", "interactions"))
        one_of("similarity", self.similarity, ("dot", "cosine"))
        one_of("precision", self.precision, ("auto", "full"))
        if not 0 <= self.seed < 2**63:
            raise ItemfoldError(f"'seed' must be at least 0 and below 2^63, got {self.seed}")
        from itemfold.evaluation.metrics import FULL_METRICS, METRICS, parse_metric

        metric = parse_metric(self.metric)
        if metric.name not in (*METRICS, *FULL_METRICS):
            raise ItemfoldError(
                f"'metric' must be an accuracy metric, such as ndcg@20, got {self.metric!r}"
            )
        object.__setattr__(self, "metric", metric.key)  # "NDCG@20" is stored as ndcg@20
        if self.patience is not None and self.patience < self.eval_every:
            raise ItemfoldError(
                f"'patience' must be at least 'eval_every' ({self.eval_every}), "
                f"got {self.patience}: training would end before the first validation"
            )

    def validates_at(self, epoch: int) -> bool:
        """Whether to validate after an epoch: the first `eval_early`, then every `eval_every`."""
        return epoch <= self.eval_early or epoch % self.eval_every == 0


Documented = TypeVar("Documented")


def list_settings(thing: Documented) -> Documented:
    """Append the fields of `TrainConfig` to a docstring, so that ``help`` lists all settings."""
    lines = [
        f"    {f.name} ({f.type}, default {f.default!r}): {f.metadata['help']}"
        for f in fields(TrainConfig)
    ]
    thing.__doc__ = "\n".join([cleandoc(thing.__doc__ or ""), "", "Settings:", *lines])
    return thing


list_settings(TrainConfig)
