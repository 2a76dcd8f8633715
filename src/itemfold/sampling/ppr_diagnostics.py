"""Diagnostics of PPR samplers: spread of PageRank, effective items, false negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.interactions import Interactions
from itemfold.data.splitting.splitters import split_interactions
from itemfold.graph.ppr import PPRScores, personalised_pagerank
from itemfold.sampling import PPR
from itemfold.sampling.ppr import sum_rows


@dataclass(frozen=True)
class Diagnosis:
    """Statistics of one setting's draws over the users that have held-out items."""

    near: float  # median share of draws from the stored PageRank entries
    effective_items: float  # median of 1 / Σ_i p(i | u)²: as many equally likely items
    false_negatives: float  # mean probability that a negative is a held-out positive
    against_uniform: float  # that probability relative to uniform draws


def diagnose(
    train: sp.csr_array,
    scores: PPRScores,
    users: npt.NDArray[np.int64],
    target: sp.csr_array,
    samplers: Mapping[str, PPR],
) -> dict[str, Diagnosis]:
    """Exact statistics of each sampler, without drawing; ``target[r]``: items of ``users[r]``.

    Everything follows from the mixture p(i | u) = (1 − s) / free + s · w_i / Σ w.
    """
    free = train.shape[1] - np.diff(train.indptr)[users].astype(np.float64)  # [rows]
    held = np.diff(target.indptr)
    uniform = float((held / free).mean())
    out = {}
    for name, sampler in samplers.items():
        weights, share = sampler.mixture(train, scores)
        size = np.diff(scores.indptr)
        sums = np.maximum(sum_rows(scores.indptr, weights), 1e-300)
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


SETTINGS: dict[str, PPR] = {
    "softmax, T = 1 (the paper)": PPR(temperature=1.0),
    "softmax, T = 0.001": PPR(temperature=1e-3),
    "auto, share 0.1 % (default)": PPR(share=0.001),
    "auto, share 0.3 %": PPR(share=0.003),
    "auto, share 1 %": PPR(share=0.01),
    "proportional": PPR(mode="proportional"),
    "band 20–200": PPR(mode="band"),
}


@dataclass(frozen=True)
class PPRReport:
    """What ``itemfold describe --ppr`` shows."""

    users: int  # those with held-out items
    spread: dict[int, float]
    uniform: float  # probability that a uniform negative is a held-out positive
    settings: dict[str, Diagnosis]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "users": self.users,
            "spread": self.spread,
            "uniform_false_negatives": self.uniform,
            "settings": {name: asdict(found) for name, found in self.settings.items()},
        }


def ppr_report(data: Interactions, *, users: int = 2000) -> PPRReport:
    """Diagnose common settings on a data set; the held-out items are its validation part.

    At most ``users`` users are inspected, drawn at random: PageRank of a sample is cheap.
    """
    split = split_interactions(data)
    held = split.valid or split.test
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(held))[:users])
    rows = held.users[chosen]
    train = split.train
    scores = personalised_pagerank(train, rows, top=SETTINGS["proportional"].top)
    part = sp.csr_array(train[rows])
    settings = diagnose(part, scores, np.arange(len(rows)), held.target[chosen], SETTINGS)
    free = part.shape[1] - np.diff(part.indptr)
    uniform = float((np.diff(held.target[chosen].indptr) / free).mean())
    return PPRReport(len(rows), spread(scores), uniform, settings)
