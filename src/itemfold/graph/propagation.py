"""Neighbourhood sums and linear message passing, with their gradients, on CPU and GPU.

A symmetric graph is its own transpose, so the gradient of a sum over neighbours is the same sum.
`models/lightgcn.py` defines what `propagate_layers` computes; `edge_ops` has trained edge weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from itemfold.graph.graph import Adjacency, Graph, Side, inverse_root
from itemfold.ops.blocked_sum import blocked_sum, cached_slices
from itemfold.ops.segment import fused, segment_sum


def neighbour_sum(adjacency: Adjacency, x: Tensor) -> Tensor:
    """``out[v] = Σ a_vj x[j]`` over the sources of ``v``; ``[sources, d] → [targets, d]``."""
    if isinstance(adjacency, Graph) and x.requires_grad:
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


def propagate_layers(
    graph: Graph, x: Tensor, depth: int, *, first: int = 0, layer_weight: float = 1.0
) -> Tensor:
    """``w · Σ_{l=first}^{depth} Âˡ x`` with ``w = layer_weight``: all layers and their sum.

    By Horner's rule, ``y ← w·x + Â y``, so that only one layer is stored at a time. ``first`` is 0
    or 1. A polynomial of a symmetric matrix is its own gradient.
    """

    def horner(graph: Graph, x: Tensor) -> Tensor:
        y, messages = x, first_messages(graph, None, x, layer_weight)
        for left in reversed(range(depth)):
            base = x if left or not first else None
            y, messages = propagation_step(
                graph, None, messages, base, layer_weight, sends=left > 0, writes=left == 0
            )
        return y

    out: Tensor = _SymmetricSum.apply(x, graph, horner)  # type: ignore[no-untyped-call]
    return out


def propagate_items(
    graph: Graph, items: Tensor, depth: int, *, layer_weight: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`propagate_layers` where users start from zero: vectors ``[users, d], [items, d]``.

    A layer is then non-zero on one side only: messages reach users at odd depths and items at even
    ones, so half of the sums are skipped. With R the user rows of Â: ``u ← R i``,
    ``i ← w·items + Rᵀ u``.
    """
    users, out = _PropagateItems.apply(items, graph, depth, layer_weight)  # type: ignore[no-untyped-call]
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
    return propagation_step(graph, None, first_messages(graph, None, x), sends=False)[0]


def _scale(graph: Graph, side: Side | None) -> Tensor:
    users = graph.n_users
    part = {"users": slice(users), "items": slice(users, None), None: slice(None)}[side]
    return graph.inverse_root[part]


def first_messages(
    graph: Graph, side: Side | None, x: Tensor, weight: float = 1.0, keep: Tensor | None = None
) -> Tensor:
    """``weight·x`` as the first messages of all nodes, or of one side.

    On a GPU and in a large graph this scales them by ``d^-1/2``, once per node instead of once per
    edge, in the graph's type; on a GPU a graph with edge weights is scaled in `propagation_step`.
    In a large graph messages lie in memory that the graph reuses, followed by rows for sums;
    ``keep`` are messages that are still needed and must not be overwritten.
    """
    if by_blocks(graph, x):
        scale = _scale(graph, side) * weight
        out = _buffer(graph, side, x.shape[1], graph.read, keep)
        for part in cached_slices(len(x)):
            torch.mul(x[part], scale[part], out=out[part])
        return out
    if graph.weight is not None or not fused(x):
        return x if weight == 1 else x * weight
    from itemfold.ops.triton.segment import scaled_rows

    return scaled_rows(x, _scale(graph, side), weight, graph.read)


