"""Estimated seconds of the parts of a hybrid on two cores, by which a budget is divided.

Constants are fits to the measurements in docs/research; on other machines they are only as good as
their ratio to each other. A GPU takes a small part of the time.
"""

from __future__ import annotations

import numpy as np
import torch

from itemfold.data.splitting.split import Split
from itemfold.models.ease import NEIGHBOURS
from itemfold.models.hybrid_settings import make_part
from itemfold.settings.resolve import Settings

SETUP_SECONDS = 0.05
SECONDS_PER_CUBE = 1.8e-11  # of the dense form, × items² × min(items, users)
SECONDS_PER_ITEM = 3e-5  # of the sparse form
SECONDS_PER_NEIGHBOUR = 4.5e-8  # of the sparse form, × interactions × neighbours
SECONDS_PER_SYSTEM = 1e-11  # of the sparse form, × items × neighbours³
TRIALS, TRIAL_ITEMS, SECONDS_PER_COUNT = 12, 2048, 3e-7  # settings compared on popular items
START_SECONDS = 0.4  # of an SVD, and of the sum with a network from it
START_PER_INTERACTION = 9e-9  # × interactions × columns
SECONDS_PER_PRODUCT = 2e-11  # of scores by a network, × users × items × columns
EPOCH_SECONDS = 7e-8  # × interactions × columns
GPU_SPEED = {"inverses": 250.0, "epochs": 70.0, "other": 20.0}  # × that of two cores (H200)
SOME_NEIGHBOURS = (NEIGHBOURS, 100, 50, 30)  # of the sparse form; fewer are much worse
SOME_COLUMNS = (256, 128, 64)  # of a network that stays as it starts
COLUMNS = 64  # of others


def dense_seconds(split: Split) -> float:
    """One dense fit of the linear part."""
    return SETUP_SECONDS + _dense(split.n_items, split.n_users)


def sparse_seconds(split: Split, neighbours: int) -> float:
    """One sparse fit of the linear part."""
    of_items = (SECONDS_PER_ITEM + SECONDS_PER_SYSTEM * neighbours**3) * split.n_items
    return SETUP_SECONDS + of_items + SECONDS_PER_NEIGHBOUR * split.train.nnz * neighbours


def linear_seconds(settings: Settings, split: Split) -> float:
    """One fit of the linear part in its form."""
    linear, _ = make_part("linear", settings.model.values["linear"], "rlae")
    if linear is None:
        return 0.0
    if getattr(linear, "form", "") == "sparse":
        return sparse_seconds(split, getattr(linear, "neighbours", NEIGHBOURS))
    return dense_seconds(split)


def selection_seconds(split: Split) -> float:
    """The comparison of all settings of the linear part."""
    trial = _dense(min(split.n_items, TRIAL_ITEMS), split.n_users)
    return TRIALS * (SETUP_SECONDS + trial + SECONDS_PER_COUNT * split.train.nnz)


def most_neighbours(split: Split, seconds: float) -> int:
    """The most neighbours with which a sparse fit takes at most so long; at least a few."""
    fits = [k for k in SOME_NEIGHBOURS if sparse_seconds(split, k) <= seconds]
    return fits[0] if fits else SOME_NEIGHBOURS[-1]


def start_seconds(split: Split, columns: int = COLUMNS) -> float:
    """A network as it starts from the SVD, scored on validation."""
    return START_SECONDS + START_PER_INTERACTION * split.train.nnz * columns


def epoch_seconds(split: Split, columns: int = COLUMNS) -> float:
    """One epoch of the network."""
    return EPOCH_SECONDS * split.train.nnz * columns


def columns_of(settings: Settings) -> int:
    """The length of the network's vectors."""
    gnn, _ = make_part("gnn", settings.model.values["gnn"], "lightgcn")
    return 0 if gnn is None else getattr(gnn, "dim", None) or COLUMNS


def most_columns(split: Split, seconds: float) -> int:
    """The most columns with which two starts of a network and its test take at most so long."""
    scores = SECONDS_PER_PRODUCT * len(split.test) * split.n_items
    fits = [n for n in SOME_COLUMNS if 2 * start_seconds(split, n) + scores * n <= seconds]
    return fits[0] if fits else SOME_COLUMNS[-1]


def item_pairs(split: Split) -> int:
    """Number of item pairs in all histories, which sets the cost of item neighbours."""
    return int(np.square(np.diff(split.train.indptr).astype(np.int64)).sum())


def speed_of(device: torch.device, work: str = "other") -> float:
    """How many times as fast as two cores a device does some work, about."""
    return GPU_SPEED[work] if device.type == "cuda" else 1.0


def _dense(items: int, users: int) -> float:
    return SECONDS_PER_CUBE * items**2 * min(items, users)
