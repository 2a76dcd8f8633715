"""The inverse of a large positive definite matrix, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from itemfold.errors import ItemfoldError

# wraps the steps of a long computation, and shows its progress under a text
Progress = Callable[[Iterable[Any], str], Iterable[Any]]

BLOCK = {"cpu": 512, "cuda": 1024}  # rows and columns at a time
ROWS = 8  # blocks of rows that are one product


def invert(matrix: Tensor, watch: Progress = lambda steps, text: steps) -> Tensor:
    """The inverse of a positive definite matrix, in the same memory, block by block.

    A factorisation A = LLᵀ, then L⁻¹ in its place, then L⁻ᵀL⁻¹; almost all of the work is products
    of blocks, which are fast everywhere. (LAPACK's routines for the whole matrix are not:
    OpenBLAS's aborts the process beyond about 30,000 rows.)
    """
    blocks = _slices(0, len(matrix), BLOCK["cuda" if matrix.is_cuda else "cpu"])
    size = blocks[0].stop * ROWS
    for at, k in watch(list(enumerate(blocks)), "factorising"):
        factor, wrong = torch.linalg.cholesky_ex(matrix[k, k])
        if wrong:
            raise ItemfoldError("the item–item matrix cannot be inverted: try a larger 'l2'")
        matrix[k, k] = factor  # zero above the diagonal
        panel = torch.linalg.solve_triangular(factor.T, matrix[k.stop :, k], upper=True, left=False)
        matrix[k.stop :, k] = panel
        for j in blocks[at + 1 :]:
            rows = panel[j.start - k.stop :]
            matrix[j.start :, j].addmm_(rows, rows[: j.stop - j.start].T, alpha=-1)
    matrix.tril_()
    for k in watch(list(reversed(blocks)), "inverting"):
        unit = torch.eye(k.stop - k.start, dtype=matrix.dtype, device=matrix.device)
        matrix[k, k] = torch.linalg.solve_triangular(matrix[k, k], unit, upper=False)
        panel = matrix[k.stop :, k] @ matrix[k, k]
        for i in _slices(k.stop, len(matrix), size):
            matrix[i, k] = matrix[i, k.stop : i.stop] @ panel[: i.stop - k.stop] * -1
    for i in watch(blocks, "multiplying"):
        matrix[i, : i.stop] = matrix[i.start :, i].T @ matrix[i.start :, : i.stop]
        matrix[: i.start, i] = matrix[i, : i.start].T
    return matrix


def _slices(start: int, stop: int, size: int) -> list[slice]:
    """Consecutive slices that cover a range."""
    return [slice(at, min(at + size, stop)) for at in range(start, stop, size)]
