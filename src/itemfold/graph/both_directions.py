"""The edges of a graph in both directions, in memory or mapped from disk."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.weights import is_weighted

MAPPED = 2**28  # edges from which a graph on the CPU is mapped from disk
CHUNK = 2**22  # interactions transposed at a time

Array = npt.NDArray[Any]
Edges = tuple[Array, Array, Array | None, Array]  # starts, columns, weights, degrees


def both_directions(forward: sp.csr_array, *, may_map: bool) -> Edges:
    """Starts and columns of all nodes, the edges' weights if any, and degrees, float32.

    A large graph on the CPU is built piece by piece in a temporary file (in `TMPDIR`), which is
    deleted when the process ends; the system keeps the used pages in memory.
    """
    n_users, half = forward.shape[0], forward.nnz
    mapped = may_map and 2 * half >= MAPPED
    col = _empty(2 * half, np.int32, mapped)
    for start in range(0, half, CHUNK):
        part = slice(start, min(start + CHUNK, half))
        np.add(forward.indices[part], n_users, out=col[part], casting="same_kind")
    weight = _empty(2 * half, np.float32, mapped) if is_weighted(forward) else None
    if weight is not None:
        weight[:half] = forward.data
    if mapped:
        starts = _transpose(forward, col[half:], None if weight is None else weight[half:])
    else:
        backward = sp.csr_array(forward.T)  # conversion leaves sorted indices
        starts, col[half:] = backward.indptr, backward.indices
        if weight is not None:
            weight[half:] = backward.data
    crow = np.concatenate([forward.indptr.astype(np.int64), starts[1:].astype(np.int64) + half])
    if weight is None:
        return crow, col, weight, np.diff(crow).astype(np.float32)
    shape = forward.shape[::-1]
    backward = sp.csr_array((weight[half:], col[half:], starts), shape=shape)
    sums = [np.asarray(part.sum(axis=1, dtype=np.float64)) for part in (forward, backward)]
    return crow, col, weight, np.concatenate(sums).astype(np.float32)


def _transpose(forward: sp.csr_array, col: Array, weight: Array | None) -> Array:
    """Write the users of each item, ascending; returns where each item begins."""
    size = np.bincount(forward.indices, minlength=forward.shape[1])
    starts = np.concatenate(([0], np.cumsum(size)))
    free = starts[:-1].copy()  # the next place of each item
    for start in range(0, forward.nnz, CHUNK):
        part = slice(start, min(start + CHUNK, forward.nnz))
        items = forward.indices[part]
        order = np.argsort(items, kind="stable")
        items = items[order]
        here = np.bincount(items, minlength=len(size))
        rank = np.arange(len(items)) - np.repeat(np.cumsum(here) - here, here)
        place = free[items] + rank
        entries = np.arange(part.start, part.stop)[order]
        col[place] = np.searchsorted(forward.indptr, entries, side="right") - 1
        if weight is not None:
            weight[place] = forward.data[entries]
        free += here
    return starts


def _empty(size: int, dtype: Any, mapped: bool) -> Array:
    if not mapped:
        return np.empty(size, dtype)
    with tempfile.TemporaryFile(prefix="itemfold-graph-") as file:  # the map keeps it alive
        return np.asarray(np.memmap(file, dtype, mode="w+", shape=(size,)))
