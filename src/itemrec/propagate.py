"""The one fast neighbourhood sum with its backward, on CPU and GPU; edges with weights: `edges`.

A symmetric graph is its own transpose, so the gradient of a sum over neighbours is the same sum.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from itemrec.bags import fused, row_sums
from itemrec.graph import Adjacency, Graph, Side, inverse_root


def neighbour_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``out[v] = Σ x[j]`` over what ``v`` hears; ``[sources, d] → [listeners, d]``."""
    if adjacency.symmetric and x.requires_grad:
        out: Tensor = _SymmetricSum.apply(x, adjacency, plain_sum)  # type: ignore[no-untyped-call]
        return out
    return plain_sum(adjacency, x)


def propagate(graph: Graph, x: Tensor) -> Tensor:
    """``Â x`` with ``Â = D^-1/2 A D^-1/2`` over all nodes, ``[nodes, d] → [nodes, d]``.

    The normalisation is part of the sum, and the scaled matrix is symmetric as well: scales of the
    nodes on a GPU, weights of the edges elsewhere, which cost next to nothing beside the gathered
    rows.
    """
    out: Tensor = _SymmetricSum.apply(x, graph, normalised_sum)  # type: ignore[no-untyped-call]
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
    if isinstance(adjacency, Graph):
        return propagate(adjacency, x)
    source = x * inverse_root(adjacency.source_degree)
    return neighbour_sum(adjacency, source) * inverse_root(adjacency.degree)


def plain_sum(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """`neighbour_sum`, weighed by edge or not, without gradients of its own."""
    told, order = as_gathered(adjacency, x)
    return row_sums(adjacency.crow, adjacency.col, told, weight=weight, order=order)


def as_gathered(adjacency: Adjacency, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Sources in the type they are read in, and the order of the rows, which only a GPU needs."""
    return x.to(adjacency.read) if fused(x) else x, adjacency.order if x.is_cuda else None


def normalised_sum(graph: Graph, x: Tensor) -> Tensor:
    """`propagate` without a gradient of its own."""
    return step(graph, None, tell(graph, None, x), tells=False)[0]


def _horner(graph: Graph, x: Tensor, *, depth: int, first: int, share: float) -> Tensor:
    out, told = x, tell(graph, None, x, share)
    for left in reversed(range(depth)):
        base = x if left or not first else None
        out, told = step(graph, None, told, base, share, tells=left > 0, writes=left == 0)
    return out


def _scale(graph: Graph, side: Side | None) -> Tensor:
    users = graph.n_users
    part = {"users": slice(users), "items": slice(users, None), None: slice(None)}[side]
    return graph.inverse_root[part]


def tell(graph: Graph, side: Side | None, x: Tensor, share: float = 1.0) -> Tensor:
    """What all nodes, or those of one side, tell their listeners at first, ``share·x``.

    On a GPU it is scaled here, once a node and not once an edge, and in the type of the graph.
    """
    if not fused(x):
        return x if share == 1 else x * share
    from itemrec.kernels import scaled_rows

    return scaled_rows(x, _scale(graph, side), share, graph.read)


def step(
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
        told, found = tell(graph, "items", items, share), dict[Side, Tensor]()
        if depth == 1:
            found["items"] = items * share
        for at in range(1, depth + 1):
            to, base = _side(at), None if at % 2 else items
            last = {"tells": at < depth, "writes": at >= depth - 1}  # the last two are the result
            found[to], told = step(graph, to, told, base, share, **last)
        return found["users"], found["items"]

    @staticmethod
    def backward(ctx: Any, users: Tensor, items: Tensor) -> tuple[Tensor, None, None, None]:
        graph, share, grads = ctx.graph, ctx.share, {"users": users, "items": items}
        side = _side(ctx.depth)
        out, told = users, tell(graph, side, grads[side], share)
        for at in reversed(range(ctx.depth)):
            to = _side(at)
            out, told = step(graph, to, told, grads[to], share, tells=at > 0, writes=at == 0)
        return out, None, None, None


def _side(depth: int) -> Side:
    """Who is not zero at a depth when only items start with vectors."""
    return "users" if depth % 2 else "items"
