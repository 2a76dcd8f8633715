"""The mean similarity of the items of each list: how much a list repeats itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.models.item_item import gram_matrix
from itemfold.ops.thread_map import thread_map
from itemfold.reranking.similarity import UnitVectors

BLOCK = 1024  # lists at a time
ROWS = 64  # items at a time whose cosines are looked up: the matrix of more leaves the cache
WHOLE = 8192  # most items whose cosines are one dense matrix, 256 MB


def mean_similarity(lists: npt.NDArray[Any], vectors: UnitVectors) -> Floats:
    """Mean cosine of the pairs of each list, ``[B, k] → [B]``; −1 is no item, NaN means no pair.

    >>> vectors = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    >>> mean_similarity(np.array([[0, 1], [0, -1]]), vectors).round(4)
    array([0.6, nan])
    """
    real = lists >= 0
    count = real.sum(1)
    pairs = (count * (count - 1)).astype(np.float64)
    total = _dense_pairs if isinstance(vectors, Tensor) else _sparse_pairs
    out = np.full(len(lists), np.nan)
    np.divide(total(np.where(real, lists, 0), real, vectors), pairs, out=out, where=pairs > 0)
    return out


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def _dense_pairs(lists: Ints, real: Bools, vectors: Any) -> Floats:
    """Sum of the cosines of all ordered pairs of each list: |Σ v|² − Σ |v|²."""
    vectors, out = vectors.cpu(), np.zeros(len(lists))
    for part in _blocks(len(lists)):
        found = vectors[torch.from_numpy(lists[part])].double()  # [b, k, d]
        found *= torch.from_numpy(real[part]).unsqueeze(2)
        out[part] = (found.sum(1).square().sum(1) - found.square().sum((1, 2))).numpy()
    return out


def _sparse_pairs(lists: Ints, real: Bools, vectors: Any) -> Floats:
    """The same for sparse vectors, by the way of fewest operations.

    The sum of the vectors of a list takes as many operations as they have entries: thousands each
    for the users of popular items, which are in most lists. The cosines of all pairs of listed
    items are computed once for all lists.
    """
    items, times = np.unique(lists[real], return_counts=True)
    vectors = vectors[items]
    places = np.where(real, np.searchsorted(items, lists), 0)
    of_sums = 2.0 * (times @ np.diff(vectors.indptr))  # each entry is added, then squared
    of_cosines = (np.bincount(vectors.indices).astype(np.float64) ** 2).sum()
    by_sums = of_sums <= of_cosines + real.size * real.shape[1]
    return (_pairs_by_sums if by_sums else _pairs_by_cosines)(places, real, vectors)


def _pairs_by_sums(places: Ints, real: Bools, vectors: sp.csr_array) -> Floats:
    out = np.zeros(len(places))
    squares = np.asarray(vectors.multiply(vectors).sum(1)).reshape(-1)
    for part in _blocks(len(places)):
        own, listed = real[part], places[part]
        ends = np.concatenate([[0], np.cumsum(own.sum(1))])
        shape = (len(own), vectors.shape[0])
        rows = sp.csr_array((np.ones(ends[-1]), listed[own], ends), shape=shape)
        total = rows @ vectors
        out[part] = np.asarray(total.multiply(total).sum(1)).reshape(-1) - rows @ squares
    return out


def _pairs_by_cosines(places: Ints, real: Bools, vectors: sp.csr_array) -> Floats:
    """The cosines of each item with all others, looked up for the lists that it is in."""
    by_item = np.argsort(places[real], kind="stable")  # entries of the lists
    listed = places[real][by_item]
    row = np.nonzero(real)[0][by_item]
    by_entry, n = sp.csr_array(vectors.T), vectors.shape[0]
    whole = gram_matrix(by_entry).numpy() if n <= WHOLE else None

    def sums(start: int) -> Floats:
        """The cosines of some items with the others of their lists, summed for each list."""
        part = slice(start, start + ROWS)
        cosines = (vectors[part] @ by_entry).toarray() if whole is None else whole[part]
        own = slice(*np.searchsorted(listed, [start, start + len(cosines)]))
        first, others = listed[own], places[row[own]]  # [entries], [entries, k]
        found = cosines[first[:, None] - start, others]
        is_pair = real[row[own]] & (others != first[:, None])
        total = np.where(is_pair, found, 0).sum(1, dtype=np.float64)
        return np.asarray(np.bincount(row[own], total, minlength=len(places)), dtype=np.float64)

    out = np.zeros(len(places))
    with thread_map() as spread:
        for each in spread(sums, range(0, n, ROWS)):
            out += each
    return out
