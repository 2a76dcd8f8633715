"""LightGCN: neighbourhood averaging without weights or non-linearities.

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation",
SIGIR 2020. With A the adjacency matrix of users and items and D its diagonal matrix of degrees:

    E⁽ᵏ⁺¹⁾ = D^-1/2 A D^-1/2 E⁽ᵏ⁾        E = 1/(K+1) · Σ_{k=0}^{K} E⁽ᵏ⁾

`reference_embeddings` is this definition in plain torch. Training computes the same without storing
the layers (`itemfold.graph.propagation.propagate_layers`); a test keeps values and gradients equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.models.linear_gnn import LinearGNN


def reference_embeddings(graph: Graph, embeddings: Tensor, layers: int) -> Tensor:
    """Final embeddings of all nodes by the paper's equations, `[nodes, d] → [nodes, d]`.

    Args:
        graph: The interaction graph: its nodes are all users, then all items.
        embeddings: `E⁽⁰⁾`, such as the parameters of the users followed by those of the items.
        layers: Number of layers K.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> model = ir.train(split, ir.models.LightGCN(dim=8), epochs=2, refit=False).model
        >>> graph = Graph.from_csr(split.train)
        >>> users, items = reference_embeddings(graph, model.base(graph), 3).split([60, 80])
        >>> torch.allclose(items, model.item_vectors, atol=1e-6)
        True
    """
    target, source = graph.row, graph.col.long()  # of every edge, in both directions
    norm = (graph.degree[target] * graph.degree[source]).rsqrt()  # entries of D^-1/2 A D^-1/2
    norm = norm.unsqueeze(1) if graph.weight is None else (norm * graph.weight).unsqueeze(1)
    total = x = embeddings
    for _ in range(layers):
        x = torch.zeros_like(x).index_add(0, target, norm * x[source])  # E⁽ᵏ⁺¹⁾
        total = total + x
    return total / (layers + 1)


class LightGCN(LinearGNN):
    """Linear message passing, `h⁽ˡ⁺¹⁾ = D^-1/2 A D^-1/2 h⁽ˡ⁾`, then pooling (SIGIR 2020).

    The vector of a new user is a weighted sum of stored item vectors, and explanations are exact.

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "mean" (the paper's), "sum" or "concat"; "auto"
            is the mean, or the sum in the inductive protocol.
        start: Vectors before training: "random" (the paper's); "svd", the singular vectors of the
            normalised interactions times the roots of the singular values, from which a few epochs
            suffice; "svd-flat", without the roots, which is better on dense data; or "svd-even",
            with vectors of similar length, which is better on large sparse data.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.LightGCN(dim=8), epochs=2).metrics["model"]
        'lightgcn'
    """

    paper = "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation"
    year = 2020
    by_columns = True
    encodes_batch_users = True
    left_open = ("dim", "start")
