"""Random folds: every interaction, or every user, is in the test part of exactly one fold."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Ints
from itemfold.data.csr import row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.validation import positive_integer


def check_fold(folds: int | None, fold: int | None) -> tuple[int, int] | None:
    """The number of folds and the selected fold, from 1; None for a split without folds."""
    if folds is None and fold is None:
        return None
    if folds is None or fold is None:
        raise ItemfoldError("'folds' and 'fold' belong together: give both or none")
    folds, fold = positive_integer("folds", folds), positive_integer("fold", fold)
    if folds < 2:
        raise ItemfoldError(f"'folds' must be at least 2, got {folds}")
    if fold > folds:
        raise ItemfoldError(f"'fold' must be at most 'folds' ({folds}), got {fold}")
    return folds, fold


def fold_entries(matrix: sp.csr_array, folds: int, fold: int, rng: np.random.Generator) -> Bools:
    """The entries of a fold, ``[nnz]``; the folds of a user differ by at most one entry.

    A user's only entry is in no fold, because nothing would be left to train on. The same state of
    the generator gives the same folds, whichever of them is asked for.

    >>> matrix = sp.csr_array([[1, 1, 1, 1], [0, 0, 1, 0]])
    >>> made = [fold_entries(matrix, 2, n, np.random.default_rng(0)) for n in (1, 2)]
    >>> sum(part.astype(int) for part in made).tolist()
    [1, 1, 1, 1, 0]
    """
    count, user = np.diff(matrix.indptr), row_of_entry(matrix)
    order = np.lexsort((rng.random(matrix.nnz), user))  # random within each user
    place = np.empty(matrix.nnz, dtype=np.int64)
    place[order] = np.arange(matrix.nnz) - matrix.indptr[user]
    first = rng.integers(folds, size=len(count))  # so that short histories are in all folds
    found: Bools = ((place + first[user]) % folds == fold - 1) & (count[user] > 1)
    return found


def fold_first(order: Ints, folds: int, fold: int) -> tuple[Ints, int]:
    """Users with those of a fold first, and their number.

    >>> [fold_first(np.arange(5), 2, n) for n in (1, 2)]
    [(array([0, 1, 2, 3, 4]), 2), (array([2, 3, 4, 0, 1]), 3)]
    """
    low, high = (len(order) * n // folds for n in (fold - 1, fold))
    return np.concatenate([order[low:high], order[:low], order[high:]]), high - low
