"""Operations on edge values: weighted neighbour sums, products and sums of both ends.

The edges of a graph are the entries (v, j) of its adjacency, row by row; `graph.reverse` gives
(j, v), so every gradient is a sum over a row as well.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from itemfold.graph.graph import Adjacency, Graph
from itemfold.graph.propagation import as_gathered, plain_sum
from itemfold.ops.segment import fused, sampled_dot, segment_max, segment_sum


def weighted_sum(adjacency: Adjacency, weight: Tensor, x: Tensor) -> Tensor:
    """``out[v] = Σ w[v,j]·x[j]`` with one weight per edge ``[edges]``; gradients to both.

    Weights ``[edges, heads]`` apply to as many equal parts of the columns.
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _WeightedSum.apply(weight, x, adjacency)  # type: ignore[no-untyped-call]
        return out
    return plain_sum(adjacency, x, weight)


def row_total(adjacency: Adjacency, weight: Tensor) -> Tensor:
    """``out[v] = Σ w[v,j]`` over a target's edges, ``[edges, heads] → [targets, heads]``.

    >>> import numpy as np, scipy.sparse as sp
    >>> graph = Graph.from_csr(sp.csr_array(np.array([[1., 1.]])))
    >>> row_total(graph, torch.tensor([[1.0], [2.0], [1.0], [2.0]])).squeeze(1).tolist()
    [3.0, 1.0, 2.0]
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _RowTotal.apply(weight, adjacency)  # type: ignore[no-untyped-call]
        return out
    return _total(adjacency, weight)


def edge_dot(
    adjacency: Adjacency, targets: Tensor, sources: Tensor, heads: int | None = None
) -> Tensor:
    """``targets[v]·sources[j]`` for every edge (v, j), without storing gathered rows; [edges].

    With ``heads`` one product per part of the columns, ``[edges, heads]``.
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _EdgeDot.apply(targets, sources, adjacency, heads)  # type: ignore[no-untyped-call]
        return out
    return _dot(adjacency, targets, sources, heads)


def edge_sum(adjacency: Adjacency, targets: Tensor, sources: Tensor) -> Tensor:
    """``targets[v] + sources[j]`` for every edge (v, j); ``[targets], [sources] → [edges]``."""
    if isinstance(adjacency, Graph):
        out: Tensor = _EdgeSum.apply(targets, sources, adjacency)  # type: ignore[no-untyped-call]
        return out
    return targets[adjacency.row] + sources[adjacency.col]


def both_ways(graph: Graph, values: Tensor) -> Tensor:
    """Copy values of interactions, ordered by user, to both directions: ``[E/2, n] → [E, n]``."""
    out: Tensor = _BothWays.apply(values, graph)  # type: ignore[no-untyped-call]
    return out


def largest_source(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``max_j values[j]`` over the sources of v, very low without sources; ``[targets]``."""
    order = adjacency.order if values.is_cuda else None
    return segment_max(adjacency.crow, adjacency.col, values, order=order)


def _dot(adjacency: Adjacency, targets: Tensor, sources: Tensor, heads: int | None) -> Tensor:
    messages, order = as_gathered(adjacency, sources)
    return sampled_dot(adjacency.crow, adjacency.col, targets, messages, heads=heads, order=order)


def _total(adjacency: Adjacency, weight: Tensor) -> Tensor:
    """Sum the edges of each row, which are stored consecutively."""
    each = torch.arange(len(weight), device=weight.device, dtype=adjacency.crow.dtype)
    order = adjacency.order if weight.is_cuda else None
    return segment_sum(adjacency.crow, each, weight, order=order)


def _at(values: Tensor, index: Tensor) -> Tensor:
    """``values[index]`` for values ``[n]`` or ``[n, heads]``."""
    if values.dim() == 2 and fused(values):
        from itemfold.ops.triton.segment import rows_at

        return rows_at(values, index)
    return values[index]


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(weight, x)
        return plain_sum(graph, x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, x = ctx.saved_tensors
        graph: Graph = ctx.graph
        grad_weight = grad_x = None
        if ctx.needs_input_grad[0]:
            grad_weight = _dot(graph, grad, x, None if weight.dim() == 1 else weight.shape[1])
        if ctx.needs_input_grad[1]:  # the transpose has the same structure and reordered weights
            grad_x = plain_sum(graph, grad, _at(weight, graph.reverse))
        return grad_weight, grad_x, None


class _RowTotal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return _total(graph, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _at(grad, ctx.graph.row), None


class _EdgeDot(torch.autograd.Function):
    """Its gradients are weighted sums over neighbours."""

    @staticmethod
    def forward(
        ctx: Any, targets: Tensor, sources: Tensor, graph: Graph, heads: int | None
    ) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(targets, sources)
        return _dot(graph, targets, sources, heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        targets, sources = ctx.saved_tensors
        graph: Graph = ctx.graph
        to_targets = plain_sum(graph, sources, grad.contiguous())
        return to_targets, plain_sum(graph, targets, _at(grad, graph.reverse)), None, None


class _EdgeSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, targets: Tensor, sources: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return targets[graph.row] + sources[graph.col]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        graph: Graph = ctx.graph
        weights = torch.stack([grad, grad[graph.reverse]], dim=1)
        to_targets, to_sources = _total(graph, weights).T
        return to_targets, to_sources, None


class _BothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return torch.cat([values, _at(values, graph.reverse[len(values) :])])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        half = len(grad) // 2
        return grad[:half] + _at(grad, ctx.graph.reverse[:half]), None
