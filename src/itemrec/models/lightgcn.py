"""LightGCN: neighbourhood averaging without weights or non-linearities.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation",
SIGIR 2020. With ``Â = D^-1/2 A D^-1/2``::

    h⁽ˡ⁺¹⁾ = Â h⁽ˡ⁾          e = pool(h⁰ … hᴸ)

Everything is linear, so a new user with history H is one weighted sum of stored item vectors, and
each history item's share in a score is exact::

    u = Σ_{i∈H} f_i / √|H|        f_i = pool(0, h⁰_i … hᴸ⁻¹_i) / √d_i
"""

from __future__ import annotations

from typing import ClassVar

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.graph import Adjacency, Graph, fold_adjacency, inverse_root
from itemrec.models.base import GNN, Pooling, halves
from itemrec.propagate import listen, neighbour_sum, smooth, smooth_items


class LightGCN(GNN):
    """Linear message passing (SIGIR 2020)."""

    paper = "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation"
    year = 2020
    explains = True
    first: ClassVar[int] = 0  # the first layer that is pooled

    fold_table: Tensor  # [items, d]

    def __init__(self, dim: int = 64, layers: int | None = None, pooling: Pooling = "auto") -> None:
        super().__init__(dim, layers, pooling)

    def automatic_pooling(self, inductive: bool) -> str:
        """Mean in the transductive protocol, sum in the inductive one, as in the ITEM paper."""
        return "sum" if inductive else "mean"

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """``Â h`` in the graph; the same rule for listeners outside it."""
        return listen(adjacency, source)

    def pool(self, layers: list[Tensor]) -> Tensor:
        """One vector a node out of its vectors at all depths that count."""
        return super().pool(layers[self.first :])

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Message passing and pooling in one, where pooling is a sum."""
        from_items = self.user_embedding is None
        if self.pool_by == "concat" or (from_items and self.first):
            return super().encode(graph)
        share = 1 / (self.depth + 1 - self.first) if self.pool_by == "mean" else 1.0
        if from_items:
            return smooth_items(graph, self.item_embedding, self.depth, share=share)
        base = self.base(graph)
        users, items = halves(graph, smooth(graph, base, self.depth, first=self.first, share=share))
        return users, items

    def encode_step(
        self, graph: Graph, generator: torch.Generator, hops: bool = True
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Layer by layer only where layers are asked for."""
        return super().encode_step(graph, generator) if hops else (*self.encode(graph), [])

    def store_fold(self, item_layers: list[Tensor]) -> None:
        """All depths at once: the step is linear, so they can be pooled before it."""
        pooled = self.pool([torch.zeros_like(item_layers[0]), *item_layers])
        self.store("fold_table", pooled * inverse_root(self.item_degree))

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """``Σ f_i / √|H|``."""
        adjacency = fold_adjacency(history, self.item_degree)
        heard = neighbour_sum(adjacency, self.fold_table)
        return heard * inverse_root(adjacency.degree)

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Shares ``f_i·e_j/√|H|``; a trained user's own vector is the rest of the score."""
        listed = torch.from_numpy(history.indices).long().to(self.device)
        parts = self.fold_table[listed] / max(len(listed), 1) ** 0.5  # [H, d]
        shares: Tensor = self.item_vectors[items] @ parts.T
        return shares
