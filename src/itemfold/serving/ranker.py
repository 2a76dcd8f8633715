"""Rank items: score, mask, filter and re-rank."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.evaluation.ranking import mask_history, steered_items, top_items
from itemfold.models.base import Explainer, Model
from itemfold.reranking.item_facts import ItemFacts
from itemfold.reranking.reranker import Reranker
from itemfold.reranking.steering import Steering, check_steering
from itemfold.serving.filters import ItemMask
from itemfold.serving.history import UserHistory
from itemfold.training.progress import track

CPU_BLOCK = 2**24  # bytes of scores that a CPU allocator keeps for the next block
Lists = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # rows and scores, [users, k]
MIN_USERS = 64  # users per block for which a product with vectors is efficient


class Ranker:
    """Ranks the items of a model for one user, for many users, or by similarity to an item.

    Args:
        model: The model.
        train: The training interactions, ``[users, items]``.
        facts: Columns and availability of the items.
    """

    def __init__(self, model: Model, train: sp.csr_array, facts: ItemFacts) -> None:
        self.model, self.train, self.facts = model, train, facts
        self.n_items = train.shape[1]

    def for_history(
        self,
        seen: UserHistory,
        hidden: sp.csr_array,
        k: int,
        allowed: ItemMask | None,
        steering: Steering | None,
        *,
        explain: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows and scores of the best items without the ``hidden`` ones, ``[≤ k]`` each.

        With ``explain``, also the shares of the history items, ``[≤ k, history]``. Without a
        history, the score is the popularity, and there are no shares.
        """
        explainer: Explainer | None = None
        history = seen.matrix(self.n_items)
        if not seen.is_known:
            scores = self.popularity.clone().unsqueeze(0)  # [1, items]
        elif explain:
            scores, explainer = self.model.scores_and_explainer(history, seen.row)
        else:
            scores = self.model.scores(history, np.array([seen.row], dtype=np.int64))
        scores = self._only_allowed(mask_history(scores.contiguous(), hidden), allowed)
        best = steered_items(scores, k, self._reranker(steering))[0]
        best = best[best >= 0]
        return best, scores[0, best], None if explainer is None else explainer(best)

    def for_users(
        self,
        users: npt.NDArray[np.int64],
        k: int,
        allowed: ItemMask | None,
        steering: Steering | None = None,
        *,
        histories: sp.csr_array | None = None,
        hidden: sp.csr_array | None = None,
        exclude_seen: bool,
        budget: float,
        progress: bool = False,
    ) -> Lists:
        """Rows and scores of the best items, ``[users, k]``; −1 is no item.

        ``users`` are training rows, −1 for a new user. ``histories`` default to those of training,
        and ``exclude_seen`` leaves out the items of ``hidden``, by default those of the history.
        """
        reranker, depth = self._reranker(steering), min(k, self.n_items)
        rows = np.full((len(users), depth), -1, dtype=np.int32)
        values = np.zeros((len(users), depth), dtype=np.float32)
        size = self._users_at_once(budget)
        starts = range(0, len(users), size)
        for start in track(starts, "recommending to all users", show=progress):
            part = slice(start, start + size)
            known = self.train[users[part]] if histories is None else histories[part]
            scores = self.model.scores(known, users[part]).contiguous()
            nothing_known = np.flatnonzero(np.diff(known.indptr) == 0)
            if len(nothing_known):
                scores[torch.from_numpy(nothing_known).to(scores.device)] = self.popularity
            if exclude_seen:
                scores = mask_history(scores, known if hidden is None else hidden[part])
            scores = self._only_allowed(scores, allowed)
            best = steered_items(scores, k, reranker)
            rows[part] = best.cpu().numpy()
            values[part] = scores.gather(1, best.clamp(min=0)).cpu().numpy()
        return rows, values

    def _users_at_once(self, budget: float) -> int:
        """Users per block whose scores take at most ``budget`` megabytes, fewer on a CPU.

        A CPU allocator reuses small blocks. Large blocks get new pages each time, and zeroing them
        takes half of the time.
        """
        most = int(budget * 2**20 / 4 / self.n_items)
        if self.model.device.type == "cpu":
            most = min(most, max(MIN_USERS, CPU_BLOCK // 4 // self.n_items))
        return max(most, 1)

    def similar_to(self, item: int, k: int) -> tuple[Tensor, Tensor]:
        """Rows and similarities of the items most similar to one, ``[≤ k]`` each."""
        scores = self.model.similar_to(item).clone()
        scores[item] = -torch.inf
        best = top_items(self._only_allowed(scores.unsqueeze(0), None), k)[0]
        best = best[best >= 0]
        return best, scores[best]

    def known_similar_to(self, item: int, n_known: int) -> list[int]:
        """The three known items with the most similar features; ties: the more popular item."""
        weight, popularity = self.model.similar_to(item)[:n_known], self.popularity[:n_known]
        weight = weight + 1e-3 * popularity / popularity.max().clamp(min=1)
        found: list[int] = top_items(weight.unsqueeze(0), 3)[0].tolist()
        return found

    @cached_property
    def popularity(self) -> Tensor:
        """Sum of the weights of each item's interactions, ``[items]``."""
        counts = np.bincount(self.train.indices, self.train.data, self.n_items).astype(np.float32)
        return torch.from_numpy(counts).to(self.model.device)

    def _reranker(self, steering: Steering | None) -> Reranker | None:
        checked = check_steering(steering)
        return None if checked.is_plain else Reranker(self.facts, checked)

    def _only_allowed(self, scores: Tensor, allowed: ItemMask | None) -> Tensor:
        """Set the scores of excluded and unavailable items to −∞, in place."""
        if allowed is not None:
            scores[:, ~torch.from_numpy(allowed).to(scores.device)] = -torch.inf
        if self.facts.available is not None:
            scores[:, ~self.facts.available] = -torch.inf
        return scores
