"""Verification of an export against `recommend`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemfold.errors import ItemfoldError
from itemfold.evaluation.ranking import mask_history, top_items
from itemfold.serving.exports.search import ItemRows
from itemfold.training.run import Run

USERS, K = 200, 20  # users whose lists are compared, and their length
CANDIDATES = 500  # items of an index that are rescored with the linear part


@dataclass(frozen=True)
class Sample:
    """Some users and their lists."""

    rows: ItemRows  # training rows of the users [n]
    histories: sp.csr_array  # [n, items]
    scores: npt.NDArray[np.float32]  # [n, items], −∞ at the items of the history
    best: ItemRows  # lists of `recommend` [n, k], −1 where no item is left

    def agreement(self, found: ItemRows) -> float:
        """Fraction of the recommended items that an export finds."""
        there = self.best >= 0
        same = (self.best[:, :, None] == found[:, None, :]).any(2) & there
        return float(same.sum() / max(there.sum(), 1))

    def check(self, found: ItemRows, what: str) -> None:
        """Raise unless the lists agree; items whose scores differ by rounding may swap."""
        there = self.best >= 0
        expected, got = (
            np.where(there, np.take_along_axis(self.scores, np.maximum(rows, 0), 1), 0.0)
            for rows in (self.best, found)
        )
        if not np.allclose(expected, got, rtol=1e-3, atol=1e-4):
            raise ItemfoldError(
                f"{what} does not give the lists of 'recommend': {self.agreement(found):.1%} of "
                "the items agree; nothing was written. Please report this"
            )


@torch.no_grad()
def draw_sample(run: Run, *, fold_in: bool) -> Sample:
    """Users with a history, and their lists; with `fold_in`, as new users."""
    known = np.flatnonzero(np.diff(run.interactions.indptr))
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(known, min(USERS, len(known)), replace=False))
    histories = run.interactions[rows]
    nobody = np.full(len(rows), -1, dtype=np.int64)
    scores = run.model.scores(histories, nobody if fold_in else rows)
    scores = mask_history(scores.contiguous(), histories)
    best = top_items(scores, K).cpu().numpy()
    return Sample(rows, histories, scores.cpu().numpy(), best)


def without_history(sample: Sample, search: Callable[[int], ItemRows]) -> ItemRows:
    """The best items of an index that are not in the history, as a client would compute them."""
    longest = int(np.diff(sample.histories.indptr).max())
    found = search(min(K + longest, sample.scores.shape[1]))
    seen = sample.histories.toarray() > 0
    out = np.full_like(sample.best, -1)
    for user, listed in enumerate(found):
        left = [row for row in listed.tolist() if row >= 0 and not seen[user, row]]
        out[user, : len(left)] = left[: out.shape[1]]
    return out


def best_of(scores: npt.NDArray[np.float32], sample: Sample) -> ItemRows:
    """The best items by other scores that are not in the history."""
    masked = mask_history(torch.from_numpy(scores.copy()), sample.histories)
    return top_items(masked, K).numpy()
