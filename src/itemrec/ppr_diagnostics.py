"""What a PPR sampler does to the draws: spread of PageRank, items in effect, false negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.negatives import PPR
from itemrec.ppr import PPRScores
from itemrec.tempering import row_sums


@dataclass(frozen=True)
class Diagnosis:
    """One setting's draws, a median or mean over the users that have held-out items."""

    near: float  # median share of draws from the stored PageRank entries
    effective_items: float  # median of 1 / Σ_i p(i | u)², the items drawn if all were equal
    false_negatives: float  # mean chance that a drawn negative is a held-out positive
    against_uniform: float  # that chance divided by the one of uniform draws


def diagnose(
    train: sp.csr_array,
    scores: PPRScores,
    users: npt.NDArray[np.int64],
    target: sp.csr_array,
    samplers: Mapping[str, PPR],
) -> dict[str, Diagnosis]:
    """Exact figures, nothing drawn. Row r of ``target`` holds what user ``users[r]`` held out.

    Everything follows from the mixture p(i | u) = (1 − s) / free + s · w_i / Σ w.
    """
    free = train.shape[1] - np.diff(train.indptr)[users].astype(np.float64)  # [rows]
    held = np.diff(target.indptr)
    uniform = float((held / free).mean())
    out = {}
    for name, sampler in samplers.items():
        weights, share = sampler.mixture(train, scores)
        size = np.diff(scores.indptr)
        sums = np.maximum(row_sums(scores.indptr, weights), 1e-300)
        near = weights * np.repeat(share / sums, size)  # s · w_i / Σ w, [stored]
        shape = (len(scores), int(train.shape[1]))
        rows = sp.csr_array((near, scores.indices.copy(), scores.indptr), shape=shape)[users]
        share = share[users] * (np.diff(rows.indptr) > 0)
        plain = (1 - share) / free
        square = sp.csr_array(rows.power(2)).sum(1) + 2 * plain * rows.sum(1) + free * plain**2
        hit = plain * held + rows.multiply(target).sum(1)
        rate = float(hit.mean())
        out[name] = Diagnosis(
            near=float(np.median(share)),
            effective_items=float(np.median(1 / square)),
            false_negatives=rate,
            against_uniform=rate / uniform if uniform else 0.0,
        )
    return out


def spread(scores: PPRScores, ranks: tuple[int, ...] = (1, 10, 100)) -> dict[int, float]:
    """Median PageRank of the item at each rank (1 is the nearest), over users that have it.

    A spread far below a temperature T means that exp(ppr / T) is close to uniform.
    """
    out = {}
    for rank in ranks:
        has = np.diff(scores.indptr) >= rank
        values = scores.values[scores.indptr[:-1][has] + rank - 1]
        out[rank] = float(np.median(values)) if len(values) else 0.0
    return out
