"""Recency in an update: weights by half-life are recomputed from the times of interactions."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from itemfold.data.array_types import Floats
from itemfold.data.csr import as_ones
from itemfold.data.interactions import IdMap
from itemfold.data.splitting.times import Times
from itemfold.data.weights import fades, fading, is_weighted, scaled
from itemfold.errors import ItemfoldError
from itemfold.models.hybrid import Hybrid
from itemfold.training.run import Run


def check_weights(run: Run) -> None:
    """Raise if a run has weights other than by recency, or lacks the times that it needs."""
    model = run.model
    popularity = model.popularity_half_life if isinstance(model, Hybrid) else None
    if (fades(model.half_life) or fades(popularity)) and run.times is None:
        raise ItemfoldError(
            "a run with a half-life cannot be updated unless it has the times of all its "
            "interactions: train a new run"
        )
    if is_weighted(run.interactions) and not _is_by_recency(run):
        raise ItemfoldError("a run with weighted interactions cannot be updated: train a new run")


def unweighted(run: Run) -> sp.csr_array:
    """The interactions of a run without weights by recency."""
    return as_ones(run.interactions) if is_weighted(run.interactions) else run.interactions


def times_of(train: sp.csr_array, ids: IdMap, times: Floats) -> Times:
    """Times aligned with the entries of a matrix."""
    return Times(ids, sp.csr_array((times, train.indices, train.indptr), shape=train.shape))


def _is_by_recency(run: Run) -> bool:
    """Whether the weights of a run follow from its half-life and times alone."""
    half_life, times = run.model.half_life, run.times
    if half_life is None or not fades(half_life) or times is None:
        return False
    train = as_ones(run.interactions)
    train.data = fading(times.max() - times, half_life)
    expected = scaled(train, float(train.data.mean()))
    return bool(np.allclose(expected.data, run.interactions.data, rtol=1e-4))