def propagation_step(
    graph: Graph,
    to: Side | None,
    messages: Tensor,
    base: Tensor | None = None,
    base_weight: float = 1.0,
    *,
    sends: bool = True,
    writes: bool = True,
    keep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``base_weight·base + Â·messages`` of all nodes or of one side, and the next messages.

    The first is valid only with ``writes``, the second only with ``sends``. ``keep`` as in
    `first_messages`. A step of all nodes may overwrite ``messages``.
    """
    if by_blocks(graph, messages):
        columns, following = messages.shape[1], None
        out = torch.empty(len(_scale(graph, to)), columns) if writes else None
        if sends:
            following = _buffer(graph, to, columns, messages.dtype, messages, keep)
        _blocked_step(graph, to, messages, base, base_weight, out, following)
        found = [x for x in (out, following) if x is not None]
        return found[0], found[-1]
    adjacency = graph if to is None else graph.sides[to]
    if graph.weight is None and fused(messages):
        from itemfold.ops.triton.segment import smooth_step

        scale = _scale(graph, to)
        rows = adjacency.crow, adjacency.col, adjacency.order
        return smooth_step(rows, messages, scale, base, base_weight, sends=sends, writes=writes)
    half = len(graph.col) // 2
    part = {"users": slice(half), "items": slice(half, None), None: slice(None)}[to]
    weight = graph.edge_weight[part].to(messages.dtype)
    order = adjacency.order if messages.is_cuda else None
    out = segment_sum(adjacency.crow, adjacency.col, messages, weight=weight, order=order)
    return (out if base is None else out.add_(base, alpha=base_weight),) * 2


def by_blocks(graph: Graph, x: Tensor) -> bool:
    """Whether sums over these sources go by blocks, as in a large graph on a CPU."""
    return graph.blocked and x.dtype in (torch.float32, torch.bfloat16)


def _buffer(
    graph: Graph, side: Side | None, columns: int, kind: torch.dtype, *used: Tensor | None
) -> Tensor:
    """Memory of the graph that is not in use, for messages and, behind them, sums of targets.

    Messages of one side go to all of the other. Those of all nodes need extra rows for users only:
    when items are summed, their own messages have been read.
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
    base_weight: float,
    out: Tensor | None,
    following: Tensor | None,
) -> None:
    """`propagation_step` for a large graph on a CPU; scales rows while they are in the cache."""
    if to is None:
        users, nodes = graph.n_users, graph.n_nodes
        parts: tuple[tuple[Side, slice, slice], ...]
        parts = (
            ("users", slice(users), slice(users, None)),
            ("items", slice(users, nodes), slice(nodes)),  # sums overwrite their own messages
        )
        for side, rows, table in parts:
            cut = [None if x is None else x[rows] for x in (base, out, following)]
            _blocked_step(graph, side, messages[table], cut[0], base_weight, *cut[1:])
        return
    scale = _scale(graph, to)

    def finish(part: slice, rows: Tensor) -> None:
        rows = rows.float()
        torch.mul(rows, scale[part], out=rows if out is None else out[part])
        rows = rows if out is None else out[part]
        if base is not None:
            rows.add_(base[part], alpha=base_weight)
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


class _PropagateItems(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, items: Tensor, graph: Graph, depth: int, weight: float
    ) -> tuple[Tensor, Tensor]:
        ctx.graph, ctx.depth, ctx.weight = graph, depth, weight
        messages, found = first_messages(graph, "items", items, weight), dict[Side, Tensor]()
        if depth == 1:
            found["items"] = items * weight
        for at in range(1, depth + 1):
            to, base = _side(at), None if at % 2 else items
            kept = at >= depth - 1  # the last two layers are the result
            found[to], messages = propagation_step(
                graph, to, messages, base, weight, sends=at < depth, writes=kept
            )
        return found["users"], found["items"]

    @staticmethod
    def backward(ctx: Any, users: Tensor, items: Tensor) -> tuple[Tensor, None, None, None]:
        graph, weight, grads = ctx.graph, ctx.weight, {"users": users, "items": items}
        side = _side(ctx.depth)
        out, messages = users, first_messages(graph, side, grads[side], weight)
        for at in reversed(range(ctx.depth)):
            to = _side(at)
            out, messages = propagation_step(
                graph, to, messages, grads[to], weight, sends=at > 0, writes=at == 0
            )
        return out, None, None, None


def _side(depth: int) -> Side:
    """The side that is not zero at a depth if only items start with vectors."""
    return "users" if depth % 2 else "items"
