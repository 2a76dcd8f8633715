"""Linear message passing for a training step, which needs all items and few of the users.

The last layer is computed for the batch's users only, and the first layer of the gradient starts
from them only: of the ``4·depth`` products with the edges of one side, two become products with the
edges of the batch. Users and items are separate tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.graph.propagation import by_blocks, first_messages, propagation_step
from itemfold.ops.pair_blocks import by_item
from itemfold.ops.segment import segment_sum

MOST = 0.5  # largest fraction of the interactions in a batch; above it, all users cost little more


@dataclass(frozen=True)
class BatchEdges:
    """The interactions of some users, in the order of these users; a user may occur twice."""

    users: Tensor  # int64 [B]
    place: Tensor  # int64 [entries], positions among the edges of the graph
    starts: Tensor  # int32 [B + 1]
    items: Tensor  # int32 [entries]

    @classmethod
    def of(cls, graph: Graph, users: Tensor) -> BatchEdges | None:
        """The interactions of users ``[B]``; None on a GPU, or if they are most of the graph's.

        A step that is recorded on a GPU needs the same number of interactions every time.
        """
        if users.is_cuda:
            return None
        begin = graph.crow[users].long()
        size = graph.crow[users + 1].long() - begin
        starts = torch.cat([size.new_zeros(1), size.cumsum(0)])
        entries = int(starts[-1])
        if entries > MOST * (len(graph.col) // 2):
            return None
        place = torch.arange(entries) + torch.repeat_interleave(begin - starts[:-1], size)
        return cls(users, place, starts.int(), graph.col[place] - graph.n_users)

    def to_users(self, graph: Graph, messages: Tensor) -> Tensor:
        """``Â·messages`` of the batch's users; messages are those of `first_messages`."""
        if not by_blocks(graph, messages):
            weight = self.normalised(graph).to(messages.dtype)
            return segment_sum(self.starts, self.items, messages, weight=weight)
        own = None if graph.weight is None else graph.weight[self.place].to(messages.dtype)
        total = segment_sum(self.starts, self.items, messages, weight=own)
        return total * graph.inverse_root[self.users]

    def to_items(self, graph: Graph, x: Tensor) -> Tensor:
        """``Â·x`` of all items if only the batch's users have vectors, ``[B, d] → [items, d]``."""
        bounds, owner, weight = by_item(
            self.starts, self.items, self.normalised(graph), graph.n_items
        )
        return segment_sum(bounds, owner, x, weight=weight.to(x.dtype))

    def normalised(self, graph: Graph) -> Tensor:
        """The entries of ``Â``, float32 [entries]."""
        scale = graph.inverse_root.squeeze(1)
        out = torch.repeat_interleave(scale[self.users], self.starts.diff())
        out = out.mul_(scale[graph.n_users :].index_select(0, self.items))
        return out if graph.weight is None else out.mul_(graph.weight[self.place])


def propagate_batch(
    graph: Graph,
    tables: tuple[Tensor, Tensor],
    edges: BatchEdges,
    depth: int,
    *,
    first: int = 0,
    layer_weight: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """`propagate_layers` of ``[users, d], [items, d]`` for the batch's users and all items.

    Returns ``[B, d], [items, d]``.
    """
    settings = (graph, edges, depth, first, layer_weight)
    users, items = _PropagateBatch.apply(*tables, *settings)  # type: ignore[no-untyped-call]
    return users, items


class _PropagateBatch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        users: Tensor,
        items: Tensor,
        graph: Graph,
        edges: BatchEdges,
        depth: int,
        first: int,
        weight: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.settings = graph, edges, depth, first, weight
        of_users = first_messages(graph, "users", users, weight)
        of_items = first_messages(graph, "items", items, weight, of_users)
        for _ in range(depth - 1):
            _, (of_users, of_items) = _layer(graph, (of_users, of_items), (users, items), weight)
        base = None if first else items
        out, _ = propagation_step(graph, "items", of_users, base, weight, sends=False)
        rows = edges.to_users(graph, of_items)
        return rows if first else rows.add_(users[edges.users], alpha=weight), out

    @staticmethod
    def backward(ctx: Any, rows: Tensor, items: Tensor) -> tuple[Tensor | None, ...]:
        """The same layers, as for any symmetric product; the first has few users as sources."""
        graph, edges, depth, first, weight = ctx.settings
        more, base = depth > 1, depth > 1 or not first
        users, place = torch.unique(edges.users, return_inverse=True)
        # each user once, with the sum of their rows in full precision
        own = rows.new_zeros(len(users), rows.shape[1]).index_add_(0, place, rows)
        of_items = first_messages(graph, "items", items, weight)
        to_users, of_users = propagation_step(graph, "users", of_items, sends=more, writes=not more)
        to_items = edges.to_items(graph, rows).mul_(weight)
        if base:
            _add_rows(graph, users, own * weight, of_users if more else to_users, sent=more)
            to_items.add_(items, alpha=weight)
        if more:
            of_items = first_messages(graph, "items", to_items, keep=of_users)
        for left in reversed(range(depth - 1)):
            base, last = left > 0 or not first, left == 0
            (to_users, to_items), (of_users, of_items) = _layer(
                graph, (of_users, of_items), (None, items if base else None), weight, last=last
            )
            if base:
                table = to_users if last else of_users
                _add_rows(graph, users, own * weight, table, sent=not last)
        return to_users, to_items, *(None,) * 5


def _add_rows(graph: Graph, users: Tensor, rows: Tensor, to: Tensor, *, sent: bool) -> None:
    """Add rows to these users in a table of all users, or, if ``sent``, in one of their messages.

    All other users would add zeros: a table to fill and to read in every layer.
    """
    scaled = sent and by_blocks(graph, to)
    to.index_add_(0, users, (rows * graph.inverse_root[users] if scaled else rows).to(to.dtype))


def _layer(
    graph: Graph,
    messages: tuple[Tensor, Tensor],
    bases: tuple[Tensor | None, Tensor | None],
    weight: float,
    *,
    last: bool = False,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A layer of users and items, valid if it is the last, and their next messages otherwise."""
    (of_users, of_items), more = messages, not last
    to_users, after = propagation_step(
        graph, "users", of_items, bases[0], weight, sends=more, writes=last, keep=of_users
    )
    to_items, other = propagation_step(
        graph, "items", of_users, bases[1], weight, sends=more, writes=last, keep=after
    )
    return (to_users, to_items), (after, other)
