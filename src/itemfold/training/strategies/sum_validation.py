"""Validation of a network during training by the sum that it is a part of."""

from __future__ import annotations

from itemfold.models.base import Model
from itemfold.models.hybrid import Hybrid
from itemfold.training.strategies.blend import Blend, BlendSearch

NETWORK_WEIGHTS = (0.3, 0.7, 1.5, 4.0)  # × the largest weight of the other parts


class SumValidation:
    """The validation metric of a blend plus a network, at the best of a few network weights.

    The metric of the network alone may still rise when that of the sum no longer does.
    """

    def __init__(self, search: BlendSearch, base: Blend, scored: Hybrid) -> None:
        self.search, self.base, self.scored = search, base, scored

    def __call__(self, network: Model) -> dict[str, float]:
        """The best mean over users; the weights tried are the same at each validation."""
        search = self.search
        search.add("network", self.scored)
        base = search.padded(self.base)
        part, level = search.names.index("network"), max(base.prior, *base.weights)
        blends = [base.with_weight(part, level * weight) for weight in NETWORK_WEIGHTS]
        return {search.metric.key: float(search.values(blends).mean(1).max())}
