"""The nearest items of some items, from the products of their columns.

An item is nearer the larger its score is, then the more popular it is. If fewer than k items have a
score, the most popular others follow. Items are numbered by popularity.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

ROWS = 128  # items at a time
KEYS = 2**21  # keys at a time, unless it is one item
NOTHING = np.iinfo(np.int64).min  # below every key
UNKNOWN = np.int64(np.iinfo(np.int32).min)  # below every score

Ints = npt.NDArray[np.int64]


def nearest_items(items: Ints, scores: sp.csr_array, k: int) -> npt.NDArray[np.int32]:
    """The k nearest of each item, ascending, ``[len(items), k]``.

    Args:
        items: The items.
        scores: Their scores of the others, `[len(items), all items]`; an own one is ignored.
        k: How many; at most all others.
    """
    near = np.empty((len(items), k), dtype=np.int32)
    n_items, lengths = scores.shape[1], np.diff(scores.indptr)
    keys = _keys(scores.data, scores.indices, n_items)
    keys[scores.indices == np.repeat(items, lengths)] = NOTHING
    order = np.argsort(-lengths, kind="stable")  # rows of similar lengths go together
    done = 0
    while done < len(order):
        width = int(lengths[order[done]])
        rows = order[done : done + max(min(ROWS, KEYS // (width + k + 1)), 1)]
        done += len(rows)
        table = _table(keys, scores.indptr, rows, width)
        if lengths[rows[-1]] <= k:  # one of them may be the item itself
            table = np.concatenate([table, _popular(table, items[rows], k, n_items)], axis=1)
        first = table.shape[1] - k
        best = np.partition(table, first, axis=1)[:, first:]
        near[rows] = np.sort(_items(best, n_items), axis=1)
    return near


def _keys(scores: npt.NDArray[np.float32], items: npt.NDArray[np.int32], n_items: int) -> Ints:
    """Numbers in the order of the scores; of equal scores, the more popular item's is larger."""
    bits = scores.view(np.int32)
    bits = bits ^ ((bits >> 31) & np.int32(np.iinfo(np.int32).max))  # in the order of the floats
    return (bits.astype(np.int64) << 32) + (n_items - items.astype(np.int64))


def _items(keys: Ints, n_items: int) -> Ints:
    """The items of keys; ``n_items`` if there is none."""
    return n_items - (keys & np.int64(2**32 - 1))


def _table(keys: Ints, starts: npt.NDArray[np.int32], rows: Ints, width: int) -> Ints:
    """The keys of some rows, ``[rows, width]``."""
    place = starts[rows].astype(np.int64)[:, None] + np.arange(width)
    there = place < starts[rows + 1][:, None]
    table = np.full(place.shape, NOTHING)
    table[there] = keys[place[there]]
    return table


def _popular(table: Ints, items: Ints, k: int, n_items: int) -> Ints:
    """Keys of the k + 1 most popular items that a row lacks, ``[rows, k + 1]``."""
    free = np.ones((len(table), k + 2), dtype=np.bool_)
    taken = np.concatenate([_items(table, n_items), items[:, None]], axis=1)
    np.put_along_axis(free, np.minimum(taken, k + 1), False, axis=1)
    keys = (UNKNOWN << 32) + (n_items - np.arange(k + 1))
    return np.where(free[:, : k + 1], keys, NOTHING)
