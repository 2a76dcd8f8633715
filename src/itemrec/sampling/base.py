"""The interface of samplers: from encoded vectors and a batch to scored lists.

A list loss compares the scores of a user's positives with those of negatives. A sampler
decides only which items these are and how they are scored; it never computes a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.losses.base import Scores
from itemrec.ops.columns import sum_own_rows, unit_rows
from itemrec.ops.pair_scores import pair_scores, take_rows
from itemrec.sampling.batch import Batch


@dataclass(frozen=True)
class Encoded:
    """Output of an encoder in one training step.

    Attributes:
        users: `[users, d]`, or `[B, d]` if `of_batch`; `users_of` gives the second.
        items: `[items, d]`.
        item_layers: Item vectors at each depth, if a sampler needs them.
        pool: Combines the layers into one vector.
        views: Other (users, items), for the model's extra loss.
        of_batch: Whether `users` are those of the batch only, in its order.

    Examples:
        >>> import torch
        >>> encoded = Encoded(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]]))
        >>> encoded.as_cosine().users.norm(dim=1).tolist()
        [1.0]
    """

    users: Tensor  # [users, d], or [B, d] if `of_batch`
    items: Tensor  # [items, d]
    item_layers: tuple[Tensor, ...] = ()  # [items, d] at each depth, if a sampler needs them
    pool: Callable[[list[Tensor]], Tensor] | None = None  # layers → one vector
    views: tuple[
        tuple[Tensor, Tensor], ...
    ] = ()  # other (users, items), for the model's extra loss
    of_batch: bool = False  # `users` are those of the batch only

    def users_of(self, batch: Batch) -> Tensor:
        """Vectors of the batch's users.

        Args:
            batch: The batch of the step.

        Returns:
            `[B, d]`, differentiable.

        Examples:
            >>> import torch
            >>> from itemrec.sampling.batch import Batch
            >>> batch = Batch(torch.tensor([1]), torch.tensor([[0]]), torch.tensor([[True]]))
            >>> Encoded(torch.eye(2), torch.eye(2)).users_of(batch).tolist()
            [[0.0, 1.0]]
        """
        return self.users if self.of_batch else take_rows(self.users, batch.users)

    def as_cosine(self) -> Encoded:
        """Vectors of length one, so that products are cosines."""
        pool = self.pool
        return replace(
            self,
            users=unit_rows(self.users),
            items=unit_rows(self.items),
            pool=None if pool is None else lambda layers: unit_rows(pool(layers)),
        )


@dataclass(frozen=True)
class ScoredLists:
    """Scores of a batch's positives and negatives, and which items the negatives were.

    With several ranks they are those of this rank's rows, `ranks.own_rows(B)`; `items` and
    `counted` are always of the whole batch.

    Attributes:
        pos: `[B, P]`.
        neg: `[B, N]`.
        items: Items whose vectors enter the L2 term, int64 of any shape.
        neg_mask: False where an item is not a negative of that user, bool `[B, N]`.
        counted: False where an entry of `items` belongs to padding.

    Examples:
        >>> import torch
        >>> lists = ScoredLists(torch.ones(2, 1), torch.zeros(2, 3), torch.zeros(2, 3).long())
        >>> lists.neg.shape
        torch.Size([2, 3])
    """

    pos: Tensor  # [B, P]
    neg: Scores  # [B, N]
    items: Tensor  # int64, any shape: the items whose vectors enter the L2 term
    neg_mask: Tensor | None = None  # bool [B, N], False where an item is not a negative
    counted: Tensor | None = None  # bool like `items`, False where it belongs to padding


class Sampler:
    """Base of all samplers; the fields of a subclass, a dataclass, are its settings.

    Attributes:
        needs_layers: Whether `Encoded.item_layers` is required.
        draws: Whether ids are drawn; then every user must have an item left to draw.
        by_columns: Whether `score` completes every product of vectors with `sum_own_rows`, or the
            vectors with `whole_rows`, so that several processes can train together; a class that
            defines `score` says so itself.

    Examples:
        >>> from itemrec.negatives import Sampler
        >>> import itemrec as ir
        >>> isinstance(ir.negatives.InBatch(), Sampler), ir.negatives.InBatch.draws
        (True, False)
    """

    needs_layers: ClassVar[bool] = False  # `Encoded.item_layers` is required
    draws: ClassVar[bool] = False  # ids are drawn: every user must have an item left to draw
    by_columns: ClassVar[bool] = False  # `score` sums its products over the ranks

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Build the tables for this training matrix.

        Args:
            train: Training interactions, `[users, items]`.
            device: Device of the tables.
        """

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """The scored lists of a batch.

        Args:
            encoded: Vectors of the step.
            batch: Users and their positives.
            n: Negatives per user, if they are drawn.
            generator: Random generator of the draws.

        Returns:
            Scores of positives and negatives.
        """
        raise ItemrecError(f"{type(self).__name__} finds no negatives: write 'score'")


class DrawnNegatives(Sampler):
    """Base of samplers that propose item ids: a subclass draws them by being called.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> import torch
        >>> from itemrec.negatives import DrawnNegatives
        >>> @dataclass
        ... class Last(DrawnNegatives):  # for users without the last item
        ...     def prepare(self, train, device="cpu"):
        ...         self.last = train.shape[1] - 1
        ...     def __call__(self, users, n, generator):
        ...         return torch.full((len(users), n), self.last)
        >>> sampler = Last()
        >>> sampler.prepare(sp.csr_array(np.array([[1.0, 0.0, 0.0]])))
        >>> sampler(torch.tensor([0]), 2, torch.Generator()).tolist()
        [[2, 2]]
    """

    draws = True
    by_columns = True

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw negatives.

        Args:
            users: Training rows of users, int64 `[B]`.
            n: Negatives per user.
            generator: Random generator of the draws.

        Returns:
            Item ids `[B, n]` (int64), none of them a training positive of its user.
        """
        raise ItemrecError(f"{type(self).__name__} draws no items: write '__call__'")

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """Draw ids, and score them together with the positives.

        Args:
            encoded: Vectors of the step.
            batch: Users and their positives.
            n: Negatives per user.
            generator: Random generator of the draws.

        Returns:
            Scores of positives and negatives.
        """
        user_vectors = encoded.users_of(batch)  # [B, d]
        return score_drawn(user_vectors, encoded.items, batch, self(batch.users, n, generator))


def score_drawn(user_vectors: Tensor, items: Tensor, batch: Batch, drawn: Tensor) -> ScoredLists:
    """Products of users ``[B, d]`` with their positives and with drawn items ``[B, n]``."""
    listed = torch.cat([batch.positives, drawn], dim=1)
    scores = sum_own_rows(pair_scores(user_vectors, items, listed))
    cut = batch.positives.shape[1]
    return ScoredLists(scores[:, :cut], scores[:, cut:], drawn, counted=batch.real_rows(drawn))
