"""Greedy re-ranking: choose each list from a pool of the user's best items, in batches."""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from itemfold.reranking.item_facts import ItemFacts
from itemfold.reranking.similarity import pool_of
from itemfold.reranking.steering import Steering

POOL = 10  # candidates for each place of a list
LARGEST_POOL = 2000  # most candidates, unless the list itself is longer
BLOCK = 2**14  # candidates of all users that are compared at a time


class Reranker:
    """Chooses lists from pools by the rule that `Steering` describes.

    Args:
        facts: Facts of the items.
        steering: The settings.

    Raises:
        ItemfoldError: A setting needs a column that the items do not have.
    """

    def __init__(self, facts: ItemFacts, steering: Steering) -> None:
        self.facts, self.steering = facts, steering
        self.caps = [(facts.values(name), most) for name, most in steering.max_per.items()]
        self.age = facts.age if steering.freshness else None
        self.vectors = facts.vectors(steering.diversity_by) if steering.diversity else None

    def pool_size(self, k: int) -> int:
        """Number of candidates for a list of length ``k``."""
        return max(k, min(POOL * k, LARGEST_POOL))

    def tail_needed(self, k: int) -> int:
        """Minimum number of items from the long tail in a list of length ``k``."""
        return ceil(self.steering.long_tail * k - 1e-9)

    def choose(self, pool: Tensor, scores: Tensor, k: int, scaled_by: int) -> Tensor:
        """Choose a list from each pool.

        Args:
            pool: Candidates, best first, −1 for none, `[B, P]`.
            scores: Their scores, `[B, P]`.
            k: Length of a list.
            scaled_by: Number of columns whose values are scaled to 0 … 1; later columns are
                candidates that were added from the long tail.

        Returns:
            The chosen items by utility, −1 where no candidate is left, `[B, k]`.
        """
        rows = max(1, BLOCK // pool.shape[1])
        parts = zip(torch.split(pool, rows), torch.split(scores, rows), strict=True)
        return torch.cat([self._choose(*part, k, scaled_by) for part in parts])

    def _choose(self, pool: Tensor, scores: Tensor, k: int, scaled_by: int) -> Tensor:
        diversity = self.steering.diversity
        utility = self._utility(pool, scores, scaled_by)  # [B, P]
        near = None if self.vectors is None else pool_of(self.vectors, pool)
        rules = _Rules(self, pool, k)
        value = utility
        for place in range(k):
            free = rules.permitted(place)
            best = value.masked_fill(~free, -torch.inf).argmax(1)  # the first of equals
            if not rules.take(best, free):
                break
            if near is not None:
                mean = near.take(best) / (place + 1)
                value = (1 - diversity) * utility - diversity * mean
        chosen = utility.masked_fill(~rules.chosen, -torch.inf)
        order = chosen.argsort(dim=1, descending=True, stable=True)[:, :k]
        return pool.gather(1, order).masked_fill(~rules.chosen.gather(1, order), -1)

    def _utility(self, pool: Tensor, scores: Tensor, scaled_by: int) -> Tensor:
        """Relevance, less popularity, plus freshness, ``[B, P]``."""
        steering, facts, real = self.steering, self.facts, pool >= 0
        items = pool.clamp(min=0)
        total = _scaled(scores, real, scaled_by)
        if steering.popularity_discount:
            popularity = _scaled(facts.log_popularity[items], real, scaled_by)
            total = total - steering.popularity_discount * popularity
        if self.age is not None:
            age = _scaled(self.age[items], real, scaled_by)
            total = total + steering.freshness * (1 - age)
        return total


class _Rules:
    """Tracks which candidates may be taken next: not taken, within the caps, from the tail."""

    def __init__(self, reranker: Reranker, pool: Tensor, k: int) -> None:
        self.k, self.row = k, torch.arange(len(pool), device=pool.device)
        self.free = pool >= 0
        self.chosen = torch.zeros_like(self.free)
        items = pool.clamp(min=0)
        # for each cap: values of the candidates [B, P, m], count of each value [B, values + 1], cap
        self.caps = [
            (table[items], pool.new_zeros(len(pool), n_values + 1), most)
            for (table, n_values), most in reranker.caps
        ]
        self.needed = reranker.tail_needed(k)
        if self.needed:
            self.tail = reranker.facts.in_tail[items]
            self.n_tail = pool.new_zeros(len(pool))

    def permitted(self, place: int) -> Tensor:
        """Mask of the candidates for a place, counted from 0, ``[B, P]``."""
        free = self.free
        for values, taken, most in self.caps:
            count = taken.gather(1, values.flatten(1)).view_as(values)
            free = free & ~(count >= most).any(2)
        if self.needed:
            of_tail = free & self.tail
            must = (self.n_tail + self.k - place <= self.needed) & of_tail.any(1)
            free = torch.where(must.unsqueeze(1), of_tail, free)
        return free

    def take(self, best: Tensor, permitted: Tensor) -> bool:
        """Take the best candidate of each row, if permitted; returns whether any was taken."""
        found = permitted[self.row, best]
        rows, places = self.row[found], best[found]
        self.free[rows, places] = False
        self.chosen[rows, places] = True
        for values, taken, _ in self.caps:
            mine = values[rows, places]  # [found, m]
            taken[rows.unsqueeze(1), mine] += 1  # the values of an item are distinct
            taken[:, -1] = 0  # padding is not counted
        if self.needed:
            self.n_tail[rows] += self.tail[rows, places].to(self.n_tail.dtype)
        return len(rows) > 0


def _scaled(values: Tensor, real: Tensor, first: int) -> Tensor:
    """Values scaled to 0 … 1 over the real candidates of the first columns, ``[B, P]``."""
    part, there = values[:, :first], real[:, :first]
    low = part.masked_fill(~there, torch.inf).amin(1, keepdim=True)
    high = part.masked_fill(~there, -torch.inf).amax(1, keepdim=True)
    scaled = (values - low) / (high - low).clamp(min=1e-12)
    return scaled.masked_fill(~real, 0.0)
