"""CSR matrices of interactions: rows are users, columns are items, entries are ones or weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Ints


def from_parts(
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_items: int,
    data: npt.NDArray[Any] | None = None,
) -> sp.csr_array:
    """A matrix from item indices, which are sorted within each row; entries default to ones."""
    data = np.ones(len(indices), np.float32) if data is None else data
    if len(indices) < 2**31:  # half the memory, and the type the fast kernels take
        indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_items))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def checked(
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    shape: tuple[int, int],
    weights: npt.NDArray[Any] | None = None,
) -> sp.csr_array:
    """Interactions from stored arrays; raises ValueError if they are inconsistent."""
    check_csr(indices, indptr, shape, "the interactions", "users")
    if weights is None:
        weights = np.ones(len(indices), np.float32)
    if weights.shape != indices.shape or not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError("weights must be positive numbers, one for each interaction")
    return sp.csr_array((weights, indices, indptr), shape=shape)


def check_csr(
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    shape: tuple[int, int],
    what: str,
    rows: str,
) -> None:
    """Raise ValueError unless arrays are those of a matrix of this shape, whose columns are items.

    Compiled code does not check the arrays of a matrix: a wrong index could crash the process.
    ``what`` and ``rows`` name the entries and the rows in the error.
    """
    n_rows, n_items = shape
    if indices.ndim != 1 or indptr.shape != (n_rows + 1,):
        raise ValueError(f"{what} are not those of {n_rows} {rows}")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"{what} of {rows} overlap")
    if len(indices) and not 0 <= indices.min() <= indices.max() < n_items:
        raise ValueError(f"some of {what} are of items outside the {n_items}")


def row_of_entry(matrix: sp.csr_array) -> Ints:
    """The row of each stored entry, [nnz]."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def take_entries(matrix: sp.csr_array, mask: Bools) -> sp.csr_array:
    """Only the entries where the mask is true; the shape is unchanged."""
    before = np.concatenate(([0], np.cumsum(mask)))
    ends, n_items = before[matrix.indptr], int(matrix.shape[1])
    return from_parts(matrix.indices[mask], ends, n_items, matrix.data[mask])


def take_columns(matrix: sp.csr_array, columns: Ints) -> sp.csr_array:
    """Only the given columns, ascending, renumbered 0, 1, …"""
    if len(columns) == matrix.shape[1]:
        return matrix
    new = np.full(matrix.shape[1], -1, np.int64)
    new[columns] = np.arange(len(columns))
    kept = take_entries(matrix, new[matrix.indices] >= 0)
    return from_parts(new[kept.indices], kept.indptr, len(columns), kept.data)


def as_ones(matrix: Any) -> sp.csr_array:
    """Any sparse matrix as sorted CSR with every stored value set to one."""
    matrix = as_sorted(matrix)
    return from_parts(matrix.indices, matrix.indptr, matrix.shape[1])


def as_sorted(matrix: Any) -> sp.csr_array:
    """Any sparse matrix as sorted CSR with its values."""
    matrix = sp.csr_array(matrix)
    matrix.sort_indices()
    return from_parts(matrix.indices, matrix.indptr, matrix.shape[1], matrix.data)


def scatter_rows(rows: sp.csr_array, at: Ints, n_rows: int) -> sp.csr_array:
    """A matrix of ``n_rows`` rows, with the given rows at positions ``at`` and the others empty."""
    place = sp.csr_array(
        (np.ones(len(at), np.float32), (at, np.arange(len(at)))), shape=(n_rows, len(at))
    )
    return sp.csr_array(place @ rows)


def pick_share(
    matrix: sp.csr_array,
    share: float,
    rng: np.random.Generator,
    *,
    least: int = 0,
    leave: int = 0,
    dither: bool = False,
) -> Bools:
    """Choose a fraction of each row's entries at random; return a mask over the entries.

    From a row of d entries it chooses round(share · d), at least ``least``, and leaves at least
    ``leave``; ``least`` wins if both are impossible. With ``dither`` it rounds up or down at
    random, without bias, but never all rows to nothing, as could happen with a few short ones.
    """
    size = np.diff(matrix.indptr)
    lifted = share * size + (rng.random(len(size)) if dither else 0.5)
    wanted = np.floor(lifted).astype(np.int64)
    spare = size > leave
    if dither and share > 0 and spare.any() and not wanted[spare].any():
        wanted[np.argmax(np.where(spare, lifted, 0))] = 1
    wanted = np.minimum(np.maximum(np.minimum(wanted, size - leave), least), size)
    rows = row_of_entry(matrix)
    # float32 noise below 1 added to an integer row is exact in float64: rows stay together.
    order = np.argsort(rows + rng.random(matrix.nnz, dtype=np.float32))
    chosen = np.empty(matrix.nnz, bool)
    chosen[order] = np.arange(matrix.nnz) - matrix.indptr[rows] < wanted[rows]
    return chosen
