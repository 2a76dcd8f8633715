"""The base class of linear message-passing encoders: LightGCN's messages."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.batch_propagation import BatchEdges, propagate_batch
from itemfold.graph.graph import Adjacency, Graph, fold_adjacency, inverse_root
from itemfold.graph.propagation import neighbour_sum, propagate, propagate_items, propagate_layers
from itemfold.graph.spectral import spectral_start
from itemfold.models.gnn import GNN, Pooling, split_nodes
from itemfold.sampling.base import Encoded
from itemfold.validation import one_of

Start = Literal["random", "svd", "svd-flat", "svd-even"]
STARTS = get_args(Start)


class LinearGNN(GNN):
    """Linear message passing, `h⁽ˡ⁺¹⁾ = Â h⁽ˡ⁾` with `Â = D^-1/2 A D^-1/2`, then pooling.

    The vector of a new user with history H is a weighted sum of stored item vectors, and each
    history item's share of a score is exact:

        u = Σ_{i∈H} f_i / √|H|        f_i = pool(0, h⁰_i … hᴸ⁻¹_i) / √d_i

    With weights w it is `Σ w_i f_i / √Σ|w_i|`, and degrees are sums of weights.

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean,
            or the sum in the inductive protocol.
        start: Vectors before training: "random"; "svd", the singular vectors of the normalised
            interactions times the roots of the singular values, from which a few epochs suffice;
            "svd-flat", without the roots, which is better on dense data; or "svd-even", with
            vectors of similar length, which is better on large sparse data.

    Attributes:
        encodes_batch_users: Whether a training step on a CPU may compute the vectors of the batch's
            users only, from the two tables of parameters. Not inherited: a subclass that overrides
            neither `base` nor `encode` may set it again.

    Examples:
        >>> from itemfold.models import LinearGNN
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, LinearGNN(dim=8), epochs=2)
        >>> picks = ir.Recommender(run).recommend(history=[3, 5], k=1, explain=True)
        >>> abs(picks[0].score - sum(reason.share for reason in picks[0].reasons)) < 1e-5
        True
    """

    explains = True
    weighs: tuple[str, ...] = ("graph", "loss")
    by_columns = True
    encodes_batch_users: ClassVar[bool] = True
    first: ClassVar[int] = 0  # the first layer that is pooled

    fold_table: Tensor  # [items, d]

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        start: Start = "random",
    ) -> None:
        super().__init__(dim, layers, pooling)
        one_of("start", start, STARTS)
        self.start = start

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Reject concatenation in the inductive protocol: each layer has users or items only."""
        if inductive and self.pooling == "concat":
            raise ItemfoldError(
                "'pooling' must be sum or mean in the inductive protocol, got 'concat': users "
                "start from zero, so no layer has both users and items, and all scores would be 0"
            )
        super().setup(train, inductive=inductive, generator=generator)

    def initialise(self, graph: Graph, generator: torch.Generator) -> None:
        """Replace the random vectors by singular vectors if `start` says so."""
        if self.start != "random":
            assert self.init_std is not None
            spectral_start(
                (self.user_embedding, self.item_embedding),
                graph,
                self.init_std,
                generator,
                dim=self.dim,
                start=self.start,
                sharded=self.sharded,
            )

    def automatic_pooling(self, inductive: bool) -> str:
        """Mean in the transductive protocol, sum in the inductive one, as in the ITEM paper."""
        return "sum" if inductive else "mean"

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """``Â h`` in the graph; the same formula for targets outside it."""
        return propagate(adjacency, source)

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Combine the vectors of a node from layer `first` on into one."""
        return super().pool(layers[self.first :])

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Message passing and pooling in one operation, if pooling is a sum or mean."""
        from_items = self.user_embedding is None
        if self.pool_by == "concat" or (from_items and self.first):
            return super().encode(graph)
        weight = self.layer_weight
        if from_items:
            return propagate_items(graph, self.item_embedding, self.depth, layer_weight=weight)
        start = self.base(graph)
        nodes = propagate_layers(graph, start, self.depth, first=self.first, layer_weight=weight)
        return split_nodes(graph, nodes)

    @property
    def layer_weight(self) -> float:
        """The weight of a layer in a sum or mean."""
        return 1 / (self.depth + 1 - self.first) if self.pool_by == "mean" else 1.0

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """Layer by layer if the layers are requested; see `encodes_batch_users`."""
        if layers:
            return super().encode_step(graph, generator, layers)
        free, edges = self.user_embedding, None
        by_batch = vars(type(self)).get("encodes_batch_users", False)
        if by_batch and self.pool_by != "concat" and free is not None and users is not None:
            edges = BatchEdges.of(graph, users)
        if edges is None or free is None:
            return Encoded(*self.encode(graph))
        tables, weight = (free, self.item_embedding), self.layer_weight
        found = propagate_batch(
            graph, tables, edges, self.depth, first=self.first, layer_weight=weight
        )
        return Encoded(*found, of_batch=True)

    def cache_fold_in(self, item_layers: list[Tensor]) -> None:
        """Pool all depths before the step, which is linear."""
        pooled = self.pool([torch.zeros_like(item_layers[0]), *item_layers])
        self.store("fold_table", self.whole(pooled * inverse_root(self.item_degree)))

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """``Σ w_i f_i / √Σ|w_i|``; without weights ``Σ f_i / √|H|``."""
        adjacency = fold_adjacency(history, self.item_degree)
        messages = neighbour_sum(adjacency, self.fold_table)
        return messages * inverse_root(adjacency.degree)

    @torch.no_grad()
    def vectors_with_dislikes(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """A known user keeps the trained vector, to which the dislikes alone are added."""
        out, known = self.fold_in(history), np.flatnonzero(users >= 0)
        if len(known):
            rows = history[known]
            degree = fold_adjacency(rows, self.item_degree).degree
            rows.data = np.minimum(rows.data, 0)
            away = neighbour_sum(fold_adjacency(rows, self.item_degree), self.fold_table)
            own = self.user_vectors[torch.from_numpy(users[known]).to(self.device)]
            out[torch.from_numpy(known).to(self.device)] = own + away * inverse_root(degree)
        return out

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Shares ``w_i f_i·e_j/√Σ|w|``; the rest comes from a trained user vector."""
        adjacency = fold_adjacency(history, self.item_degree)
        parts = self.fold_table[adjacency.col.long()]  # [H, d]
        if adjacency.weight is not None:
            parts = parts * adjacency.weight.unsqueeze(1)
        parts = parts / (float(adjacency.degree.sum()) or 1.0) ** 0.5
        shares: Tensor = self.item_vectors[items] @ parts.T
        return shares
