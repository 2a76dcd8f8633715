"""When the interactions of a split happened, apart from those that are hidden for test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.csr import as_sorted, row_of_entry, take_entries
from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError

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
        place, found = self._find(part, ids)
        if not found.all():
            raise ItemfoldError(
                f"'part' must have interactions with a time, got {int((~found).sum()):,} without "
                "one: hidden test interactions have none"
            )
        out: Floats = self.matrix.data[place]
        return out

    def only(self, parts: Iterable[Part]) -> Times:
        """The times of the interactions of these parts; users without one are removed."""
        known = np.zeros(self.matrix.nnz, np.bool_)
        for part, ids in parts:
            place, found = self._find(part, ids)
            known[place[found]] = True
        kept = take_entries(self.matrix, known)
        rows = np.flatnonzero(np.diff(kept.indptr))
        return Times(self.ids.take(rows), as_sorted(kept[rows]))

    def _find(self, part: sp.csr_array, ids: Ids) -> tuple[Ints, Bools]:
        """The place of each entry of a part among the times, and whether it is there."""
        if ids is self.ids:
            rows = np.arange(len(self.ids))
        else:
            rows = self.ids.index(ids.ids if isinstance(ids, IdMap) else ids)
        width = max(int(part.shape[1]), int(self.matrix.shape[1]))
        keys = row_of_entry(self.matrix) * width + self.matrix.indices  # ascending
        wanted = rows[row_of_entry(part)] * width + part.indices  # below 0 for an unknown user
        place = np.searchsorted(keys, wanted)
        found = np.append(keys, -1)[place] == wanted
        return place, found & (wanted >= 0)
