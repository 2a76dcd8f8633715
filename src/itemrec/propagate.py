"""The one fast neighbourhood sum with its backward, on CPU and GPU.

A symmetric graph is its own transpose, so the gradient of a sum over neighbours is the same sum.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from itemrec.bags import fused, row_dots, row_max, row_sums
from itemrec.graph import Adjacency, Graph, Side, inverse_root


def neighbour_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``out[v] = Σ x[j]`` over what ``v`` hears; ``[sources, d] → [listeners, d]``."""
    if adjacency.symmetric and x.requires_grad:
        out: Tensor = _SymmetricSum.apply(x, adjacency, _sum)  # type: ignore[no-untyped-call]
        return out
    return _sum(adjacency, x)


def propagate(graph: Graph, x: Tensor) -> Tensor:
    """``Â x`` with ``Â = D^-1/2 A D^-1/2`` over all nodes, ``[nodes, d] → [nodes, d]``.

    The normalisation is part of the sum, and the scaled matrix is symmetric as well: scales of the
    nodes on a GPU, weights of the edges elsewhere, which cost next to nothing beside the gathered
    rows.
    """
    out: Tensor = _SymmetricSum.apply(x, graph, _normalised_sum)  # type: ignore[no-untyped-call]
    return out


def smooth(graph: Graph, x: Tensor, depth: int, *, first: int = 0, share: float = 1.0) -> Tensor:
    """``share · Σ_{l=first}^{depth} Âˡ x``: linear message passing and the sum of its layers.

    By Horner's rule, ``y ← share·x + Â y``, so that no layer is ever written beside another;
    ``first`` is 0 or 1. A polynomial of a symmetric matrix is its own gradient.
    """
    product = functools.partial(_horner, depth=depth, first=first, share=share)
    out: Tensor = _SymmetricSum.apply(x, graph, product)  # type: ignore[no-untyped-call]
    return out


