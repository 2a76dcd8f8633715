"""The one fast neighbourhood sum with its backward, on CPU and GPU.

A symmetric graph is its own transpose, so the gradient of a sum over neighbours is the same sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from itemrec.bags import fused, row_dots, row_sums
from itemrec.graph import Adjacency, Graph, inverse_root


def neighbour_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``out[v] = Σ x[j]`` over what ``v`` hears; ``[sources, d] → [listeners, d]``."""
    if adjacency.symmetric and x.requires_grad:
        out: Tensor = _SymmetricSum.apply(x, adjacency, _sum)  # type: ignore[no-untyped-call]
        return out
    return _sum(adjacency, x)


def propagate(graph: Graph, x: Tensor) -> Tensor:
    """``D^-1/2 A D^-1/2 x`` over all nodes, ``[nodes, d] → [nodes, d]``.

    The normalisation is part of the sum, and the scaled matrix is symmetric as well: scales of the
    nodes on a GPU, weights of the edges elsewhere, which cost next to nothing beside the gathered
    rows and save two passes over all vectors.
    """
    product = _scaled_sum if fused(x) else _normalised_sum
    out: Tensor = _SymmetricSum.apply(x, graph, product)  # type: ignore[no-untyped-call]
    return out


def listen(adjacency: Adjacency, x: Tensor) -> Tensor:
    """`propagate` for any adjacency: each source is divided by √degree, each listener too."""
    source = x * inverse_root(adjacency.source_degree)
    return neighbour_sum(adjacency, source) * inverse_root(adjacency.degree)


def weighted_sum(adjacency: Adjacency, weight: Tensor, x: Tensor) -> Tensor:
    """``out[v] = Σ w[v,j]·x[j]`` with a weight an edge ``[edges]``; gradients to both."""
    if isinstance(adjacency, Graph):
        out: Tensor = _WeightedSum.apply(weight, x, adjacency)  # type: ignore[no-untyped-call]
        return out
    return _sum(adjacency, x, weight)


def edge_dot(adjacency: Adjacency, listeners: Tensor, sources: Tensor) -> Tensor:
    """``listeners[v]·sources[j]`` for every edge (v, j), gathered rows never written; [edges]."""
    return row_dots(adjacency.crow, adjacency.col, listeners, sources, order=adjacency.order)


def _sum(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    order = adjacency.order if x.is_cuda else None
    return row_sums(adjacency.crow, adjacency.col, x, weight=weight, order=order)


def _scaled_sum(graph: Graph, x: Tensor) -> Tensor:
    from itemrec.kernels import gather_sum

    scale = graph.inverse_root
    return gather_sum(graph.crow, graph.col, graph.order, x, source_scale=scale, scale=scale)


def _normalised_sum(graph: Graph, x: Tensor) -> Tensor:
    return _sum(graph, x, graph.edge_weight.to(x.dtype))


class _SymmetricSum(torch.autograd.Function):
    """A product with a symmetric matrix, which is its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adjacency: Adjacency, product: Any) -> Tensor:
        ctx.adjacency, ctx.product = adjacency, product
        out: Tensor = product(adjacency, x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.product(ctx.adjacency, grad), None, None


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(weight, x)
        return _sum(graph, x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weight, x = ctx.saved_tensors
        graph: Graph = ctx.graph
        grad_weight = grad_x = None
        if ctx.needs_input_grad[0]:
            grad_weight = edge_dot(graph, grad, x)
        if ctx.needs_input_grad[1]:  # the transpose has the same structure, its weights reordered
            grad_x = _sum(graph, grad, weight[graph.reverse])
        return grad_weight, grad_x, None
