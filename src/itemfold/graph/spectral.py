"""The truncated SVD of the normalised interactions ``R = D_U^-½ X D_I^-½``, and a start from it.

Halko, Martinsson & Tropp, "Finding Structure with Randomness", SIAM Review 2011: a random basis of
the items is multiplied by ``RᵀR`` and orthonormalised a few times, then the best approximation
within its span is taken (Rayleigh–Ritz). Products are those of message passing: on a CPU, on a GPU,
and over a graph that is mapped from disk. Orthonormalising goes through the Gram matrix, in double
precision and by blocks of rows. Several ranks hold some columns each, and exchange one block of
rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.graph.graph import Graph, Side
from itemfold.graph.propagation import first_messages, propagation_step
from itemfold.ops import columns

SPARE = 8  # extra columns, so that the wanted ones converge faster
ITERATIONS = 8  # products with RᵀR before the last one
BLOCK = 16384  # rows multiplied at a time
PRIOR_DEGREE = 30  # interactions added to those of each node for `svd-even`
LEAST = 1e-3  # singular values below it, relative to the largest, are rounding errors


@dataclass(frozen=True)
class SingularVectors:
    """The largest singular values and their vectors, ``R ≈ users · diag(values) · itemsᵀ``."""

    users: Tensor  # float32 [users, d]; of several ranks, each has its columns
    items: Tensor  # float32 [items, d]
    values: Tensor  # float32 [d], descending; 0 beyond the rank of R, where all vectors are 0


@torch.no_grad()
def truncated_svd(
    graph: Graph,
    dim: int,
    generator: torch.Generator,
    *,
    iterations: int = ITERATIONS,
    sharded: bool = False,
) -> SingularVectors:
    """The ``dim`` largest singular values of the normalised interactions, and their vectors.

    Args:
        graph: The interactions; with weights, degrees are sums of weights.
        dim: Number of singular values.
        generator: Random generator of the initial basis, on the CPU.
        iterations: Products with ``RᵀR``; each multiplies the error by the square of the ratio of
            neglected and wanted singular values.
        sharded: Whether each rank computes some of the columns, and returns these only.
    """
    width = dim + SPARE
    basis = _Columns(width, sharded)
    own = ranks.own_columns(width) if sharded else slice(0, width)
    start = columns.drawn(
        graph.n_items, width, own, lambda n: torch.randn(n, width, generator=generator)
    )
    items = start.to(graph.col.device)
    for _ in range(iterations):
        items = _product(graph, "items", _product(graph, "users", items))
        values, vectors = basis.gram_eigen(items)
        # the singular values of RᵀR are squares: so is the limit of their ratio
        items = basis.times(items, vectors * _inverse(values.sqrt(), LEAST**2))
    users = _product(graph, "users", items)
    squares, vectors = basis.gram_eigen(users)
    found = squares.sqrt()[:dim]
    inverse, vectors = _inverse(found, LEAST), vectors[:, :dim]
    return SingularVectors(
        users=basis.times(users, vectors * inverse),
        items=basis.times(items, vectors * (inverse > 0)),
        values=(found * (inverse > 0)).float(),
    )


@torch.no_grad()
def spectral_start(
    tables: tuple[Tensor | None, Tensor],
    graph: Graph,
    deviation: float,
    generator: torch.Generator,
    *,
    dim: int,
    start: str = "svd",
    sharded: bool = False,
) -> None:
    """Overwrite random vectors with singular vectors, for linear message passing.

    With ``D_U^-½ X D_I^-½ ≈ U Σ Vᵀ``, vectors before training are

        users = s · U Σ^p        items = s · V Σ^p

    where p is ½, or 0 for dense data, and s gives each table the deviation of random vectors. A
    layer multiplies singular vectors by Σ and does nothing else, so an untrained network already
    scores by a low-rank approximation of the interactions, and training goes on from there. Their
    length grows with the root of the degree d of a node; on large sparse data training is better
    from vectors divided by √(d + 30), all but those of nodes with few interactions about equally
    long. Nodes without interactions and columns beyond the rank of the interactions stay random.

    Args:
        tables: Vectors of the users, or None, and of the items; of several ranks, their columns.
        graph: The training graph.
        deviation: Root mean square of the values.
        generator: Random generator of the SVD, on the CPU.
        dim: Columns of the tables, those of all ranks.
        start: "svd"; "svd-flat" for p = 0; "svd-even" for p = ½ with vectors divided by √(d + 30).
        sharded: Whether this rank holds only some of the columns.
    """
    found = truncated_svd(graph, dim, generator, sharded=sharded)
    own = ranks.own_columns(dim) if sharded else slice(0, dim)
    weight = found.values.sqrt()
    if start == "svd-flat":
        weight = (found.values > 0).to(found.values)
    degrees = torch.split(graph.degree, [graph.n_users, graph.n_items])
    for table, vectors, degree in zip(tables, (found.users, found.items), degrees, strict=True):
        if table is None:
            continue
        filled = int((degree > 0).sum()) * int((weight > 0).sum())
        # singular vectors have length 1, so the sum of squares is that of the weights
        total, new = weight.square().sum(), vectors * weight[own]
        if start == "svd-even":
            new *= (degree + PRIOR_DEGREE).rsqrt().unsqueeze(1)
            squares = torch.linalg.vector_norm(new, dtype=torch.float64).square()
            total = (ranks.add_up(squares) if sharded else squares).to(weight)
        new *= deviation / (total / max(filled, 1)).clamp(min=1e-30).sqrt()
        kept = (degree == 0).unsqueeze(1) | (weight[own] == 0)
        table.copy_(torch.where(kept, table, new))


def _product(graph: Graph, to: Side, x: Tensor) -> Tensor:
    """``R x`` to users, or ``Rᵀ x`` to items."""
    source: Side = "items" if to == "users" else "users"
    return propagation_step(graph, to, first_messages(graph, source, x), sends=False)[0]


def _inverse(values: Tensor, least: float) -> Tensor:
    """``1/x``, or 0 for values that are negligible beside the largest."""
    kept = values > least * values.max()
    return torch.where(kept, values, 1.0).reciprocal() * kept


@dataclass(frozen=True)
class _Columns:
    """Products of a table whose columns may be divided among ranks; every rank gets the same."""

    width: int
    sharded: bool

    def blocks(self, table: Tensor) -> Iterator[Tensor]:
        """All columns of the next rows."""
        for part in torch.split(table, BLOCK):
            yield columns.whole(part, self.width) if self.sharded else part

    def gram_eigen(self, table: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenvalues of ``tableᵀ table``, descending, and its eigenvectors; float64."""
        gram = torch.zeros(self.width, self.width, dtype=torch.float64, device=table.device)
        for block in self.blocks(table):
            block = block.double()
            gram.addmm_(block.T, block)
        values, vectors = torch.linalg.eigh(gram)
        values, vectors = values.flip(0).clamp(min=0).contiguous(), vectors.flip(1).contiguous()
        if self.sharded:
            ranks.broadcast(values, 0)
            ranks.broadcast(vectors, 0)
        return values, vectors

    def times(self, table: Tensor, matrix: Tensor) -> Tensor:
        """Own columns of ``table · matrix``; all are computed, so that any ranks agree exactly."""
        count = matrix.shape[1]
        own = ranks.own_columns(count) if self.sharded else slice(0, count)
        out = table.new_empty(len(table), own.stop - own.start)
        matrix = matrix.to(table.dtype)
        for block, rows in zip(self.blocks(table), torch.split(out, BLOCK), strict=True):
            rows.copy_((block @ matrix)[:, own])
        return out