def smooth_items(
    graph: Graph, items: Tensor, depth: int, *, share: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`smooth` where users start from zero: user and item vectors ``[users, d], [items, d]``.

    A layer then lives on one side: users hear at odd depths and items at even ones, so half of the
    sums are not made. With R the user rows of Â: ``u ← R i``, ``i ← share·items + Rᵀ u``.
    """
    users, out = _SmoothItems.apply(items, graph, depth, share)  # type: ignore[no-untyped-call]
    return users, out


def listen(adjacency: Adjacency, x: Tensor) -> Tensor:
    """`propagate` for any adjacency: each source is divided by √degree, each listener too."""
    source = x * inverse_root(adjacency.source_degree)
    return neighbour_sum(adjacency, source) * inverse_root(adjacency.degree)


def weighted_sum(adjacency: Adjacency, weight: Tensor, x: Tensor) -> Tensor:
    """``out[v] = Σ w[v,j]·x[j]`` with a weight an edge ``[edges]``; gradients to both.

    ``[edges, heads]`` weighs as many equal parts of the columns, each with its own.
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _WeightedSum.apply(weight, x, adjacency)  # type: ignore[no-untyped-call]
        return out
    return _sum(adjacency, x, weight)


def row_total(adjacency: Adjacency, weight: Tensor) -> Tensor:
    """``out[v] = Σ w[v,j]``: a listener's edge weights ``[edges, heads] → [listeners, heads]``.

    >>> import numpy as np, scipy.sparse as sp
    >>> graph = Graph.from_csr(sp.csr_array(np.array([[1., 1.]])))
    >>> row_total(graph, torch.tensor([[1.0], [2.0], [1.0], [2.0]])).squeeze(1).tolist()
    [3.0, 1.0, 2.0]
    """
    ones = weight.new_ones(len(adjacency.source_degree), weight.shape[1])
    if isinstance(adjacency, Graph):
        out: Tensor = _RowTotal.apply(weight, ones, adjacency)  # type: ignore[no-untyped-call]
        return out
    return _sum(adjacency, ones, weight)


def edge_dot(
    adjacency: Adjacency, listeners: Tensor, sources: Tensor, heads: int | None = None
) -> Tensor:
    """``listeners[v]·sources[j]`` for every edge (v, j), gathered rows never written; [edges].

    With ``heads`` a product for each part of the columns, ``[edges, heads]``.
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _EdgeDot.apply(listeners, sources, adjacency, heads)  # type: ignore[no-untyped-call]
        return out
    return _dot(adjacency, listeners, sources, heads)


def edge_sum(adjacency: Adjacency, listeners: Tensor, sources: Tensor) -> Tensor:
    """``listeners[v] + sources[j]`` for every edge (v, j); ``[listeners], [sources] → [edges]``."""
    if isinstance(adjacency, Graph):
        out: Tensor = _EdgeSum.apply(listeners, sources, adjacency)  # type: ignore[no-untyped-call]
        return out
    return listeners[adjacency.row] + sources[adjacency.col]


def both_ways(graph: Graph, values: Tensor) -> Tensor:
    """Values of the interactions, by user, for both directions: ``[edges/2, n] → [edges, n]``."""
    out: Tensor = _BothWays.apply(values, graph)  # type: ignore[no-untyped-call]
    return out


def largest_source(adjacency: Adjacency, values: Tensor) -> Tensor:
    """``max_j values[j]`` over what v hears, very low where v hears nothing; ``[listeners]``."""
    return row_max(adjacency.crow, adjacency.col, values, order=_order(adjacency, values))


def _order(adjacency: Adjacency, x: Tensor) -> Tensor | None:
    return adjacency.order if x.is_cuda else None


def _read(adjacency: Adjacency, x: Tensor) -> Tensor:
    """The sources as they are gathered."""
    return x.to(adjacency.read) if fused(x) else x


def _sum(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    order = _order(adjacency, x)
    return row_sums(adjacency.crow, adjacency.col, _read(adjacency, x), weight=weight, order=order)


def _dot(adjacency: Adjacency, listeners: Tensor, sources: Tensor, heads: int | None) -> Tensor:
    order = _order(adjacency, sources)
    told = _read(adjacency, sources)
    return row_dots(adjacency.crow, adjacency.col, listeners, told, heads=heads, order=order)


def _normalised_sum(graph: Graph, x: Tensor) -> Tensor:
    return _step(graph, None, _tell(graph, None, x), tells=False)[0]


def _horner(graph: Graph, x: Tensor, *, depth: int, first: int, share: float) -> Tensor:
    out, told = x, _tell(graph, None, x, share)
    for left in reversed(range(depth)):
        base = x if left or not first else None
        out, told = _step(graph, None, told, base, share, tells=left > 0, writes=left == 0)
    return out


def _scale(graph: Graph, side: Side | None) -> Tensor:
    users = graph.n_users
    part = {"users": slice(users), "items": slice(users, None), None: slice(None)}[side]
    return graph.inverse_root[part]


def _tell(graph: Graph, side: Side | None, x: Tensor, share: float = 1.0) -> Tensor:
    """What all nodes, or those of one side, tell their listeners at first, ``share·x``.

    On a GPU it is scaled here, once a node and not once an edge, and in the type of the graph.
    """
    if not fused(x):
        return x if share == 1 else x * share
    from itemrec.kernels import scaled_rows

    return scaled_rows(x, _scale(graph, side), share, graph.read)


def _step(
    graph: Graph,
    to: Side | None,
    told: Tensor,
    base: Tensor | None = None,
    share: float = 1.0,
    *,
    tells: bool = True,
    writes: bool = True,
) -> tuple[Tensor, Tensor]:
    """``share·base + Â·told`` of all nodes or of those who listen, and what these tell next."""
    adjacency = graph if to is None else graph.sides[to]
    if fused(told):
        from itemrec.kernels import smooth_step

        scale = _scale(graph, to)
        return smooth_step(adjacency, told, scale, base, share, tells=tells, writes=writes)
    half = len(graph.col) // 2
    part = {"users": slice(half), "items": slice(half, None), None: slice(None)}[to]
    weight = graph.edge_weight[part].to(told.dtype)
    out = row_sums(adjacency.crow, adjacency.col, told, weight=weight)
    return (out if base is None else out.add_(base, alpha=share),) * 2


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


class _SmoothItems(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, items: Tensor, graph: Graph, depth: int, share: float
    ) -> tuple[Tensor, Tensor]:
        ctx.graph, ctx.depth, ctx.share = graph, depth, share
        told, found = _tell(graph, "items", items, share), dict[Side, Tensor]()
        if depth == 1:
            found["items"] = items * share
        for at in range(1, depth + 1):
            to, base = _side(at), None if at % 2 else items
            last = {"tells": at < depth, "writes": at >= depth - 1}  # the last two are the result
            found[to], told = _step(graph, to, told, base, share, **last)
        return found["users"], found["items"]

    @staticmethod
    def backward(ctx: Any, users: Tensor, items: Tensor) -> tuple[Tensor, None, None, None]:
        graph, share, grads = ctx.graph, ctx.share, {"users": users, "items": items}
        side = _side(ctx.depth)
        out, told = users, _tell(graph, side, grads[side], share)
        for at in reversed(range(ctx.depth)):
            to = _side(at)
            out, told = _step(graph, to, told, grads[to], share, tells=at > 0, writes=at == 0)
        return out, None, None, None


def _side(depth: int) -> Side:
    """Who is not zero at a depth when only items start with vectors."""
    return "users" if depth % 2 else "items"


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
            grad_weight = _dot(graph, grad, x, None if weight.dim() == 1 else weight.shape[1])
        if ctx.needs_input_grad[1]:  # the transpose has the same structure, its weights reordered
            grad_x = _sum(graph, grad, weight[graph.reverse])
        return grad_weight, grad_x, None


class _RowTotal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ones: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return _sum(graph, ones, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad[ctx.graph.row], None, None


class _EdgeDot(torch.autograd.Function):
    """Its gradients are weighted sums over neighbours."""

    @staticmethod
    def forward(
        ctx: Any, listeners: Tensor, sources: Tensor, graph: Graph, heads: int | None
    ) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(listeners, sources)
        return _dot(graph, listeners, sources, heads)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        listeners, sources = ctx.saved_tensors
        graph: Graph = ctx.graph
        to_listeners = _sum(graph, sources, grad.contiguous())
        return to_listeners, _sum(graph, listeners, grad[graph.reverse]), None, None


class _EdgeSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, listeners: Tensor, sources: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return listeners[graph.row] + sources[graph.col]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        graph: Graph = ctx.graph
        weights = torch.stack([grad, grad[graph.reverse]], dim=1)
        ones = grad.new_ones(graph.n_nodes, 2)
        to_listeners, to_sources = _sum(graph, ones, weights).T
        return to_listeners, to_sources, None


class _BothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        return torch.cat([values, values[graph.reverse[len(values) :]]])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        half = len(grad) // 2
        return grad[:half] + grad[ctx.graph.reverse[:half]], None
