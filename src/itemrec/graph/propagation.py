"""Fast neighbourhood sums with their gradient, on CPU and GPU; for trained weights see `edge_ops`.

A symmetric graph is its own transpose, so the gradient of a sum over neighbours is the same sum.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from itemrec.graph.graph import Adjacency, Graph, Side, inverse_root
from itemrec.ops.blocked_sum import blocked_sum, pieces
from itemrec.ops.segment import fused, segment_sum


def neighbour_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``out[v] = Σ a_vj x[j]`` over the sources of ``v``; ``[sources, d] → [targets, d]``."""
    if adjacency.symmetric and x.requires_grad:
        out: Tensor = _SymmetricSum.apply(x, adjacency, _own_sum)  # type: ignore[no-untyped-call]
        return out
    return _own_sum(adjacency, x)


def propagate(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``Â x`` with ``Â = D^-1/2 A D^-1/2``, ``[sources, d] → [targets, d]``.

    In a graph the normalisation is part of the sum, and the scaled matrix is symmetric as well: it
    scales nodes on a GPU and in a large graph, and weights edges elsewhere, at almost no cost
    compared with gathering the rows. For targets outside the graph, sources and targets are scaled
    separately.
    """
    if isinstance(adjacency, Graph):
        out: Tensor = _SymmetricSum.apply(x, adjacency, normalised_sum)  # type: ignore[no-untyped-call]
        return out
    source = x * inverse_root(adjacency.source_degree)
    return neighbour_sum(adjacency, source) * inverse_root(adjacency.degree)


def smooth(graph: Graph, x: Tensor, depth: int, *, first: int = 0, share: float = 1.0) -> Tensor:
    """``share · Σ_{l=first}^{depth} Âˡ x``: linear message passing and the sum of its layers.

    By Horner's rule, ``y ← share·x + Â y``, so that only one layer is stored at a time. ``first``
    is 0 or 1. A polynomial of a symmetric matrix is its own gradient.
    """
    product = functools.partial(_horner, depth=depth, first=first, share=share)
    out: Tensor = _SymmetricSum.apply(x, graph, product)  # type: ignore[no-untyped-call]
    return out


def smooth_items(
    graph: Graph, items: Tensor, depth: int, *, share: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`smooth` where users start from zero: user and item vectors ``[users, d], [items, d]``.

    A layer is then non-zero on one side only: messages reach users at odd depths and items at even
    ones, so half of the sums can be skipped. With R the user rows of Â: ``u ← R i``,
    ``i ← share·items + Rᵀ u``.
    """
    users, out = _SmoothItems.apply(items, graph, depth, share)  # type: ignore[no-untyped-call]
    return users, out


def plain_sum(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """`neighbour_sum` with these edge weights, or none, and without a custom gradient."""
    messages, order = as_gathered(adjacency, x)
    return segment_sum(adjacency.crow, adjacency.col, messages, weight=weight, order=order)


def _own_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """`plain_sum` with the adjacency's own weights, if it has any."""
    weight = adjacency.weight
    return plain_sum(adjacency, x, None if weight is None else weight.to(x.dtype))


def as_gathered(adjacency: Adjacency, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Sources in the type used for reading, and the order of the rows, which only a GPU needs."""
    return x.to(adjacency.read) if fused(x) else x, adjacency.order if x.is_cuda else None


def normalised_sum(graph: Graph, x: Tensor) -> Tensor:
    """`propagate` without a custom gradient."""
    return step(graph, None, first_messages(graph, None, x), sends=False)[0]


def _horner(graph: Graph, x: Tensor, *, depth: int, first: int, share: float) -> Tensor:
    out, messages = x, first_messages(graph, None, x, share)
    for left in reversed(range(depth)):
        base = x if left or not first else None
        out, messages = step(graph, None, messages, base, share, sends=left > 0, writes=left == 0)
    return out


def _scale(graph: Graph, side: Side | None) -> Tensor:
    users = graph.n_users
    part = {"users": slice(users), "items": slice(users, None), None: slice(None)}[side]
    return graph.inverse_root[part]


def first_messages(
    graph: Graph, side: Side | None, x: Tensor, share: float = 1.0, keep: Tensor | None = None
) -> Tensor:
    """The first messages of all nodes, or of one side: ``share·x``.

    On a GPU and in a large graph they are scaled here, once per node instead of once per edge, in
    the graph's type. On a GPU every edge of a graph with weights is scaled in `step`. In a large
    graph messages lie in memory that the graph reuses, followed by rows for sums; ``keep`` are
    messages that are still needed and must not be overwritten.
    """
    if by_blocks(graph, x):
        scale, out = _scale(graph, side) * share, _buffer(graph, side, x.shape[1], graph.read, keep)
        for part in pieces(len(x)):
            torch.mul(x[part], scale[part], out=out[part])
        return out
    if graph.weight is not None or not fused(x):
        return x if share == 1 else x * share
    from itemrec.ops.triton.segment import scaled_rows

    return scaled_rows(x, _scale(graph, side), share, graph.read)


def step(
    graph: Graph,
    to: Side | None,
    messages: Tensor,
    base: Tensor | None = None,
    share: float = 1.0,
    *,
    sends: bool = True,
    writes: bool = True,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``share·base + Â·messages`` of all nodes or of one side, and the next messages.

    The first is valid only with ``writes``, the second only with ``sends``. ``keep`` as in
    `first_messages`. A step of all nodes may overwrite ``messages``.
    """
    if by_blocks(graph, messages):
        columns, following = messages.shape[1], None
        out = torch.empty(len(_scale(graph, to)), columns) if writes else None
        if sends:
            following = _buffer(graph, to, columns, messages.dtype, messages, keep)
        _blocked_step(graph, to, messages, base, share, out, following)
        found = [x for x in (out, following) if x is not None]
        return found[0], found[-1]
    adjacency = graph if to is None else graph.sides[to]
    if graph.weight is None and fused(messages):
        from itemrec.ops.triton.segment import smooth_step

        scale = _scale(graph, to)
        rows = adjacency.crow, adjacency.col, adjacency.order
        return smooth_step(rows, messages, scale, base, share, sends=sends, writes=writes)
    half = len(graph.col) // 2
    part = {"users": slice(half), "items": slice(half, None), None: slice(None)}[to]
    weight = graph.edge_weight[part].to(messages.dtype)
    order = adjacency.order if messages.is_cuda else None
    out = segment_sum(adjacency.crow, adjacency.col, messages, weight=weight, order=order)
    return (out if base is None else out.add_(base, alpha=share),) * 2


def by_blocks(graph: Graph, x: Tensor) -> bool:
    """Whether sums over these sources go by blocks, as in a large graph on a CPU."""
    return graph.blocked and x.dtype in (torch.float32, torch.bfloat16)


def _buffer(
    graph: Graph, side: Side | None, columns: int, kind: torch.dtype, *used: Tensor | None
) -> Tensor:
    """Memory of the graph that is not in use, for messages and, behind them, sums of targets.

    Messages of one side go to all of the other. Those of all nodes need room for users only: when
    items are summed, their own messages have been read.
    """
    rows, number = graph.n_nodes + (graph.n_users if side is None else 0), 0
    while True:
        key = (rows, columns, kind, number)
        out = graph.scratch.setdefault(key, torch.empty(0, dtype=kind))
        if not any(out is other for other in used):
            return out.resize_(rows, columns)
        number += 1


def _blocked_step(
    graph: Graph,
    to: Side | None,
    messages: Tensor,
    base: Tensor | None,
    share: float,
    out: Tensor | None,
    following: Tensor | None,
) -> None:
    """`step` for a large graph on a CPU; rows are scaled while they are in the cache."""
    if to is None:
        users, nodes = graph.n_users, graph.n_nodes
        parts: tuple[tuple[Side, slice, slice], ...]
        parts = (
            ("users", slice(users), slice(users, None)),
            ("items", slice(users, nodes), slice(nodes)),  # the room is that of their messages
        )
        for side, rows, table in parts:
            cut = [None if x is None else x[rows] for x in (base, out, following)]
            _blocked_step(graph, side, messages[table], cut[0], share, *cut[1:])
        return
    scale = _scale(graph, to)

    def finish(part: slice, rows: Tensor) -> None:
        rows = rows.float()
        torch.mul(rows, scale[part], out=rows if out is None else out[part])
        rows = rows if out is None else out[part]
        if base is not None:
            rows.add_(base[part], alpha=share)
        if following is not None:
            following[part] = rows.mul_(scale[part]) if out is None else rows * scale[part]

    blocked_sum(graph.blocks[to], messages, len(scale), finish)


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
        messages, found = first_messages(graph, "items", items, share), dict[Side, Tensor]()
        if depth == 1:
            found["items"] = items * share
        for at in range(1, depth + 1):
            to, base = _side(at), None if at % 2 else items
            kept = at >= depth - 1  # the last two layers are the result
            found[to], messages = step(
                graph, to, messages, base, share, sends=at < depth, writes=kept
            )
        return found["users"], found["items"]

    @staticmethod
    def backward(ctx: Any, users: Tensor, items: Tensor) -> tuple[Tensor, None, None, None]:
        graph, share, grads = ctx.graph, ctx.share, {"users": users, "items": items}
        side = _side(ctx.depth)
        out, messages = users, first_messages(graph, side, grads[side], share)
        for at in reversed(range(ctx.depth)):
            to = _side(at)
            out, messages = step(
                graph, to, messages, grads[to], share, sends=at > 0, writes=at == 0
            )
        return out, None, None, None


def _side(depth: int) -> Side:
    """The side that is not zero at a depth if only items start with vectors."""
    return "users" if depth % 2 else "items"
