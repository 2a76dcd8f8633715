"""The base class of message-passing encoders, which fold in unseen users."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Adjacency, Graph, fold_adjacency
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.random_values import glorot_bound, uniform
from itemfold.ops.pair_scores import squared_lengths
from itemfold.sampling.base import Encoded
from itemfold.validation import one_of, positive_integers

Pooling = Literal["auto", "mean", "sum", "concat"]


class GNN(EmbeddingModel):
    """Message passing over the interaction graph; a subclass defines one `layer`.

    `h⁰` are free vectors of the items and, in the transductive protocol, of the users; in the
    inductive protocol users start from zero and are computed from their items' messages. The final
    vector pools `h⁰ … hᴸ`. A new user is folded in by running the same layers for that user only,
    with the stored item vectors of each layer: neither the training graph nor training is needed.

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol (chosen on
            validation, see docs/research/training.md).
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the model's
            own choice, the sum by default.

    Examples:
        >>> from itemfold.graph.propagation import neighbour_sum
        >>> from itemfold.models import GNN
        >>> import itemfold as ir
        >>> class Averaging(GNN):
        ...     def layer(self, depth, adjacency, source, own):
        ...         total = neighbour_sum(adjacency, source)
        ...         return total / adjacency.degree.clamp(min=1).unsqueeze(1)
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, Averaging(dim=8, layers=2), epochs=2)
        >>> len(ir.Recommender(run).recommend(history=[3, 5], k=4))  # a new user
        4
    """

    user_tables: ClassVar[tuple[str, ...]] = ("user_embedding",)  # in the transductive protocol
    item_tables = ("item_embedding",)
    init_std: float | None = 0.1  # deviation of h⁰ before training; None: Xavier's
    depth: int

    def __init__(self, dim: int = 64, layers: int | None = None, pooling: Pooling = "auto") -> None:
        super().__init__()
        positive_integers(dim=dim, **({} if layers is None else {"layers": layers}))
        one_of("pooling", pooling, get_args(Pooling))
        self.dim, self.given_layers, self.pooling = dim, layers, pooling
        self.pool_by: str = pooling

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate trained item vectors and, in the transductive protocol, trained user vectors."""
        super().setup(train, inductive=inductive, generator=generator)
        self.depth = self.given_layers or (2 if inductive else 3)
        if self.pooling == "auto":
            self.pool_by = self.automatic_pooling(inductive)
        self.item_embedding = self.free_vectors(self.n_items, generator)
        self.user_embedding = None if inductive else self.free_vectors(self.n_users, generator)
        self.make_layers(generator)

    def free_vectors(self, n: int, generator: torch.Generator) -> nn.Parameter:
        """Initial ``h⁰`` of n nodes: normal with `init_std`, or Xavier's uniform start."""
        if self.init_std is not None:
            return self.normal_table(n, self.init_std, generator)
        bound = glorot_bound((n, self.dim))
        return self.free_table(n, lambda rows: uniform((rows, self.dim), bound, generator))

    def automatic_pooling(self, inductive: bool) -> str:
        """The pooling that "auto" stands for: "sum", unless a subclass overrides it."""
        return "sum"

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate the weights of the layers, if there are any; a hook for subclasses."""

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """One step of message passing.

        Args:
            depth: The step, from 0.
            adjacency: Targets and the sources of their messages: the whole graph in training, new
                users and their items when users are folded in.
            source: Vectors of the sources, `[sources, d]`.
            own: Vectors of the targets before the step, `[targets, d]`.

        Returns:
            Vectors of the targets after the step, `[targets, d]`.
        """
        raise ItemfoldError(f"{type(self).__name__} must define 'layer'")

    def base(self, graph: Graph) -> Tensor:
        """``h⁰`` of all nodes, ``[nodes, d]``; users without parameters start from zero."""
        users = () if self.user_embedding is None else (self.user_embedding,)
        known = sum(len(part) for part in users)
        zeros = self.item_embedding.new_zeros(graph.n_users - known, self.item_embedding.shape[1])
        return torch.cat([*users, zeros, self.item_embedding])

    def layers(self, graph: Graph) -> list[Tensor]:
        """``h⁰ … hᴸ`` of all nodes."""
        out = [self.base(graph)]
        for depth in range(self.depth):
            out.append(self.layer(depth, graph, out[-1], out[-1]))
        return out

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Combine the vectors of a node at all depths into one."""
        if self.pool_by == "concat":
            return torch.cat(layers, dim=-1)
        total = layers[0]
        for layer in layers[1:]:
            total = total + layer
        return total / len(layers) if self.pool_by == "mean" else total

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Message passing, then pooling."""
        return split_nodes(graph, self.pool(self.layers(graph)))

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """`layers` with the noise or dropout of a training step, if the model has any."""
        return self.layers(graph)

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """`training_layers`, then pooling."""
        return self.encoded(graph, self.training_layers(graph, generator), layers)

    def encoded(
        self,
        graph: Graph,
        layers: list[Tensor],
        keep_layers: bool,
        views: tuple[tuple[Tensor, Tensor], ...] = (),
    ) -> Encoded:
        """The pooled vectors of a step, with its layers if they are kept, and its views."""
        users, items = split_nodes(graph, self.pool(layers))
        kept = tuple(layer[graph.n_users :] for layer in layers) if keep_layers else ()
        return Encoded(users, items, kept, self.pool, views)

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared lengths at layer 0; users without parameters have length 0."""
        items = squared_lengths(self.item_embedding)
        if self.user_embedding is None:
            return items.new_zeros(self.n_users), items
        return squared_lengths(self.user_embedding), items

    @torch.no_grad()
    def cache_embeddings(self, graph: Graph) -> None:
        """Store final vectors and, for folding in, item degrees and item vectors of each layer."""
        layers = self.layers(graph)
        pooled = self.pool(layers)
        self.store("user_vectors", self.whole(pooled[: graph.n_users]).contiguous())
        self.store("item_vectors", self.whole(pooled[graph.n_users :]).contiguous())
        self.store("item_degree", graph.item_degree.clone())
        self.cache_fold_in([layer[graph.n_users :] for layer in layers[:-1]])

    item_degree: Tensor
    fold_layers: Tensor

    def cache_fold_in(self, item_layers: list[Tensor]) -> None:
        """Store the item vectors whose messages reach new users, ``[L, items, d]``."""
        self.store("fold_layers", self.whole(torch.stack(item_layers)))

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """Run the layers for these users only, with stored item vectors."""
        adjacency = fold_adjacency(history, self.item_degree)
        own = self.item_vectors.new_zeros(history.shape[0], self.dim)
        out = [own]
        for depth in range(self.depth):
            own = self.layer(depth, adjacency, self.fold_layers[depth], own)
            out.append(own)
        return self.pool(out)


def split_nodes(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Users and items of all nodes; the gradient of a split is cheaper than of two slices."""
    users, items = torch.split(nodes, [graph.n_users, graph.n_items])
    return users, items
