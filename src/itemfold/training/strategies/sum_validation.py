"""Validation of a network under training by what it adds to the parts that are fitted already."""

from __future__ import annotations

from itemfold.models.base import Model
from itemfold.models.hybrid import Hybrid
from itemfold.training.strategies.blend import Blend, BlendSearch

WEIGHTS = (0.3, 0.7, 1.5, 4.0)  # of the network, relative to the largest of the other parts


class SumValidation:
    """The metric of the sum of a blend and a network, with the best of a few weights.

    What a network adds is what counts: its own metric may still rise when the sum no longer does.
    """

    def __init__(self, search: BlendSearch, base: Blend, scored: Hybrid) -> None:
        self.search, self.base, self.scored = search, base, scored

    def __call__(self, network: Model) -> dict[str, float]:
        """The best mean over users; the same weights are tried each time."""
        search = self.search
        search.add("network", self.scored)
        base = search.padded(self.base)
        place, level = search.names.index("network"), max(base.prior, *base.weights)
        blends = [base.with_weight(place, level * weight) for weight in WEIGHTS]
        return {search.metric.key: float(search.values(blends).mean(1).max())}
