"""`Model.fit` and `Model.recommend`: training on a matrix, and lists as arrays or as a frame."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from itemfold.data.array_types import Ints
from itemfold.data.csr import as_ones, as_sorted
from itemfold.data.interactions import Interactions
from itemfold.data.sources import read
from itemfold.data.weights import is_weighted
from itemfold.errors import ItemfoldError, ItemfoldWarning
from itemfold.evaluation.ranking import BUDGET
from itemfold.serving.filters import as_list
from itemfold.serving.fit import fit
from itemfold.serving.recommendation_table import (
    RecommendationTable,
    check_frames,
    kind_of_frame,
)
from itemfold.serving.recommender import Recommender
from itemfold.validation import positive_integer, shown

Floats = npt.NDArray[np.float32]


def fit_estimator(
    model: Any, user_items: Any, reading: dict[str, Any], **training: Any
) -> Recommender:
    """Train a model on a matrix with weights as entries, or on any input of `fit`."""
    if isinstance(user_items, np.ndarray):
        raise ItemfoldError(
            "'user_items' must be a sparse matrix or a table, got an array; convert it with "
            "scipy.sparse.csr_array(user_items)"
        )
    if sp.issparse(user_items) and not reading and _has_weights(user_items):
        if model.weighs:
            reading = {"weight": "value", "weight_transform": "none"}
        else:
            warnings.warn(
                f"{type(model).__name__} cannot use weights: every entry of 'user_items' counts 1",
                ItemfoldWarning,
                stacklevel=3,
            )
    return fit(user_items, model, **training, **reading)


def _has_weights(matrix: Any) -> bool:
    values = matrix.tocoo().data
    values = values[values != 0]
    return bool(len(values)) and not bool((values == values[0]).all() and values[0] > 0)


def as_user_items(
    recommender: Recommender, given: Any, users: Any, reading: dict[str, Any]
) -> sp.csr_array | None:
    """The known items of these users, one row each, from a matrix or a table, or None."""
    if given is None:
        return None
    listed = _listed(users)
    if sp.issparse(given):
        return _checked_matrix(recommender, given, len(listed))
    data = given if isinstance(given, Interactions) else read(given, **reading)
    rows, columns = data.user_ids.index(listed), recommender.items.ids.index(data.item_ids.ids)
    matrix = sp.coo_array(data.csr()[rows.clip(0)])
    row, item = matrix.coords[0], columns[matrix.coords[1]]
    kept = (item >= 0) & (rows[row] >= 0)
    shape = len(listed), recommender.n_items
    return as_ones(sp.csr_array((matrix.data[kept], (row[kept], item[kept])), shape=shape))


def _checked_matrix(recommender: Recommender, given: Any, n: int) -> sp.csr_array:
    ids = recommender.items.ids.ids
    if ids.dtype.kind not in "iu" or not np.array_equal(ids, np.arange(len(ids))):
        raise ItemfoldError(
            "'user_items' must be a table, because the model was fitted to one: a matrix has no ids"
        )
    matrix = sp.csr_array(given.reshape(1, -1) if given.ndim == 1 else given)
    if matrix.shape[1] != len(ids):
        raise ItemfoldError(
            f"'user_items' must have the {len(ids):,} items that the model was fitted to, "
            f"got {matrix.shape[1]:,} columns"
        )
    if matrix.shape[0] != n:
        raise ItemfoldError(
            f"'user_items' must have one row for each of the {n:,} users, got "
            f"{matrix.shape[0]:,}; give user_items[users]"
        )
    matrix = as_sorted(matrix.astype(np.float32))
    if not (np.isfinite(matrix.data) & (matrix.data >= 0)).all():
        raise ItemfoldError("'user_items' must have positive entries only")
    matrix.eliminate_zeros()
    return matrix if is_weighted(recommender.run.interactions) else as_ones(matrix)


@torch.inference_mode()
def list_rows(
    recommender: Recommender,
    users: Any,
    given: sp.csr_array | None,
    k: int,
    *,
    exclude_seen: bool,
    only: Any = None,
    without: Any = None,
    refold: bool = False,
) -> tuple[npt.NDArray[np.int32], Floats]:
    """Rows and scores of the best items, `[users, k]`; −1 and −∞ where no item is left."""
    listed, train = _listed(users), recommender.interactions
    rows: Ints = recommender.run.user_ids.index(listed)
    history: sp.csr_array | None = None  # that of training
    if given is None:
        if refold:
            raise ItemfoldError("'recalculate_user' needs 'user_items'")
        if unknown := [user for user, row in zip(listed, rows, strict=True) if row < 0]:
            raise ItemfoldError(
                f"'users' must be users of the training data, got {shown(unknown[0])}; give the "
                "items of a new user as 'user_items'"
            )
    else:
        trained = np.zeros(len(rows), np.bool_) if refold else rows >= 0
        rows = np.where(trained, rows, -1)
        order = np.argsort(np.concatenate([np.flatnonzero(trained), np.flatnonzero(~trained)]))
        stacked = sp.vstack([train[rows[trained]], _relative(given[~trained])])
        history = as_sorted(sp.csr_array(stacked)[order])
    known = {name: _known_items(recommender, name, ids) for name, ids in
             (("items", only), ("filter_items", without)) if ids is not None}  # fmt: skip
    allowed, _ = recommender.filter.allowed(known.get("items"), known.get("filter_items"), None)
    best, scores = recommender.ranker.for_users(
        rows, k, allowed, histories=history, hidden=given, exclude_seen=exclude_seen, budget=BUDGET
    )
    return best, np.where(best < 0, -np.inf, scores).astype(np.float32)


def list_arrays(
    recommender: Recommender, users: Any, given: sp.csr_array | None, k: Any, **options: Any
) -> tuple[npt.NDArray[Any], Floats]:
    """Ids and scores of the best items, `[users, k]` each, or `[k]` for one user."""
    best, scores = list_rows(recommender, users, given, positive_integer("N", k), **options)
    ids = recommender.items.ids.ids
    none = -1 if ids.dtype.kind in "iu" else ""
    found = np.where(best < 0, np.array(none, dtype=ids.dtype), ids[best])
    return (found[0], scores[0]) if np.ndim(users) == 0 else (found, scores)


def list_frame(
    recommender: Recommender, users: Any, given: sp.csr_array | None, k: Any, **options: Any
) -> Any:
    """The same lists as a frame of the library that the model was fitted with."""
    best, scores = list_rows(recommender, users, given, positive_integer("k", k), **options)
    table = RecommendationTable(
        np.array(_listed(users)),
        best,
        scores,
        recommender.items.ids.ids,
        titles=recommender.items.titles,
    )
    library = check_frames(recommender.frames or kind_of_frame(users))
    return table.frame(library)


def _listed(users: Any) -> list[Any]:
    return [users] if np.ndim(users) == 0 else as_list("users", users)


def _known_items(recommender: Recommender, name: str, ids: Any) -> list[Any]:
    """Ids of items; raise if one is unknown."""
    listed = as_list(name, ids)
    if unknown := recommender.filter.known(name, listed)[1]:
        raise ItemfoldError(f"'{name}' must be items of the training data, got {shown(unknown[0])}")
    return listed


def _relative(history: sp.csr_array) -> sp.csr_array:
    """Weights divided by their mean in each row, so that only their ratios matter."""
    mean = history.sum(axis=1) / np.maximum(np.diff(history.indptr), 1)
    scale = np.repeat(np.where(mean > 0, mean, 1), np.diff(history.indptr))
    data = (history.data / scale).astype(np.float32)
    return sp.csr_array((data, history.indices, history.indptr), shape=history.shape)
