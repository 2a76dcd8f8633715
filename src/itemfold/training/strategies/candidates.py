"""The networks that a hybrid trains, and the settings that follow from the size of the data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from itemfold.data.splitting.split import Split
from itemfold.environment import pick_device
from itemfold.settings.resolve import Settings
from itemfold.settings.schema import Config
from itemfold.training.strategies.estimates import epoch_seconds
from itemfold.training.strategies.noise import has_few_users

MIN_STEPS = 16  # per epoch: the weights are averaged over about a hundred steps
MIN_BATCH, MAX_BATCH = 512, 32768  # interactions per step
DIM = {"cpu": 64, "cuda": 256}  # length of a vector
LARGE_DIM = 128  # on a CPU, for large sparse data, if the budget is long enough
LARGE_EPOCHS = 30  # of LARGE_DIM, in the selection and the refit together
LARGE = 500_000  # interactions above which a network started from an SVD needs many epochs
TYPICAL_EPOCHS = 20  # after an SVD, if too few users validate to select the epoch
NEGATIVES_GROUP = {"cpu": 512, "cuda": 4096}  # interactions that share their negatives
RANK_SCALE = 4096  # ranks within a smaller group are scaled to ranks among this many items
MAX_DENSE_ITEMS = {"cpu": 20_000, "cuda": 50_000}  # items in the dense form of the linear part
DENSE = 0.005  # minimum density of dense data


@dataclass(frozen=True)
class Candidate:
    """Settings of one network, by section; a section with a name replaces the requested one."""

    name: str
    settings: Config = field(default_factory=dict)

    def with_columns(self, columns: int) -> Candidate:
        """The same with vectors of another length."""
        model = self.settings["model"]
        wide = {**model, "gnn": {**model["gnn"], "dim": columns}}
        return replace(self, settings={**self.settings, "model": wide})


# On sparse data cosines are far better; on dense data either may be (docs/research).
INNER_PRODUCTS = Candidate(
    "inner products, uniform negatives",
    {
        "loss": {"tau": 1.5},
        "negatives": {"name": "uniform"},
        "train": {
            "batch_by": "users",
            "batch": 512,
            "similarity": "dot",
            "n_negatives": 200,
            "lr": 0.01,
            "l2": 0.003,
            "epochs": 1000,
            "eval_every": 20,
            "patience": 100,
        },
    },
)


def candidates(settings: Settings, split: Split) -> list[Candidate]:
    """The networks to train; a requested component is not replaced."""
    has_own_list = settings.is_given("loss") or settings.is_given("negatives")
    is_customised = has_own_list or settings.is_given("train.similarity")
    name = "as given" if is_customised else "cosines, negatives by popularity"
    cosines = Candidate(name, settings_from_data(settings, split))
    if settings.model.values["gnn"] in (None, "none"):
        return [Candidate("no network", cosines.settings)]
    fixed = any(map(settings.is_given, ("train.similarity", "train.batch_by", "train.batch")))
    on_cpu = pick_device(settings.train.device).type == "cpu"  # there it is not worth the time
    only_first = fixed or has_own_list or has_few_users(split.valid)
    if not is_dense(split) or on_cpu or only_first or not has_negatives_left(settings, split):
        return [cosines]
    config = settings.train
    train = INNER_PRODUCTS.settings["train"].items()
    open_settings = {k: v for k, v in train if not settings.is_given(f"train.{k}")}
    every, patience = open_settings.get("eval_every"), open_settings.get("patience")
    if every and not patience and config.patience:  # patience must not be below eval_every
        open_settings["eval_every"] = min(every, config.patience)
    if patience and not every:
        open_settings["patience"] = max(patience, config.eval_every)
    own = {"train": open_settings, "model": cosines.settings["model"]}
    return [cosines, Candidate(INNER_PRODUCTS.name, {**INNER_PRODUCTS.settings, **own})]


def is_dense(split: Split) -> bool:
    """Whether users have interacted with a large part of the catalogue."""
    return split.train.nnz >= DENSE * split.n_users * split.n_items


def is_large_sparse(split: Split) -> bool:
    """Whether the data is sparse, and a network takes long."""
    return split.train.nnz > LARGE and not is_dense(split)


def has_negatives_left(settings: Settings, split: Split) -> bool:
    """Whether every user has items left to draw negatives from, also in the refit."""
    train = (split.refit() if settings.refits(split) else split).train
    return int(np.diff(train.indptr).max(initial=0)) < train.shape[1]


def settings_from_data(settings: Settings, split: Split) -> Config:
    """Settings that follow from the size of the data and the device, except requested ones."""
    device = "cuda" if pick_device(settings.train.device).type == "cuda" else "cpu"
    gnn, linear = (settings.model.record()[name] for name in ("gnn", "linear"))
    network = _network_settings(gnn, settings, split, device)
    out: Config = {"model": {}}
    if network:
        out["model"]["gnn"] = network
    if of_linear := _linear_settings(linear, split, device):
        out["model"]["linear"] = of_linear
    batch, train = settings.train.batch, dict[str, Any]()
    if not settings.is_given("train.batch"):
        batch = 2 ** max(split.train.nnz // MIN_STEPS, 1).bit_length() // 2
        train["batch"] = batch = min(max(batch, MIN_BATCH), MAX_BATCH)
    complete = {**(gnn if isinstance(gnn, dict) else {}), **network}
    if str(complete.get("start")).startswith("svd"):
        train |= _training_after_svd(settings, split)
    if train:
        out["train"] = train
    if not settings.is_given("negatives"):
        group = NEGATIVES_GROUP[device]
        out["negatives"] = {"group": group}
        is_open = not settings.is_given("loss.name") and not settings.is_given("loss.scale")
        if "scale" in settings.loss.values and is_open:
            out["loss"] = {"scale": min(RANK_SCALE, batch) / min(group, batch)}
    return out


def _network_settings(gnn: Any, settings: Settings, split: Split, device: str) -> dict[str, Any]:
    """Vector length and initial vectors, if the network has these settings and leaves them open."""
    budget = settings.train.budget
    # on a GPU, epochs cost little: a random start with epochs selected on validation
    if device == "cuda" and not has_few_users(split.valid):
        defaults = {"dim": DIM["cuda"], "start": "random"}
    else:
        has_time = budget is None or budget >= LARGE_EPOCHS * epoch_seconds(split, LARGE_DIM)
        uses_large_dim = device == "cpu" and is_large_sparse(split) and has_time
        dim = LARGE_DIM if uses_large_dim else DIM["cpu"]
        start = "svd-even" if is_large_sparse(split) else "svd"
        defaults = {"dim": dim, "start": "svd-flat" if is_dense(split) else start}
    if not isinstance(gnn, dict):
        return {}
    return {name: value for name, value in defaults.items() if name in gnn and gnn[name] is None}


def _linear_settings(linear: Any, split: Split, device: str) -> dict[str, Any]:
    """The form of the linear part, or its number of items, if they are left open."""
    if not isinstance(linear, dict) or "items" not in linear or linear["items"] is not None:
        return {}
    if linear["form"] == "auto" and split.n_items > MAX_DENSE_ITEMS[device]:
        return {"form": "sparse"}
    if linear["form"] == "sparse":
        return {}
    return {"items": min(MAX_DENSE_ITEMS[device], split.n_items)}


def _training_after_svd(settings: Settings, split: Split) -> dict[str, Any]:
    """Learning rate, validations and patience of a network that starts from an SVD."""
    is_large = split.train.nnz > LARGE
    out = {"eval_every": 1, "patience": 4 if is_large else 2, "lr": 0.02 if is_large else 0.01}
    out |= {"min_gain": 0.001} if is_large else {}
    epochs = ("epochs", "eval_every", "patience")
    if has_few_users(split.valid) and not any(settings.is_given(f"train.{n}") for n in epochs):
        out |= dict.fromkeys(epochs, TYPICAL_EPOCHS)
    if settings.is_given("train.eval_every"):
        out["patience"] *= settings.train.eval_every  # patience is in epochs
    return {name: value for name, value in out.items() if not settings.is_given(f"train.{name}")}
