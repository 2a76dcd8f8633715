"""Everything that one training run needs, with all defaults resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from itemrec import ranks
from itemrec.config_file import Config
from itemrec.data.split import Split
from itemrec.data.weights import is_weighted
from itemrec.environment import memory_of, pick_device
from itemrec.errors import ItemrecError
from itemrec.losses import LOSSES, bind, unbind
from itemrec.models import MODELS
from itemrec.models.base import Kind, Model
from itemrec.sampling import NEGATIVES, Sampler
from itemrec.sampling.exact import check_negatives_left
from itemrec.training.config import TrainConfig

# Training settings that a hybrid chooses if they are not given.
OPEN = (
    *("batch", "batch_by", "lr", "l2", "similarity", "n_negatives"),
    *("epochs", "eval_every", "patience"),
)

# What weights of interactions change in a model, by `Model.weighs`.
USES = {
    "graph": "a message counts by its weight, and is normalised by sums of weights",
    "loss": "an interaction is drawn for the loss in proportion to its weight",
    "linear": "the linear model is fitted to weights instead of ones",
    "counts": "popularity is a sum of weights",
}


COPIES = 4  # of each weight in training: itself, its gradient and Adam's two moments


@dataclass(frozen=True)
class Plan:
    """The components of one training run and its complete settings."""

    split: Split
    model: Model
    loss: Callable[..., Tensor]
    sampler: Sampler
    config: TrainConfig
    given: frozenset[str] = frozenset()  # settings that were asked for, such as "train.lr"

    @property
    def refits(self) -> bool:
        """Whether the model is trained again on training and validation data together."""
        return (
            self.config.refit
            and self.split.protocol == "transductive"
            and self.split.valid is not None
        )

    @property
    def is_weighted(self) -> bool:
        """Whether the training interactions have weights."""
        return is_weighted(self.split.train)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the data, and about what its weights change in the model."""
        if not self.is_weighted:
            return self.split.notes
        uses = "; ".join(USES[use] for use in self.model.weighs)
        return (*self.split.notes, f"What the weights change: {uses}.")

    def as_asked(self) -> Config:
        """`record` without the settings that a hybrid still has to choose."""
        out = self.record()
        if self.model.kind is Kind.HYBRID:
            for section in ("loss", "negatives"):
                if not any(key.startswith(f"{section}.") for key in self.given):
                    out[section] = {}
            for name in OPEN:
                if f"train.{name}" not in self.given:
                    out["train"].pop(name, None)
        return out

    def check(self) -> None:
        """Reject invalid combinations before anything is written or trained."""
        check_memory(self.model, self.split, pick_device(self.config.device))
        self.split.check()
        if self.is_weighted:
            self.model.check_weights()
        if self.split.protocol == "inductive":
            self.model.check_inductive()
        if self.refits and self.model.kind.has_lists and self.sampler.draws:
            # now, not after selection
            check_negatives_left(self.split.n_items - np.diff(self.split.refit().train.indptr))

    def record(self) -> Config:
        """The configuration that reproduces this plan, as stored in ``config.toml``."""
        sampler = {field.name: getattr(self.sampler, field.name) for field in fields(self.sampler)}  # type: ignore[arg-type]
        lists = self.model.kind.has_lists
        return {
            "data": dict(self.split.source),
            "split": dict(self.split.settings),
            "model": _named(MODELS, type(self.model), self.model.settings),
            "loss": _named(LOSSES, *unbind(self.loss)) if lists else {"name": "none"},
            "negatives": _named(NEGATIVES, type(self.sampler), sampler)
            if lists
            else {"name": "none"},
            "train": {
                field.name: getattr(self.config, field.name) for field in fields(self.config)
            },
        }


def default_parts(model: Model) -> tuple[Callable[..., Tensor], Sampler]:
    """The loss and the sampler that a model is trained with if none is given."""
    settings = model.default_settings
    loss = bind(LOSSES[model.default_loss], settings.get("loss", {}))
    return loss, NEGATIVES[model.default_negatives](**settings.get("negatives", {}))


def check_memory(model: Model, split: Split, device: torch.device) -> None:
    """Raise if the embeddings of a model need more memory than there is.

    This is a lower bound: a model below it may still be too large.
    """
    dim = model.settings.get("dim")
    if not isinstance(dim, int):
        return
    rows = split.n_items + (split.n_users if split.protocol == "transductive" else 0)
    copies = 1 if model.kind is Kind.CLOSED_FORM else COPIES
    needed, available = 4 * copies * rows * dim // ranks.size(), memory_of(device)
    if needed > available:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemrecError(
            f"'dim' must be smaller: {rows:,} rows of {dim:,} numbers need at least "
            f"{needed / 2**30:,.0f} GiB in training; {where} has {available / 2**30:,.0f} GiB"
        )


def check_epochs_known(split: Split, model: Model, given: Mapping[str, Any]) -> None:
    """Without held-out data the number of epochs cannot be selected and must be given."""
    blind = split.valid is None and not len(split.test)
    if blind and "epochs" not in given and model.kind is not Kind.CLOSED_FORM:
        raise ItemrecError("'epochs' must be given if nothing is held out to select it on")


def _named(table: Mapping[str, Any], component: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A component as a config section: its name in the table and its settings."""
    for name, entry in table.items():
        if entry is component:
            return {"name": name, **settings}
    return {"name": component.__name__, **settings}
