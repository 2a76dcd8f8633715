"""Which items are best: scores, what may be recommended, and how a list is steered."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.evaluation.ranking import mask_history, steered_items, top_items
from itemrec.models.base import Model
from itemrec.reranking.item_facts import ItemFacts
from itemrec.reranking.reranker import Reranker
from itemrec.reranking.steering import Steering, check_steering
from itemrec.serving.history import History
from itemrec.training.progress import track

KEPT = 2**24  # bytes of scores that the allocator of a CPU certainly keeps for the next block
FEWEST = 64  # users for whom a product with vectors is efficient

Allowed = npt.NDArray[np.bool_] | None  # a filter on the items, None: all


class Ranker:
    """Ranks all items of a model for one user, for many, or by their likeness to an item.

    Args:
        model: The model.
        train: The training interactions, ``[users, items]``.
        facts: What is known of the items.
    """

    def __init__(self, model: Model, train: sp.csr_array, facts: ItemFacts) -> None:
        self.model, self.train, self.facts = model, train, facts
        self.n_items = train.shape[1]

    def for_history(
        self,
        seen: History,
        hidden: sp.csr_array,
        k: int,
        allowed: Allowed,
        steering: Steering | None,
    ) -> tuple[Tensor, Tensor]:
        """Rows and scores of the best items, ``[≤ k]`` each; ``hidden`` is left out.

        If nothing is known of the user, the score is the popularity.
        """
        if seen.is_known:
            row = np.array([seen.row], dtype=np.int64)
            scores = self.model.scores(seen.matrix(self.n_items), row).contiguous()  # [1, items]
        else:
            scores = self.popularity.clone().unsqueeze(0)
        scores = self._only_allowed(mask_history(scores, hidden), allowed)
        best = steered_items(scores, k, self._reranker(steering))[0]
        best = best[best >= 0]
        return best, scores[0, best]

    def for_users(
        self,
        users: npt.NDArray[np.int64],
        k: int,
        allowed: Allowed,
        steering: Steering | None,
        *,
        exclude_seen: bool,
        budget: float,
        progress: bool,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """Rows and scores of the best items of training users, ``[users, k]``; −1 is no item."""
        reranker, depth = self._reranker(steering), min(k, self.n_items)
        rows = np.full((len(users), depth), -1, dtype=np.int32)
        values = np.zeros((len(users), depth), dtype=np.float32)
        size = self._users_at_once(budget)
        starts = range(0, len(users), size)
        for start in track(starts, "recommending to all users", show=progress):
            part = slice(start, start + size)
            histories = self.train[users[part]]
            scores = self.model.scores(histories, users[part]).contiguous()
            without_history = np.flatnonzero(np.diff(histories.indptr) == 0)
            if len(without_history):
                scores[torch.from_numpy(without_history).to(scores.device)] = self.popularity
            if exclude_seen:
                scores = mask_history(scores, histories)
            scores = self._only_allowed(scores, allowed)
            best = steered_items(scores, k, reranker)
            rows[part] = best.cpu().numpy()
            values[part] = scores.gather(1, best.clamp(min=0)).cpu().numpy()
        return rows, values

    def _users_at_once(self, budget: float) -> int:
        """How many users' scores take at most ``budget`` megabytes; on a CPU fewer if that is fast.

        The allocator keeps small blocks. Large ones are new pages each time, which the system
        fills with zeros: half of the time.
        """
        most = int(budget * 2**20 / 4 / self.n_items)
        if self.model.device.type == "cpu":
            most = min(most, max(FEWEST, KEPT // 4 // self.n_items))
        return max(most, 1)

    def similar_to(self, item: int, k: int) -> tuple[Tensor, Tensor]:
        """Rows and similarities of the items most like one, ``[≤ k]`` each."""
        scores = self.model.similar_to(item).clone()
        scores[item] = -torch.inf
        best = top_items(self._only_allowed(scores.unsqueeze(0), None), k)[0]
        best = best[best >= 0]
        return best, scores[best]

    def known_like(self, item: int, n_known: int, most: int = 3) -> list[int]:
        """The known items with the features most like those of a new one; of equals the popular."""
        weight, popularity = self.model.similar_to(item)[:n_known], self.popularity[:n_known]
        weight = weight + 1e-3 * popularity / popularity.max().clamp(min=1)
        found: list[int] = top_items(weight.unsqueeze(0), most)[0].tolist()
        return found

    @cached_property
    def popularity(self) -> Tensor:
        """How often each item was used, ``[items]``."""
        counts = np.bincount(self.train.indices, self.train.data, self.n_items).astype(np.float32)
        return torch.from_numpy(counts).to(self.model.device)

    def _reranker(self, steering: Steering | None) -> Reranker | None:
        checked = check_steering(steering)
        return None if checked.is_plain else Reranker(self.facts, checked)

    def _only_allowed(self, scores: Tensor, allowed: Allowed) -> Tensor:
        """−∞ at the items that a filter excludes or that are not available, in place."""
        if allowed is not None:
            scores[:, ~torch.from_numpy(allowed).to(scores.device)] = -torch.inf
        if self.facts.available is not None:
            scores[:, ~self.facts.available] = -torch.inf
        return scores
