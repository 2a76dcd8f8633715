"""The inverse of a matrix after a change of low rank, by the Woodbury identity.

With A⁻¹ = P known, rows U [r, n] and coefficients c [r]:

    (A + Uᵀ diag(c) U)⁻¹ = P − (UP)ᵀ (diag(1/c) + U P Uᵀ)⁻¹ (UP)

The work is about 2n²r operations instead of the 2n³ of a new inverse.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.ops.inverse import Progress
from itemfold.ops.segment import row_tensors, segment_sum

BLOCK = 1024  # rows of the inverse at a time


def correct_inverse(
    inverse: Tensor,
    rows: sp.csr_array,
    coefficients: npt.NDArray[Any],
    watch: Progress = lambda steps, text: steps,
) -> Tensor:
    """The inverse of ``A + Uᵀ diag(c) U``, in the memory of the inverse of A, symmetric.

    The small system is solved in double precision: it is indefinite where rows are taken away.
    """
    if not rows.shape[0]:
        return inverse
    if not (coefficients != 0).all():
        raise ItemfoldError("'coefficients' must not be 0")
    projected = _product(rows, inverse)  # UP, [r, n]
    inner = _product(rows, projected.T.contiguous()).double()  # U (UP)ᵀ, [r, r]
    inner = (inner + inner.T) / 2
    inner.diagonal().add_(1 / torch.from_numpy(coefficients).to(inner))
    solved, wrong = torch.linalg.inv_ex(inner)
    if wrong or not bool(solved.isfinite().all()):
        raise ItemfoldError("the item–item matrix cannot be corrected: try a larger 'l2'")
    found = solved.to(inverse.dtype) @ projected  # [r, n]
    for start in watch(range(0, len(inverse), BLOCK), "correcting"):
        part = slice(start, start + BLOCK)
        inverse[part].addmm_(projected[:, part].T, found, alpha=-1)
    return inverse


def correction_flops(n: int, rank: int, entries: int) -> float:
    """Operations of `correct_inverse` for U with so many rows and entries."""
    products = 2.0 * entries * (n + rank)
    solve = 2.0 * rank**3 + 2.0 * rank**2 * n
    return products + solve + 2.0 * n**2 * rank


def _product(rows: sp.csr_array, dense: Tensor) -> Tensor:
    """A sparse matrix times a dense one, on the device of the dense one."""
    starts, index, weight = row_tensors(rows, dense.device)
    return segment_sum(starts, index, dense, weight=weight.to(dense.dtype))
