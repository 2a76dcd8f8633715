"""An encoder of your own: the mean over neighbours, mixed with what a node was before."""

from torch import Tensor

import itemfold as ir
from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum


class OwnEncoder(ir.models.GNN):
    """h⁽ˡ⁺¹⁾ = keep·h⁽ˡ⁾ + (1 − keep)·mean of the neighbours' h⁽ˡ⁾."""

    def __init__(self, dim: int = 64, layers: int | None = None, keep: float = 0.3) -> None:
        super().__init__(dim, layers, pooling="sum")
        if not 0 <= keep < 1:
            raise ir.ItemfoldError(f"'keep' must be at least 0 and below 1, got {keep}")
        self.keep = keep

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """One step; training and folding in a new user both call it."""
        messages = neighbour_sum(adjacency, source)  # [targets, d]
        mean = messages / adjacency.degree.clamp(min=1).unsqueeze(1)
        return self.keep * own + (1 - self.keep) * mean


ir.models.MODELS["own-encoder"] = OwnEncoder
