"""Base of models whose scores are products of a user vector and an item vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold import ranks
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Model
from itemfold.ops import columns
from itemfold.sampling.base import Batch, Encoded


class EmbeddingModel(Model):
    """A model whose scores are products of a user vector and an item vector.

    `encode` computes the vectors for training; `cache_embeddings` stores them for scoring. A
    subclass defines `setup` and `encode`, and `fold_in` if it can score unseen users.

    Attributes:
        user_tables: Names of the parameters with a row for each user.
        item_tables: Names of the parameters with a row for each item; without any, a trained model
            cannot be updated.
        left_open: Settings that a hybrid chooses for a network given by its name.
        user_vectors: Stored vectors of the training users, `[users, d]`.
        item_vectors: Stored vectors of the items, `[items, d]`.

    Examples:
        >>> from torch import nn
        >>> import torch
        >>> from itemfold.models import EmbeddingModel
        >>> import itemfold as ir
        >>> class OnePoint(EmbeddingModel):
        ...     def setup(self, train, *, inductive, generator):
        ...         super().setup(train, inductive=inductive, generator=generator)
        ...         self.items = nn.Parameter(torch.randn(self.n_items, 4, generator=generator))
        ...     def encode(self, graph):
        ...         return torch.ones(self.n_users, 4), self.items
        ...     def fold_in(self, history):
        ...         return torch.ones(history.shape[0], 4)
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, OnePoint(), epochs=2, device="cpu")
        >>> run.model.item_vectors.shape
        torch.Size([80, 4])
    """

    user_tables: ClassVar[tuple[str, ...]] = ()
    item_tables: ClassVar[tuple[str, ...]] = ()
    left_open: ClassVar[tuple[str, ...]] = ("dim",)
    user_vectors: Tensor
    item_vectors: Tensor
    dim: int  # columns of the tables

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """User and item vectors for training.

        Args:
            graph: The training graph.

        Returns:
            `[users, d]` and `[items, d]`, differentiable.
        """
        raise ItemfoldError(f"{type(self).__name__} must define 'encode'")

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """`encode` for a training step, with the noise or dropout of the model.

        Args:
            graph: The training graph.
            generator: Random generator of the draws.
            layers: Whether to return the item vectors of each layer, which `pool` combines.
            users: Users of the batch, int64 `[B]`; a model may return the vectors of these only,
                with `Encoded.of_batch`.

        Returns:
            The vectors of the step.
        """
        users, items = self.encode(graph)
        return Encoded(users, items, (items,) if layers else (), self.pool)

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor | None:
        """A term that the model adds to the list loss.

        Args:
            graph: The training graph.
            batch: Users and their positives.
            encoded: Result of `encode_step`; `encoded.users_of(batch)` are the batch's users.
            generator: Random generator of the draws.

        Returns:
            A scalar, or None.
        """
        return None

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Combine the vectors of a node at all depths into one; by default there is only one.

        Args:
            layers: Vectors at each depth, `[n, d]` each.

        Returns:
            `[n, d]`, or wider if layers are concatenated.
        """
        return layers[0]

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared length of the parameters of every user and item, for the L2 term.

        Returns:
            `[users]` and `[items]`.

        Raises:
            ItemfoldError: The model has none: 'l2' must be 0.
        """
        raise ItemfoldError(f"{type(self).__name__} has no L2 term; set 'l2' to 0")

    def free_table(self, n: int, draw: Callable[[int], Tensor]) -> nn.Parameter:
        """Trained vectors of n nodes, `[n, dim]`; this process's columns if the model is sharded.

        Args:
            n: Number of nodes.
            draw: Returns the initial values of the next rows, `[rows, dim]`.
        """
        own = ranks.own_columns(self.dim) if self.sharded else slice(0, self.dim)
        return nn.Parameter(columns.drawn(n, self.dim, own, draw))

    def normal_table(self, n: int, deviation: float, generator: torch.Generator) -> nn.Parameter:
        """Trained vectors of n nodes that start from normal values, as in `free_table`."""
        return self.free_table(
            n, lambda rows: torch.randn(rows, self.dim, generator=generator) * deviation
        )

    def whole(self, table: Tensor) -> Tensor:
        """Computed vectors with all columns; all processes of a sharded model must call it.

        A model that is `by_columns` trains on some columns and scores with all of them.
        """
        return columns.whole(table, self.dim) if self.sharded else table

    def drop_embeddings(self) -> None:
        """Free the stored vectors of a sharded model, which training does not need."""
        if self.sharded:
            for name in list(self._buffers):
                self.store(name, torch.empty(0))

    @torch.no_grad()
    def unshard(self) -> None:
        """Collect the columns of the parameters from all ranks."""
        if self.sharded:
            for parameter in self.parameters():
                parameter.data = self.whole(parameter.data)
                parameter.grad = None
        super().unshard()

    @torch.no_grad()
    def cache_embeddings(self, graph: Graph) -> None:
        """Store copies of the final vectors: an encoder may return its parameters themselves."""
        users, items = (self.whole(table.detach()) for table in self.encode(graph))
        self.store("user_vectors", users.clone(memory_format=torch.contiguous_format))
        self.store("item_vectors", items.clone(memory_format=torch.contiguous_format))

    def fold_in(self, history: sp.csr_array) -> Tensor:
        """Vectors of users given by their history only.

        Args:
            history: Known items of each user, `[B, items]`.

        Returns:
            `[B, d]`.

        Raises:
            ItemfoldError: The model cannot score an unseen user.
        """
        raise ItemfoldError(
            f"{type(self).__name__} cannot score an unseen user: {self.why_not_inductive}"
        )

    def vectors_of(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Vectors of known users by row and of the others by their history.

        Args:
            history: Known items of each user, `[B, items]`.
            users: Training row of each, −1 if unknown, `[B]`.

        Returns:
            `[B, d]`.

        Raises:
            ItemfoldError: The model cannot score an unseen user.
        """
        self.check_users(users)
        known = users >= 0
        if bool((history.data < 0).any()):
            return self.vectors_with_dislikes(history, users)
        if known.all():
            return self.user_vectors[torch.from_numpy(users).to(self.device)]
        if not known.any():
            return self.fold_in(history)
        out = self.fold_in(history)
        rows = torch.from_numpy(np.flatnonzero(known)).to(self.device)
        out[rows] = self.user_vectors[torch.from_numpy(users[known]).to(self.device)]
        return out

    def vectors_with_dislikes(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """`vectors_of` if histories have dislikes, entries below 0.

        By default they are those of the histories, also of known users.
        """
        return self.fold_in(history)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Products with every item vector."""
        return self.vectors_of(history, users) @ self.item_vectors.T

    @torch.no_grad()
    def similar_to(self, item: int) -> Tensor:
        """Cosines of item vectors."""
        vectors = self.item_vectors
        length = vectors.norm(dim=1).clamp(min=1e-12)
        cosines: Tensor = vectors @ vectors[item] / (length * length[item])
        return cosines
