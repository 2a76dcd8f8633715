"""Half-lives of interactions: which ones to try, and popularity with each of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from itemfold.data.splitting.split import Split
from itemfold.data.weights import NEVER, half_life_seconds
from itemfold.models.popularity import log_popularity

OF_POPULARITY = ("1y", "90d", "30d", "7d", "2d", "12h", "3h", "1h")
OF_INTERACTIONS = ("1y", "90d", "30d")  # tastes change more slowly (docs/research)


def half_lives(split: Split, requested: str | None, tried: tuple[str, ...]) -> list[str]:
    """The half-lives to try, "never" first: the requested one, or all shorter than the data.

    A half-life can be selected only on a later validation period, not on a random part.
    """
    if requested is not None:
        return [requested]
    if split.times is None or not validates_later(split):
        return [NEVER]
    times = split.times.matrix.data
    span = float(np.ptp(times)) if len(times) else 0.0
    return [NEVER, *(each for each in tried if half_life_seconds(each) < span)]


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
