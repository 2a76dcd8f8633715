"""The networks that a hybrid tries, and the settings that follow from the size of the data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from itemfold.data.splitting.split import Split
from itemfold.environment import pick_device
from itemfold.settings.resolve import Settings
from itemfold.settings.schema import Config
from itemfold.training.strategies.noise import has_few

STEPS = 16  # of an epoch, at least: weights are averaged over about a hundred steps
SMALLEST, LARGEST = 512, 32768  # interactions in a step
WIDTH = {"cpu": 64, "cuda": 256}  # length of a vector
WIDE, LONG = 128, 600.0  # on a CPU, of large sparse data and without a budget below so many seconds
LARGE = 500_000  # interactions from which a network needs more than a few epochs after an SVD
TYPICAL_EPOCHS = 20  # after an SVD, if too few users validate to choose them
SHARED = {"cpu": 512, "cuda": 4096}  # interactions that share their negatives
COUNTED = 4096  # ranks within a smaller group are scaled to those among as many
COVERED = {"cpu": 20_000, "cuda": 50_000}  # items of the linear part at most
DENSE = 0.005  # density of interactions from which data is dense


@dataclass(frozen=True)
class Candidate:
    """Settings of the network, by section; a section with a name replaces the given one."""

    name: str
    settings: Config = field(default_factory=dict)


# On sparse data cosines are better by far, on dense data either may be (docs/research).
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
    """The networks that are trained; a component that was asked for is not replaced."""
    own_list = settings.is_given("loss") or settings.is_given("negatives")
    is_own = own_list or settings.is_given("train.similarity")
    name = "as given" if is_own else "cosines, negatives by popularity"
    cosines = Candidate(name, by_data(settings, split))
    if settings.model.values["gnn"] in (None, "none"):
        return [Candidate("no network", cosines.settings)]
    fixed = any(map(settings.is_given, ("train.similarity", "train.batch_by", "train.batch")))
    density = split.train.nnz / (split.n_users * split.n_items)
    on_cpu = pick_device(settings.train.device).type == "cpu"  # there it is not worth its time
    is_alone = fixed or own_list or has_few(split.valid)
    if density < DENSE or on_cpu or is_alone or not can_draw(settings, split):
        return [cosines]
    config = settings.train
    train = INNER_PRODUCTS.settings["train"].items()
    open_settings = {k: v for k, v in train if not settings.is_given(f"train.{k}")}
    every, patience = open_settings.get("eval_every"), open_settings.get("patience")
    if every and not patience and config.patience:  # the one that is open follows the other
        open_settings["eval_every"] = min(every, config.patience)
    if patience and not every:
        open_settings["patience"] = max(patience, config.eval_every)
    own = {"train": open_settings, "model": cosines.settings["model"]}
    return [cosines, Candidate(INNER_PRODUCTS.name, {**INNER_PRODUCTS.settings, **own})]


def can_draw(settings: Settings, split: Split) -> bool:
    """Whether every user has items to draw negatives from, in the refit, too."""
    train = (split.refit() if settings.refits(split) else split).train
    return int(np.diff(train.indptr).max(initial=0)) < train.shape[1]


def by_data(settings: Settings, split: Split) -> Config:
    """Settings that follow from the size of the data and the device, unless they were given."""
    device = "cuda" if pick_device(settings.train.device).type == "cuda" else "cpu"
    out: Config = {"model": {}}
    gnn, linear = (settings.model.record()[name] for name in ("gnn", "linear"))
    is_dense = split.train.nnz >= DENSE * split.n_users * split.n_items
    start = "svd-flat" if is_dense else "svd"
    is_quick = device == "cuda" and not has_few(split.valid)  # epochs cost little: they are chosen
    start = "random" if is_quick else start
    is_large, budget = split.train.nnz > LARGE, settings.train.budget
    is_wide = device == "cpu" and is_large and not is_dense and (budget is None or budget >= LONG)
    width = WIDE if is_wide else WIDTH["cuda" if is_quick else "cpu"]
    typical = {"dim": width, "start": start}
    if isinstance(gnn, dict) and (names := [n for n in typical if n in gnn and gnn[n] is None]):
        out["model"]["gnn"] = {name: typical[name] for name in names}
    if isinstance(linear, dict) and "items" in linear and linear["items"] is None:
        if linear["form"] == "auto" and split.n_items > COVERED[device]:
            out["model"]["linear"] = {"form": "sparse"}
        elif linear["form"] != "sparse":
            out["model"]["linear"] = {"items": min(COVERED[device], split.n_items)}
    train, batch = {}, settings.train.batch
    if not settings.is_given("train.batch"):
        batch = 2 ** max(split.train.nnz // STEPS, 1).bit_length() // 2
        train["batch"] = batch = min(max(batch, SMALLEST), LARGEST)
    made = {**(gnn if isinstance(gnn, dict) else {}), **out["model"].get("gnn", {})}
    if str(made.get("start")).startswith("svd"):
        pace = {"eval_every": 1, "patience": 4 if is_large else 2, "lr": 0.02 if is_large else 0.01}
        pace |= {"min_gain": 0.001} if is_large else {}
        paces = ("epochs", "eval_every", "patience")
        if has_few(split.valid) and not any(settings.is_given(f"train.{name}") for name in paces):
            pace |= dict.fromkeys(paces, TYPICAL_EPOCHS)
        if settings.is_given("train.eval_every"):
            pace["patience"] *= settings.train.eval_every  # it is counted in epochs
        train |= {
            name: value for name, value in pace.items() if not settings.is_given(f"train.{name}")
        }
    if train:
        out["train"] = train
    if not settings.is_given("negatives"):
        group = SHARED[device]
        out["negatives"] = {"group": group}
        is_open = not settings.is_given("loss.name") and not settings.is_given("loss.scale")
        if "scale" in settings.loss.values and is_open:
            out["loss"] = {"scale": min(COUNTED, batch) / min(group, batch)}
    return out
