"""The history of a user: items, weights and dislikes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError, UnknownIdError
from itemfold.serving.filters import ItemFilter, as_list
from itemfold.validation import is_number

# Weight of a dislike relative to the mean weight of the history: docs/research/production.md.
DISLIKE = 0.5


@dataclass(frozen=True)
class UserHistory:
    """The items of one user in ascending order, with their weights; dislikes are negative."""

    row: int  # of the training matrix, −1 for a new user
    items: npt.NDArray[np.int64]  # [n]
    values: npt.NDArray[np.float32]  # [n]

    @property
    def is_known(self) -> bool:
        """Whether the history has an item that the user likes."""
        return bool((self.values > 0).any())

    def matrix(self, n_items: int) -> sp.csr_array:
        """The history as a sparse row ``[1, items]``."""
        ends = np.array([0, len(self.items)])
        return sp.csr_array((self.values, self.items, ends), shape=(1, n_items))

    def below(self, n_items: int) -> UserHistory:
        """The history without items from row ``n_items`` on."""
        kept = self.items < n_items
        return replace(self, items=self.items[kept], values=self.values[kept])

    def disliked(self, n_items: int) -> sp.csr_array:
        """The disliked items, as a sparse row ``[1, items]``."""
        below = self.values < 0
        return replace(self, items=self.items[below], values=self.values[below]).matrix(n_items)


def trained_history(
    user: Any, weights: Iterable[float] | None, users: IdMap, train: sp.csr_array
) -> UserHistory:
    """The history of a training user."""
    row = int(rows_of_users([user], users)[0])
    if weights is not None:
        raise ItemfoldError("'weights' needs a 'history'; a known user has the weights of training")
    start, end = train.indptr[row : row + 2]
    return UserHistory(row, train.indices[start:end].astype(np.int64), train.data[start:end])


def rows_of_users(users: Iterable[Any], known: IdMap) -> npt.NDArray[np.int64]:
    """Training rows of users; raise if one is unknown."""
    listed = as_list("users", users)
    rows = known.index(listed)
    if unknown := [user for user, row in zip(listed, rows, strict=True) if row < 0]:
        raise UnknownIdError(
            f"'user' must be a user of the training data, got {unknown[0]!r}; "
            "give the 'history' of a new user"
        )
    return rows


def new_history(
    history: Iterable[Any], weights: Iterable[float] | None, known: ItemFilter
) -> tuple[UserHistory, tuple[Any, ...]]:
    """The history of a new user, and the unknown ids; a repeated id counts once."""
    listed = as_list("history", history)
    values = _relative_weights(weights, len(listed))
    rows = known.ids.index(listed)
    unknown = tuple(item for item, row in zip(listed, rows, strict=True) if row < 0)
    items, place = np.unique(rows[rows >= 0], return_inverse=True)
    highest = np.zeros(len(items), dtype=np.float32)
    np.maximum.at(highest, place, values[rows >= 0])
    return UserHistory(-1, items, highest), unknown


def _relative_weights(weights: Iterable[float] | None, n: int) -> npt.NDArray[np.float32]:
    """The weights divided by their mean, so that only their ratios matter.

    They are divided by the largest first: a sum of very large ones would be infinite.
    """
    if weights is None:
        return np.ones(n, dtype=np.float32)
    listed = as_list("weights", weights)
    if len(listed) != n:
        raise ItemfoldError(
            f"'weights' must have one number per item of 'history', got {len(listed)} for {n} items"
        )
    for value in listed:
        if not is_number(value) or not 0 < value < float("inf"):
            raise ItemfoldError(f"'weights' must be positive numbers, got {value!r}")
    if not n:
        return np.ones(0, dtype=np.float32)
    values = np.array(listed, dtype=np.float64)
    values /= values.max()
    smallest = np.finfo(np.float32).tiny  # a positive weight stays positive
    return np.asarray(np.maximum(values / values.mean(), smallest), dtype=np.float32)


def with_dislikes(
    history: UserHistory, dislikes: Iterable[Any] | None, known: ItemFilter
) -> tuple[UserHistory, tuple[Any, ...]]:
    """The history with dislikes, which replace the same items in it, and the unknown ids."""
    if dislikes is None:
        return history, ()
    found, unknown = known.known("dislikes", dislikes)
    disliked = np.unique(found)
    liked = ~np.isin(history.items, disliked)
    values = history.values[liked]
    size = np.float32(DISLIKE * values.mean() if len(values) else DISLIKE)
    items = np.concatenate([history.items[liked], disliked])
    values = np.concatenate([values, np.full(len(disliked), -size, dtype=np.float32)])
    order = np.argsort(items)
    return UserHistory(history.row, items[order], values[order]), unknown
