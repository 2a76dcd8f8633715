"""The interaction graph in CSR form: targets, their sources, and node degrees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.weights import is_weighted
from itemfold.errors import ItemfoldError
from itemfold.graph.both_directions import both_directions
from itemfold.ops.blocked_sum import SourceBlock, source_blocks
from itemfold.ops.segment import MOST_NARROW

LARGE = 1 << 18  # nodes whose vectors exceed a CPU's cache: 64 MB at 64 columns

Side = Literal["users", "items"]
SIDES: tuple[Side, Side] = ("users", "items")


@dataclass(frozen=True)
class Adjacency:
    """Targets (rows) and the sources of their messages (columns), with or without weights.

    In a whole graph targets and sources are the same nodes; when new users are folded in, the
    targets are those users and the sources are the items they interacted with. With weights, a
    degree is the sum of the absolute weights of a node; disliked items have negative ones.
    """

    crow: Tensor  # int32 [targets + 1], int64 if there are 2**31 edges or more
    col: Tensor  # int32 [edges], ascending within a row
    degree: Tensor  # float32 [targets]
    source_degree: Tensor  # float32 [sources], degrees in the training graph
    weight: Tensor | None = field(default=None, kw_only=True)  # float32 [edges]; None: all are 1

    @property
    def read(self) -> torch.dtype:
        """The type in which a GPU gathers the sources' vectors; sums are float32."""
        return torch.float32

    def become(self, other: Adjacency) -> None:
        """Overwrite the edges with those of another adjacency of the same size.

        A step recorded as a CUDA graph reads this memory and then uses the new edges.
        """
        for name in ("blocks", "scratch"):  # of the old edges, and only on a CPU
            vars(self).pop(name, None)
        for name, value in vars(self).items():
            new_value = getattr(other, name)
            if isinstance(value, Tensor):
                value.copy_(new_value)
            elif isinstance(value, dict):  # the sides
                for side, adjacency in value.items():
                    adjacency.become(new_value[side])

    @cached_property
    def row(self) -> Tensor:
        """The target of every edge, int64 [edges]."""
        counts = self.crow.diff().long()
        return torch.repeat_interleave(
            torch.arange(len(counts), device=self.crow.device), counts, output_size=len(self.col)
        )

    @cached_property
    def order(self) -> Tensor:
        """Rows, longest first, int64 [targets]: the order in which a GPU kernel starts them."""
        return torch.argsort(self.degree, descending=True, stable=True)


