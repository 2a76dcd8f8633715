"""New interactions of a trained run, joined to its training matrix or used as a test part.

Known users and items keep their rows; new ids are appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Floats, Ints
from itemfold.data.columns.time_units import are_dates
from itemfold.data.csr import as_ones, row_of_entry
from itemfold.data.id_arrays import text_array
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.items.item_features import GENRES, TITLES, ItemFeatures
from itemfold.data.splitting.split import HeldOut
from itemfold.errors import ItemfoldError

TextColumn = npt.NDArray[Any] | None  # [items], "" where unknown


@dataclass(frozen=True)
class ItemCatalogue:
    """The ids of items, and their titles and genres, or None."""

    item_ids: IdMap
    titles: TextColumn
    genres: TextColumn


@dataclass(frozen=True)
class Joined:
    """A training matrix after new interactions were added."""

    before: sp.csr_array  # the old interactions, in the new shape
    train: sp.csr_array  # old and new interactions
    user_ids: IdMap
    catalogue: ItemCatalogue
    new_users: int
    new_items: int
    known: int  # pairs of the new data that were already in training

    @property
    def new_interactions(self) -> int:
        """Number of pairs that were not in training before."""
        return int(self.train.nnz - self.before.nnz)


def join(
    train: sp.csr_array, user_ids: IdMap, catalogue: ItemCatalogue, data: Interactions | None
) -> Joined:
    """Add interactions to a training matrix; ids are compared as text."""
    if data is None:
        return Joined(train, train, user_ids, catalogue, 0, 0, 0)
    users, rows = _appended(user_ids, data.user_ids)
    items, columns = _appended(catalogue.item_ids, data.item_ids)
    shape = len(users), len(items)
    before = resized(train, shape)
    pairs = rows[data.users], columns[data.items]
    added = sp.coo_array((np.ones(len(data), np.float32), pairs), shape=shape)
    grown = as_ones(before + sp.csr_array(added))
    n_old = len(catalogue.item_ids)
    return Joined(
        before=before,
        train=grown,
        user_ids=users,
        catalogue=ItemCatalogue(
            items,
            _merged_texts(catalogue.titles, data.titles, columns, n_old, len(items)),
            _merged_texts(catalogue.genres, data.genres, columns, n_old, len(items)),
        ),
        new_users=len(users) - len(user_ids),
        new_items=len(items) - n_old,
        known=len(data) - int(grown.nnz - before.nnz),
    )


def joined_times(joined: Joined, before: Floats | None, data: Interactions | None) -> Floats | None:
    """The last time of each pair in a joined matrix; None if the old times are unknown.

    ``before`` are the times of the old interactions, ``data`` are the new ones; without times they
    count as of the latest old one.
    """
    if before is None or data is None:
        return before
    n_items = int(joined.train.shape[1])
    keys = row_of_entry(joined.train) * n_items + joined.train.indices  # ascending
    known = row_of_entry(joined.before) * n_items + joined.before.indices
    rows = joined.user_ids.index(data.user_ids.ids)[data.users]
    columns = joined.catalogue.item_ids.index(data.item_ids.ids)[data.items]
    times = np.full(len(data), before.max()) if data.times is None else data.times
    if are_dates(times) != are_dates(before):
        theirs, ours = ("dates" if are_dates(t) else "before 1980" for t in (times, before))
        raise ItemfoldError(
            f"the times of {data.name!r} must be counted as those of the run: they are {theirs}, "
            f"and the run's are {ours}"
        )
    out = np.full(len(keys), -np.inf)
    out[np.searchsorted(keys, known)] = before
    np.maximum.at(out, np.searchsorted(keys, rows * n_items + columns), times)
    return out


def with_new_items(catalogue: ItemCatalogue, features: ItemFeatures, new: IdMap) -> ItemCatalogue:
    """The catalogue with new items appended; their titles and genres come from their features."""
    if not len(new):
        return catalogue
    ids, _ = _appended(catalogue.item_ids, new)
    none, n_old = np.empty(0, dtype=np.int64), len(catalogue.item_ids)
    old = (catalogue.titles, catalogue.genres)
    texts = (_merged_texts(column, None, none, n_old, len(ids)) for column in old)
    return described(ItemCatalogue(ids, *texts), features)


def described(catalogue: ItemCatalogue, features: ItemFeatures) -> ItemCatalogue:
    """The catalogue with missing titles and genres filled in from the features."""
    ids = catalogue.item_ids
    found, rows = features.of(ids), np.arange(len(ids))
    titles = _merged_texts(catalogue.titles, found.texts(TITLES), rows, len(ids), len(ids))
    genres = _merged_texts(catalogue.genres, found.texts(GENRES), rows, len(ids), len(ids))
    return ItemCatalogue(ids, titles, genres)


def later_part(
    train: sp.csr_array, user_ids: IdMap, item_ids: IdMap, data: Interactions
) -> tuple[HeldOut, list[str]]:
    """A test part of interactions after training, and notes on skipped ones.

    Targets are pairs of known users and known items that are not in training.
    """
    rows, columns = user_ids.index(data.user_ids.ids), item_ids.index(data.item_ids.ids)
    users, items = rows[data.users], columns[data.items]
    known = (users >= 0) & (items >= 0)
    pairs = np.ones(int(known.sum()), np.float32), (users[known], items[known])
    later = as_ones(sp.csr_array(sp.coo_array(pairs, shape=train.shape)))
    target = sp.csr_array(later - later.multiply(train))
    target.eliminate_zeros()
    found = np.flatnonzero(np.diff(target.indptr)).astype(np.int64)
    if not len(found):
        raise ItemfoldError(
            f"'{data.name}' must have interactions of known users with known items that are not in "
            "training, got none"
        )
    left_out = {
        "of users that the run does not know": int((users < 0).sum()),
        "with items that the run does not know": int((items[users >= 0] < 0).sum()),
        "that the run was trained on": int(later.nnz - target.nnz),
    }
    notes = [f"Interactions {what}, left out: {n:,}." for what, n in left_out.items() if n]
    ids = user_ids.external(found)
    return HeldOut(as_ones(train[found]), as_ones(target[found]), found, ids), notes


def as_interactions(
    train: sp.csr_array, user_ids: IdMap, item_ids: IdMap, name: str
) -> Interactions:
    """A training matrix as interactions, whose fingerprint identifies it."""
    users, items = row_of_entry(train).astype(np.int32), train.indices.astype(np.int32)
    return Interactions(users, items, user_ids, item_ids, name=name)


def resized(train: sp.csr_array, shape: tuple[int, int]) -> sp.csr_array:
    """The same entries in a larger matrix."""
    added = np.full(shape[0] - train.shape[0], train.indptr[-1], train.indptr.dtype)
    parts = train.data, train.indices, np.concatenate([train.indptr, added])
    return sp.csr_array(parts, shape=shape)


def _appended(known: IdMap, given: IdMap) -> tuple[IdMap, Ints]:
    """All ids, the unknown ones of ``given`` last, and the row of each id of ``given``."""
    rows = known.index(given.ids)
    unknown = np.flatnonzero(rows < 0)
    if not len(unknown):
        return known, rows
    rows[unknown] = len(known) + np.arange(len(unknown))
    parts = known.ids, given.ids[unknown]
    if all(part.dtype.kind in "iu" for part in parts):
        return IdMap(np.concatenate(parts)), rows
    return IdMap(text_array([str(value) for part in parts for value in part.tolist()])), rows


def _merged_texts(
    old: TextColumn, new: TextColumn, columns: Ints, n_old: int, n_items: int
) -> TextColumn:
    """Titles or genres of all items; the old text of an item stays unless it is empty."""
    if old is None and new is None:
        return None
    out = np.full(n_items, "", dtype=object)
    if new is not None:
        out[columns] = new.astype(object)
    if old is not None:
        before = old.astype(object)
        has_text = np.array([bool(text) for text in before.tolist()], dtype=np.bool_)
        out[:n_old][has_text] = before[has_text]
    return text_array([str(text) for text in out.tolist()])
