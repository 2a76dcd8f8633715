"""Initial vectors of linear message passing from the truncated SVD of the interactions.

With ``D_U^-½ X D_I^-½ ≈ U Σ Vᵀ``, vectors before training are

    users = s · U Σ^p        items = s · V Σ^p

where p is ½, or 0 for dense data, and s gives each table the deviation of random vectors. A layer
multiplies singular vectors by Σ and does nothing else, so an untrained network already scores by a
low-rank approximation of the interactions, and training goes on from there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.graph.graph import Graph
from itemfold.graph.spectral import truncated_svd


@torch.no_grad()
def spectral_start(
    tables: tuple[Tensor | None, Tensor],
    graph: Graph,
    deviation: float,
    generator: torch.Generator,
    *,
    dim: int,
    flat: bool = False,
    sharded: bool = False,
) -> None:
    """Overwrite random vectors with singular vectors.

    Nodes without interactions and columns beyond the rank of the interactions stay random.

    Args:
        tables: Vectors of the users, or None, and of the items; of several ranks, their columns.
        graph: The training graph.
        deviation: Root mean square of the values.
        generator: Random generator of the SVD, on the CPU.
        dim: Columns of the tables, those of all ranks.
        flat: Whether p is 0, else ½.
        sharded: Whether this rank holds only some of the columns.
    """
    found = truncated_svd(graph, dim, generator, sharded=sharded)
    own = ranks.own_columns(dim) if sharded else slice(0, dim)
    weight = (found.values > 0).to(found.values) if flat else found.values.sqrt()
    degrees = torch.split(graph.degree, [graph.n_users, graph.n_items])
    for table, vectors, degree in zip(tables, (found.users, found.items), degrees, strict=True):
        if table is None:
            continue
        nodes, columns = int((degree > 0).sum()), int((weight > 0).sum())
        # singular vectors have length 1, so the sum of squares is that of the weights
        mean_square = weight.square().sum() / max(nodes * columns, 1)
        new = vectors * (weight[own] * deviation / mean_square.clamp(min=1e-30).sqrt())
        kept = (degree == 0).unsqueeze(1) | (weight[own] == 0)
        table.copy_(torch.where(kept, table, new))
