"""The interface of samplers: from encoded vectors and a batch to scored lists.

A list loss compares the scores of a user's positives with those of negatives. A sampler decides
which items these are and how they are scored; it never computes a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.losses.base import Scores
from itemfold.ops.columns import sum_own_rows, unit_rows
from itemfold.ops.pair_scores import pair_scores, take_rows


@dataclass(frozen=True)
class Batch:
    """The lists of a training step: users and their positives. A row without any is padding."""

    users: Tensor  # int64 [B]
    positives: Tensor  # int64 [B, P]
    mask: Tensor  # bool [B, P], True where a positive is real
    distinct_users: bool = True  # False if a user may be in several rows

    def real_rows(self, like: Tensor) -> Tensor:
        """Which rows are not padding, bool in the shape of ``like`` [B, n]."""
        return self.mask.any(1, keepdim=True).expand_as(like)


@dataclass(frozen=True)
class Encoded:
    """Output of an encoder in one training step.

    Attributes:
        users: `[users, d]`, or `[B, d]` if `of_batch`; `users_of` gives the second.
        items: `[items, d]`.
        item_layers: Item vectors at each depth, `[items, d]` each, if a sampler needs them.
        pool: Combines the layers into one vector.
        views: Other (users, items), for the model's extra loss.
        of_batch: Whether `users` are those of the batch only, in its order.
    """

    users: Tensor
    items: Tensor
    item_layers: tuple[Tensor, ...] = ()
    pool: Callable[[list[Tensor]], Tensor] | None = None
    views: tuple[tuple[Tensor, Tensor], ...] = ()
    of_batch: bool = False

    def users_of(self, batch: Batch) -> Tensor:
        """Vectors of the batch's users, `[B, d]`, differentiable.

        Examples:
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
    """Scores of a batch's positives and negatives, and which items the negatives are.

    With several ranks the scores are those of this rank's rows, `ranks.own_rows(B)`; `items` and
    `counted` are always of the whole batch.

    Attributes:
        pos: `[B, P]`.
        neg: `[B, N]`.
        items: Items whose vectors enter the L2 term, int64 of any shape.
        neg_mask: False where an item is not a negative of that user, bool `[B, N]`.
        counted: False where an entry of `items` belongs to padding, bool.
    """

    pos: Tensor
    neg: Scores
    items: Tensor
    neg_mask: Tensor | None = None
    counted: Tensor | None = None


class Sampler:
    """Base of all samplers; the fields of a subclass, a dataclass, are its settings.

    Attributes:
        needs_layers: Whether `Encoded.item_layers` is required.
        draws: Whether ids are drawn; then every user must have an item left to draw.
        by_columns: Whether `score` completes every product of vectors with `sum_own_rows`, or the
            vectors with `whole_rows`, so that several processes can train together. Not inherited:
            a class that defines `score` sets it.

    Examples:
        >>> from itemfold.negatives import Sampler
        >>> import itemfold as ir
        >>> isinstance(ir.negatives.InBatch(), Sampler), ir.negatives.InBatch.draws
        (True, False)
    """

    needs_layers: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    by_columns: ClassVar[bool] = False

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
        raise ItemfoldError(f"{type(self).__name__} must define 'score'")

    def log_expected(self, batch: Batch, lists: ScoredLists) -> Tensor:
        """Logarithm of the expected number of times that a negative is in its user's list.

        Args:
            batch: Users and their positives.
            lists: The lists that `score` made of them.

        Returns:
            One number for every negative, `[B, N]`, or for every user, `[B, 1]`.
        """
        raise ItemfoldError(f"{type(self).__name__} does not know how often an item is drawn")


def knows_expected(kind: type[Sampler]) -> bool:
    """Whether a sampler says how often it draws an item: the class that draws must say it.

    Examples:
        >>> import itemfold as ir
        >>> [knows_expected(kind) for kind in (ir.negatives.Uniform, ir.negatives.Dynamic)]
        [True, False]
    """

    for each in kind.__mro__:
        if "log_expected" in vars(each):
            return each is not Sampler
        if "score" in vars(each) or "__call__" in vars(each):
            return False
    return False


class DrawnNegatives(Sampler):
    """Base of samplers that propose item ids: a subclass draws them by being called.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> import torch
        >>> from itemfold.negatives import DrawnNegatives
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
        raise ItemfoldError(f"{type(self).__name__} must define '__call__', which draws items")

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """Draw ids, and score them together with the positives."""
        user_vectors = encoded.users_of(batch)  # [B, d]
        return score_drawn(user_vectors, encoded.items, batch, self(batch.users, n, generator))


def score_drawn(user_vectors: Tensor, items: Tensor, batch: Batch, drawn: Tensor) -> ScoredLists:
    """Products of users ``[B, d]`` with their positives and with drawn items ``[B, n]``."""
    listed = torch.cat([batch.positives, drawn], dim=1)
    scores = sum_own_rows(pair_scores(user_vectors, items, listed))
    cut = batch.positives.shape[1]
    return ScoredLists(scores[:, :cut], scores[:, cut:], drawn, counted=batch.real_rows(drawn))
