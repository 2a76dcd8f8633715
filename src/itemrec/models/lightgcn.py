"""LightGCN: neighbourhood averaging without weights or non-linearities.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation",
SIGIR 2020. With ``Â = D^-1/2 A D^-1/2``:

    h⁽ˡ⁺¹⁾ = Â h⁽ˡ⁾          e = pool(h⁰ … hᴸ)
"""

from __future__ import annotations

from itemrec.models.gnn import LinearGNN


class LightGCN(LinearGNN):
    """Linear message passing, `h⁽ˡ⁺¹⁾ = D^-1/2 A D^-1/2 h⁽ˡ⁾`, then pooling (SIGIR 2020).

    The vector of a new user is a weighted sum of stored item vectors, and explanations are exact.

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; 3 in the transductive protocol and 2 in the inductive one
            by default.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean in
            the transductive protocol and the sum in the inductive one.

    Raises:
        ItemrecError: A setting is invalid.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.LightGCN(dim=8), epochs=2).metrics["model"]
        'lightgcn'
    """

    paper = "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation"
    year = 2020
    by_columns = True
