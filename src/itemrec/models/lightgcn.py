"""LightGCN: neighbourhood averaging without weights or non-linearities.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation",
SIGIR 2020. With ``Â = D^-1/2 A D^-1/2``::

    h⁽ˡ⁺¹⁾ = Â h⁽ˡ⁾          e = pool(h⁰ … hᴸ)
"""

from __future__ import annotations

from itemrec.models.gnn import LinearGNN, Pooling


class LightGCN(LinearGNN):
    """Linear message passing (SIGIR 2020)."""

    paper = "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation"
    year = 2020

    def __init__(self, dim: int = 64, layers: int | None = None, pooling: Pooling = "auto") -> None:
        super().__init__(dim, layers, pooling)
