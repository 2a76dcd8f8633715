"""Times of the interactions of a split, without those of the test targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.csr import as_sorted, row_of_entry, take_entries
from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError

BLOCK = 2**20  # interactions that are looked up at once
Ids = IdMap | npt.NDArray[Any]
Part = tuple[sp.csr_array, Ids]  # interactions, and the external ids of their rows


@dataclass(frozen=True, eq=False, repr=False)
class Times:
    """The time of each known interaction.

    Attributes:
        ids: External ids of the users.
        matrix: Seconds of each pair's last interaction, float64, `[users, items]`; a stored 0 is a
            time, too.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_by_time(data)
        >>> times = split.times.of(split.train, split.user_ids)
        >>> times.shape == split.train.data.shape, bool(times.max() < data.times.max())
        (True, True)
    """

    ids: IdMap
    matrix: sp.csr_array  # [users, n_items]

    def __repr__(self) -> str:
        return f"Times({self.matrix.nnz:,} interactions of {len(self.ids):,} users)"

    def of(self, part: sp.csr_array, ids: Ids) -> Floats:
        """The times of the interactions of a part.

        Args:
            part: Interactions, `[rows, items]`.
            ids: External ids of its rows.

        Returns:
            Seconds, aligned with `part.data`.

        Raises:
            ItemfoldError: An interaction has no time here, such as a hidden one.
        """
        out, missing = np.empty(part.nnz), 0
        for block, place, found in self._find(part, ids):
            missing += int((~found).sum())
            out[block] = self.matrix.data[np.where(found, place, 0)] if found.any() else 0
        if missing:
            raise ItemfoldError(
                f"'part' must have interactions with a time, got {missing:,} without one: hidden "
                "test interactions have none"
            )
        return out

    def has(self, part: sp.csr_array, ids: Ids) -> bool:
        """Whether every interaction of a part has a time here."""
        return all(found.all() for _, _, found in self._find(part, ids))

    def only(self, parts: Iterable[Part]) -> Times:
        """The times of the interactions of these parts; users without one are removed."""
        known = np.zeros(self.matrix.nnz, np.bool_)
        for part, ids in parts:
            for _, place, found in self._find(part, ids):
                known[place[found]] = True
        kept = self.matrix if known.all() else take_entries(self.matrix, known)
        rows = np.flatnonzero(np.diff(kept.indptr))
        if len(rows) == len(self.ids):
            return Times(self.ids, kept)
        return Times(self.ids.take(rows), as_sorted(kept[rows]))

    def _find(self, part: sp.csr_array, ids: Ids) -> Iterator[tuple[slice, Ints, Bools]]:
        """Blocks of the entries of a part, their places here, and whether they are here."""
        if ids is self.ids:
            rows = np.arange(len(self.ids))
        else:
            rows = self.ids.index(ids.ids if isinstance(ids, IdMap) else ids)
        width = max(int(part.shape[1]), int(self.matrix.shape[1]))
        keys = row_of_entry(self.matrix)  # ascending
        keys *= width
        keys += self.matrix.indices
        for start in range(0, part.nnz, BLOCK):
            block = slice(start, min(start + BLOCK, part.nnz))
            entries = np.arange(block.start, block.stop)
            row = np.searchsorted(part.indptr, entries, side="right") - 1
            wanted = rows[row] * width + part.indices[block]  # below 0 for an unknown user
            place = np.searchsorted(keys, wanted)
            found = (wanted >= 0) & (place < len(keys))
            found[found] = keys[place[found]] == wanted[found]
            yield block, place, found
