"""Half-lives of interactions: which ones to try, and popularity with each of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from itemfold.data.array_types import Floats
from itemfold.data.csr import row_of_entry
from itemfold.data.splitting.split import Split
from itemfold.data.weights import NEVER, fading, half_life_seconds
from itemfold.models.popularity import log_popularity

OF_POPULARITY = ("1y", "90d", "30d", "7d", "2d", "12h", "3h", "1h")
OF_INTERACTIONS = ("1y", "90d", "30d")  # tastes change more slowly (docs/research)
MIN_USERS = 20  # who must share the weight that a half-life leaves: fewer are no popularity


def half_lives(split: Split, requested: str | None, tried: tuple[str, ...]) -> list[str]:
    """The half-lives to try, "never" first: the requested one, or all that the data supports.

    They are shorter than the data and leave enough users. A half-life can be selected only on a
    later validation period, not on a random part.
    """
    if requested is not None:
        return [requested]
    if split.times is None or not validates_later(split):
        return [NEVER]
    times = split.times.matrix.data
    span = float(np.ptp(times)) if len(times) else 0.0
    shorter = [each for each in tried if half_life_seconds(each) < span]
    trained = split.times.of(split.train, split.user_ids)
    age = trained.max() - trained
    return [NEVER, *(each for each in shorter if effective_users(split, age, each) >= MIN_USERS)]


def effective_users(split: Split, age: Floats, half_life: str) -> float:
    """How many users share the weight of the training interactions, by Kish's formula.

    Args:
        split: A split; its training interactions count alike before they decay.
        age: Seconds by which each is older than the newest, aligned with ``split.train.data``.
        half_life: How fast they decay.
    """
    weight = np.bincount(row_of_entry(split.train), fading(age, half_life))
    return float(weight.sum() ** 2 / np.square(weight).sum())


def validates_later(split: Split) -> bool:
    """Whether no validation target is older than the newest training interaction."""
    valid, times = split.valid, split.times
    if valid is None or times is None or not valid.target.nnz or not split.train.nnz:
        return False
    newest = float(times.of(split.train, split.user_ids).max())
    return float(times.of(valid.target, valid.ids).min()) >= newest


def popularities(split: Split, tried: list[str], device: torch.device) -> dict[str, Tensor]:
    """Standardised log popularity of the items by half-life, ``[items]`` each."""
    return {each: log_popularity(split.recent(each).train, device)[0] for each in tried}
