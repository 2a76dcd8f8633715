"""The items among which the blends of a hybrid are ranked, and the places of the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.splitting.split import HeldOut

COMPARED = 2**20  # scores compared at a time


@dataclass(frozen=True)
class Pool:
    """Some items for each user, in the order of their ids, with their scores.

    Attributes:
        masked: −∞ for items that must not be recommended, else 0, `[users, pool]`.
        is_target: Whether an item is a target that may be recommended, `[users, pool]`.
        parts: Scores of each part, `[users, pool]` each.
        popularity: Popularity by half-life, `[users, pool]` each.
    """

    masked: Tensor
    is_target: Tensor
    parts: list[Tensor]
    popularity: dict[str, Tensor]

    @classmethod
    def of(
        cls,
        items: Tensor,
        held: HeldOut,
        parts: Sequence[Tensor],
        popularity: Mapping[str, Tensor],
    ) -> Pool:
        """The pool of these items, some of which may be repeated.

        Args:
            items: Items of each user, `[users, pool]`.
            held: The users, with their histories and targets.
            parts: Scores of each part, `[users, items]` each.
            popularity: Popularity by half-life, `[items]` each.
        """
        items = items.sort(dim=1).values
        masked = torch.zeros(items.shape, device=items.device)
        masked[:, 1:][items[:, 1:] == items[:, :-1]] = -torch.inf
        for matrix in (None if held.repeats else held.history, held.excluded):
            if matrix is not None:
                masked[_has_entry(matrix, items)] = -torch.inf
        return cls(
            masked,
            _has_entry(held.target, items) & (masked == 0),
            [scores.gather(1, items) for scores in parts],
            {half_life: each[items] for half_life, each in popularity.items()},
        )

    def take(self, rows: Tensor) -> Pool:
        """The pool of some users."""
        return Pool(
            self.masked[rows],
            self.is_target[rows],
            [scores[rows] for scores in self.parts],
            {half_life: each[rows] for half_life, each in self.popularity.items()},
        )

    @cached_property
    def targets(self) -> Tensor:
        """Rows and columns of the targets, ``[n, 2]``."""
        return torch.nonzero(self.is_target)

    def hits(self, half_life: str, prior: float, weights: Sequence[float], depth: int) -> Tensor:
        """Whether each place of each user's list by a weighted sum is a target."""
        total = self.popularity[half_life] * prior + self.masked
        for weight, scores in zip(weights, self.parts, strict=True):
            if weight:
                total.add_(scores, alpha=weight)
        return places_of_targets(total, self.targets, depth)


def places_of_targets(scores: Tensor, targets: Tensor, depth: int) -> Tensor:
    """Whether each place of each user's list is a target, ``[users, depth]``.

    The place of a target is the number of items ranked before it: those with a higher score, and
    those with the same score in an earlier column. Only targets among the highest scores need one,
    and all higher scores are among these, too.

    Args:
        scores: Scores, `[users, pool]`; −∞ for items that are not ranked.
        targets: Rows and columns of the targets, which are ranked, `[n, 2]`.
        depth: Length of the lists.
    """
    out = torch.zeros(len(scores), depth, dtype=torch.bool, device=scores.device)
    top = _highest(scores, min(depth, scores.shape[1]))
    least = top.amin(1)
    near = targets[scores[targets[:, 0], targets[:, 1]] >= least[targets[:, 0]]]
    column = torch.arange(scores.shape[1], device=scores.device)
    for rows, own in (part.T for part in torch.split(near, COMPARED // len(column) + 1)):
        score = scores[rows, own].unsqueeze(1)
        place = (top[rows] > score).sum(1)
        is_tied = ((top[rows] == score).sum(1) > 1) | (score.squeeze(1) == least[rows])
        tied = torch.nonzero(is_tied).squeeze(1)
        is_before = (scores[rows[tied]] == score[tied]) & (column < own[tied].unsqueeze(1))
        place[tied] += is_before.sum(1)
        listed = place < depth
        out[rows[listed], place[listed]] = True
    return out


def _highest(scores: Tensor, depth: int) -> Tensor:
    """The highest scores of each row, ``[users, depth]``, in any order."""
    if scores.is_cuda:
        return torch.topk(scores, depth, dim=1, sorted=False).values
    start = scores.shape[1] - depth
    return torch.from_numpy(np.partition(scores.numpy(), start, axis=1)[:, start:])  # vectorised


def _has_entry(matrix: sp.csr_array, items: Tensor) -> Tensor:
    """Whether each row of a matrix has an entry at each of its items, ``[users, pool]``."""
    n_items = matrix.shape[1]
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    known = np.append(np.sort(rows * n_items + matrix.indices), np.iinfo(np.int64).max)
    table = torch.from_numpy(known).to(items.device)
    keys = torch.arange(len(items), device=items.device).unsqueeze(1) * n_items + items
    found: Tensor = table[torch.searchsorted(table, keys)] == keys
    return found
