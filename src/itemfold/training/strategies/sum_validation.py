"""Validation of a network under training by what it adds to the parts that are fitted already."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.evaluation.metrics import METRICS
from itemfold.evaluation.ranking import mask_history, top_items
from itemfold.models.base import Model
from itemfold.models.hybrid import deviation
from itemfold.training.strategies.blend import BLOCK, Blend, BlendSearch, standardised

WEIGHTS = (0.3, 0.7, 1.5, 4.0)  # of the network, relative to the deviation of the other parts


class SumValidation:
    """The metric of the sum of the other parts and a network, with the best of a few weights.

    What a network adds is what counts: its own metric may still rise when the sum no longer does.
    """

    def __init__(self, search: BlendSearch, base: Blend, scorer: Callable[[Model], Model]) -> None:
        self.search, self.scorer = search, scorer
        total = search.popularity[base.half_life] * base.prior
        total = total.expand(len(search.rows), -1).clone()
        for weight, scores in zip(base.weights, search.whole, strict=False):
            if weight:
                total.add_(scores, alpha=weight)
        self.base = total.div_(deviation(total))
        held = search.held.take(search.rows)
        mask_history(self.base, held.history)
        if held.excluded is not None:
            mask_history(self.base, held.excluded)

    @torch.no_grad()
    def __call__(self, network: Model) -> dict[str, float]:
        """The best mean over users; the same weights are tried each time."""
        search = self.search
        metric, held = search.metric, search.held.take(search.rows)
        depth = min(metric.k or search.evaluator.n_items, search.evaluator.n_items)
        scored, values = self.scorer(network), list[np.ndarray]()
        for start in range(0, len(held), BLOCK):
            part = slice(start, start + BLOCK)
            rows = np.arange(len(held))[part]
            own = standardised(scored, held.take(rows), search.device)
            found = [
                self._values(self.base[part].add(own, alpha=weight), search.rows[part], depth)
                for weight in WEIGHTS
            ]
            values.append(np.stack(found, axis=1))  # [users, weights]
        of_all = ranks.gather_rows(np.concatenate(values) if values else None)
        return {metric.key: float(of_all.mean(0).max())}

    def _values(self, scores: Tensor, rows: np.ndarray, depth: int) -> np.ndarray:
        search = self.search
        top = top_items(scores, depth)
        keys = torch.from_numpy(rows).to(top.device).unsqueeze(1) * search.evaluator.n_items + top
        targets = search.evaluator.targets
        hits = (targets[torch.searchsorted(targets, keys)] == keys) & (top >= 0)
        of_users = search.evaluator.n_target[rows]
        out: np.ndarray = METRICS[search.metric.name](hits.cpu().numpy(), of_users, depth)
        return out
