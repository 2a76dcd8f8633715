"""New interactions join a training matrix: known rows keep their places, new ids are appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.data.csr import as_ones, row_of_entry
from itemrec.data.interactions import IdMap, Interactions
from itemrec.data.item_features import GENRES, TITLES, ItemFeatures
from itemrec.data.texts import text_array

Texts = npt.NDArray[Any] | None


@dataclass(frozen=True)
class Catalogue:
    """Items: their ids, and titles and genres where there are any."""

    item_ids: IdMap
    titles: Texts
    genres: Texts


@dataclass(frozen=True)
class Joined:
    """A training matrix with new interactions, in the same order of users and items."""

    before: sp.csr_array  # the old interactions, in the new shape
    train: sp.csr_array  # old and new interactions
    user_ids: IdMap
    catalogue: Catalogue
    new_users: int
    new_items: int
    known: int  # pairs of the new data that were in training already

    @property
    def new_interactions(self) -> int:
        """Pairs that were not in training before."""
        return int(self.train.nnz - self.before.nnz)


def join(
    train: sp.csr_array, user_ids: IdMap, catalogue: Catalogue, data: Interactions | None
) -> Joined:
    """Add interactions to a training matrix; ids compare by their text."""
    if data is None:  # nothing to add
        return Joined(train, train, user_ids, catalogue, 0, 0, 0)
    users, rows = _appended(user_ids, data.user_ids)
    items, columns = _appended(catalogue.item_ids, data.item_ids)
    shape = len(users), len(items)
    before = resized(train, shape)
    pairs = rows[data.users], columns[data.items]
    added = sp.coo_array((np.ones(len(data), np.float32), pairs), shape=shape)
    grown = as_ones(before + sp.csr_array(added))
    more = Catalogue(
        items,
        _texts(catalogue.titles, data.titles, columns, len(catalogue.item_ids), len(items)),
        _texts(catalogue.genres, data.genres, columns, len(catalogue.item_ids), len(items)),
    )
    return Joined(
        before=before,
        train=grown,
        user_ids=users,
        catalogue=more,
        new_users=len(users) - len(user_ids),
        new_items=len(items) - len(catalogue.item_ids),
        known=len(data) - int(grown.nnz - before.nnz),
    )


def with_new_items(catalogue: Catalogue, features: ItemFeatures, new: IdMap) -> Catalogue:
    """The items, then new ones, whose titles and genres are those of their features."""
    if not len(new):
        return catalogue
    ids, _ = _appended(catalogue.item_ids, new)
    none, n_old = np.empty(0, dtype=np.int64), len(catalogue.item_ids)
    texts = (_texts(t, None, none, n_old, len(ids)) for t in (catalogue.titles, catalogue.genres))
    return described(Catalogue(ids, *texts), features)


def described(catalogue: Catalogue, features: ItemFeatures) -> Catalogue:
    """Items whose titles and genres are those of their features where they have none."""
    ids = catalogue.item_ids
    found, rows = features.of(ids), np.arange(len(ids))
    titles = _texts(catalogue.titles, found.texts(TITLES), rows, len(ids), len(ids))
    genres = _texts(catalogue.genres, found.texts(GENRES), rows, len(ids), len(ids))
    return Catalogue(ids, titles, genres)


def as_interactions(
    train: sp.csr_array, user_ids: IdMap, item_ids: IdMap, name: str
) -> Interactions:
    """A training matrix as interactions, for its fingerprint."""
    users, items = row_of_entry(train).astype(np.int32), train.indices.astype(np.int32)
    return Interactions(users, items, user_ids, item_ids, name=name)


def _appended(known: IdMap, given: IdMap) -> tuple[IdMap, npt.NDArray[np.int64]]:
    """All ids, the unknown ones of ``given`` last, and the row of each of ``given``."""
    rows = known.index(given.ids)
    unknown = np.flatnonzero(rows < 0)
    if not len(unknown):
        return known, rows
    rows[unknown] = len(known) + np.arange(len(unknown))
    parts = known.ids, given.ids[unknown]
    if all(part.dtype.kind in "iu" for part in parts):
        return IdMap(np.concatenate(parts)), rows
    return IdMap(text_array([str(value) for part in parts for value in part.tolist()])), rows


def resized(train: sp.csr_array, shape: tuple[int, int]) -> sp.csr_array:
    """The same entries in a larger matrix."""
    added = np.full(shape[0] - train.shape[0], train.indptr[-1], train.indptr.dtype)
    parts = train.data, train.indices, np.concatenate([train.indptr, added])
    return sp.csr_array(parts, shape=shape)


def _texts(
    old: Texts, new: Texts, columns: npt.NDArray[np.int64], n_old: int, n_items: int
) -> Texts:
    """Titles or genres of all items, "" where unknown; those of known items stay."""
    if old is None and new is None:
        return None
    out = np.full(n_items, "", dtype=object)
    if new is not None:
        out[columns] = new.astype(object)
    if old is not None:
        known = old.astype(object)
        told = np.array([bool(text) for text in known.tolist()], dtype=np.bool_)
        out[:n_old][told] = known[told]
    return text_array([str(text) for text in out.tolist()])