@dataclass(frozen=True)
class Graph(Adjacency):
    """Symmetric bipartite graph: nodes are all users, then all items."""

    n_users: int
    n_items: int
    half: bool = False

    @property
    def read(self) -> torch.dtype:
        """bfloat16 with `half`: half the bytes; rounding errors average out in the sums."""
        return torch.bfloat16 if self.half else torch.float32

    @classmethod
    def from_csr(cls, train: sp.csr_array, device: torch.device | str = "cpu") -> Graph:
        """Both directions of the training interactions ``[users, items]``.

        >>> import numpy as np, scipy.sparse as sp
        >>> graph = Graph.from_csr(sp.csr_array(np.array([[1., 1.], [0., 1.]])))
        >>> graph.degree.tolist()  # two users, then two items
        [2.0, 1.0, 1.0, 2.0]
        """
        n_users, n_items = train.shape
        if (nodes := n_users + n_items) >= 2**31:
            raise ItemfoldError(f"a graph must have fewer than 2**31 nodes, got {nodes:,}")
        forward = sp.csr_array(train)
        if not forward.has_sorted_indices:
            forward = forward.sorted_indices()  # a copy: the caller's matrix is not modified
        on_cpu = torch.device(device).type == "cpu"
        crow, col, weight, degree = both_directions(forward, may_map=on_cpu)
        degrees = torch.from_numpy(degree).to(device)
        return cls(
            crow=torch.from_numpy(crow.astype(row_type(len(col)))).to(device),
            col=torch.from_numpy(col).to(device),
            degree=degrees,
            source_degree=degrees,
            n_users=n_users,
            n_items=n_items,
            weight=None if weight is None else torch.from_numpy(weight).to(device),
        )

    @property
    def n_nodes(self) -> int:
        """Users and items together."""
        return self.n_users + self.n_items

    @property
    def item_degree(self) -> Tensor:
        """Training interactions of each item, or the sum of their weights, float32 [items]."""
        return self.degree[self.n_users :]

    @property
    def history_length(self) -> Tensor:
        """Training interactions of each user, int32 [users]."""
        return self.crow[: self.n_users + 1].diff().int()

    @cached_property
    def sides(self) -> dict[Side, Adjacency]:
        """Messages from items to users and from users to items, each side numbered from 0."""
        return {side: self._edges_to(side) for side in SIDES}

    def _edges_to(self, side: Side) -> Adjacency:
        half, n, weight = len(self.col) // 2, self.n_users, self.weight
        users, items = self.degree[:n], self.degree[n:]
        if side == "users":
            own = None if weight is None else weight[:half]
            return Adjacency(self.crow[: n + 1], self.col[:half] - n, users, items, weight=own)
        own = None if weight is None else weight[half:]
        return Adjacency(self.crow[n:] - half, self.col[half:], items, users, weight=own)

    @property
    def blocked(self) -> bool:
        """Whether sums are computed by `blocks`: on a CPU, if the graph is large."""
        return self.n_nodes >= LARGE and not self.col.is_cuda

    @cached_property
    def scratch(self) -> dict[tuple[int, int, torch.dtype, int], Tensor]:
        """Memory for layers between the first and the last; new memory costs as much as a sum."""
        return {}

    @cached_property
    def blocks(self) -> dict[Side, tuple[SourceBlock, ...]]:
        """The edges to each side, grouped by blocks of sources; each side numbered from 0."""
        out: dict[Side, tuple[SourceBlock, ...]] = {}
        for side in SIDES:
            to = self._edges_to(side)  # not kept: in a large graph it would be half of its memory
            out[side] = source_blocks(to.crow, to.col, len(to.source_degree), to.weight)
        return out

    @cached_property
    def inverse_root(self) -> Tensor:
        """``d^-1/2`` as a column, 0 for a node without neighbours, float32 [nodes, 1]."""
        return inverse_root(self.degree)

    @cached_property
    def edge_weight(self) -> Tensor:
        """``a/√(d_v·d_j)`` of every edge, float32 [edges]: the entries of ``D^-1/2 A D^-1/2``."""
        scale = self.inverse_root.squeeze(1)
        target = torch.repeat_interleave(scale, self.crow.diff(), output_size=len(self.col))
        out = target.mul_(scale.index_select(0, self.col))
        return out if self.weight is None else out.mul_(self.weight)

    @cached_property
    def reverse(self) -> Tensor:
        """Position of each edge's opposite direction, int64 [edges].

        Both halves hold the same interactions, one ordered by user and one by item, so a stable
        sort of the first half by item gives the order of the second half.
        """
        half = len(self.col) // 2
        order = torch.sort(self.col[:half], stable=True).indices
        back = torch.empty(2 * half, dtype=torch.int64, device=self.col.device)
        back[half:] = order
        back[order] = torch.arange(half, 2 * half, device=self.col.device)
        return back

    def interactions(self) -> sp.csr_array:
        """The training interactions as a matrix, ``[users, items]``."""
        crow = self.crow[: self.n_users + 1].cpu().numpy()
        col = self.col[: int(crow[-1])].cpu().numpy() - self.n_users
        data = np.ones(len(col), dtype=np.float32)
        if self.weight is not None:
            data = self.weight[: len(col)].cpu().numpy()
        return sp.csr_array((data, col, crow), shape=(self.n_users, self.n_items))

    def with_users(self, history: sp.csr_array) -> Graph:
        """The graph with new users of these histories added after the known ones."""
        joined = sp.csr_array(sp.vstack([self.interactions(), history]))
        return Graph.from_csr(joined, self.crow.device)

    def drop_edges(self, share: float, generator: torch.Generator) -> Graph:
        """A copy without a random share of the interactions; the number dropped is fixed."""
        half = len(self.col) // 2
        drawn = torch.randperm(half, generator=generator, device=generator.device)
        keep = torch.ones(half, dtype=torch.bool, device=self.col.device)
        keep[drawn[: round(share * half)].to(self.col.device)] = False
        keep = torch.cat([keep, keep[self.reverse[half:]]])
        kind = self.crow.dtype
        ends = torch.cat([keep.new_zeros(1, dtype=kind), keep.cumsum(0, dtype=kind)])
        crow = ends[self.crow.long()]
        weight = None if self.weight is None else self.weight[keep]
        degree = row_degrees(crow, weight)
        return replace(
            self, crow=crow, col=self.col[keep], degree=degree, source_degree=degree, weight=weight
        )


def row_type(edges: int) -> type[np.signedinteger[Any]]:
    """The integer type of positions among so many edges: 32 bits while they suffice."""
    return np.int32 if edges <= MOST_NARROW else np.int64


def row_degrees(crow: Tensor, weight: Tensor | None) -> Tensor:
    """The number of entries of each row, or the sum of their weights, float32 [rows]."""
    if weight is None:
        return crow.diff().float()
    return torch.segment_reduce(weight, "sum", offsets=crow.long(), axis=0, initial=0.0)


def inverse_root(degree: Tensor) -> Tensor:
    """``d^-1/2`` as a column, 0 where the degree is 0."""
    return torch.where(degree > 0, degree, 1.0).rsqrt().mul(degree > 0).unsqueeze(1)


def fold_adjacency(history: sp.csr_array, item_degree: Tensor) -> Adjacency:
    """New users (rows of ``history``) as targets of items; item degrees are unchanged."""
    device = item_degree.device
    crow = torch.from_numpy(history.indptr.astype(row_type(history.nnz))).to(device)
    col = torch.from_numpy(history.indices.astype(np.int32)).to(device)
    if not is_weighted(history):
        return Adjacency(crow, col, crow.diff().float(), item_degree)
    weight = torch.from_numpy(history.data.astype(np.float32)).to(device)
    degree = np.asarray(abs(history).sum(axis=1, dtype=np.float64)).astype(np.float32)
    return Adjacency(crow, col, torch.from_numpy(degree).to(device), item_degree, weight=weight)
