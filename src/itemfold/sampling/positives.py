"""Lookup of the training positives of users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.data.csr import as_ones, row_of_entry
from itemfold.graph.graph import row_type
from itemfold.ops.segment import on_triton
from itemfold.ops.thread_map import thread_map

BLOCK = 1 << 19  # entries of histories that are looked up at a time
TABLE = 1 << 24  # items of parts that are looked up at a time, if there are several
THREADED = 1 << 22  # lookups in a table of all pairs that are worth starting threads for
PLACES_PER_ENTRY = 12  # of a list that are looked up while one entry of a history is
ALL_PAIRS = 1 << 26  # bytes of a table of all pairs of a user and an item, on a CPU


class Positives:
    """Whether an item is a training positive of a user: one sorted table of user–item keys."""

    def __init__(self, train: sp.csr_array, device: Any = "cpu") -> None:
        train = as_ones(train)
        self.n_items = int(train.shape[1])
        keys = row_of_entry(train) * self.n_items + train.indices
        # a last key that matches nothing, so that every search result is a valid position
        self.keys = torch.from_numpy(np.append(keys, np.iinfo(np.int64).max)).to(device)
        self.starts = torch.from_numpy(train.indptr.astype(row_type(train.nnz))).to(device)
        self.items = torch.from_numpy(train.indices.astype(np.int32)).to(device)
        self._run = self.items[:0]  # of each item of a part; -1 between calls

    def is_positive(self, users: Tensor, items: Tensor) -> Tensor:
        """Users ``[B]`` against their items ``[B, N]`` or one shared list ``[N]``: bool [B, N]."""
        if items.dim() == 1:
            return self.in_shared([users], items.unsqueeze(0))
        wanted = users.unsqueeze(1) * self.n_items + items  # [B, N]
        if self.all_pairs is not None:
            return torch.from_numpy(self.all_pairs).view(-1)[wanted]
        return self.keys[torch.searchsorted(self.keys, wanted)] == wanted

    def in_shared(self, users: Sequence[Tensor], shared: Tensor) -> Tensor:
        """Users of several parts against the list that their part shares, ``[parts, M]``.

        The result has the rows of all parts, bool ``[b, M]``.
        """
        if on_triton(shared):
            from itemfold.ops.triton.membership import contains

            pairs = zip(users, shared, strict=True)
            return torch.cat([contains(self.starts, self.items, *pair) for pair in pairs])
        sizes = torch.tensor([len(some) for some in users], device=shared.device)
        row, part = torch.cat(list(users)), torch.repeat_interleave(sizes)
        start = self.starts[row].long()
        length = self.starts[row + 1].long() - start
        is_long = int(length.sum()) * PLACES_PER_ENTRY > len(row) * shared.shape[1]
        if is_long and self.all_pairs is not None:
            return self._shared_from(self.all_pairs, users, shared)
        out = shared.new_zeros((len(row), shared.shape[1]), dtype=torch.bool)
        for rows, parts in self._blocks(sizes, length):
            hits = self._hits(start[rows], length[rows], part[rows] - parts.start, shared[parts])
            out[rows].view(-1)[hits] = True
        return out

    @cached_property
    def all_pairs(self) -> npt.NDArray[np.bool_] | None:
        """Whether each user has each item, on a CPU if the table is small enough; else None.

        With long histories a lookup in it is ten times as fast as one of all their entries.
        """
        n_users = len(self.starts) - 1
        if self.items.is_cuda or n_users * self.n_items > ALL_PAIRS:
            return None
        out = np.zeros((n_users, self.n_items), dtype=bool)
        out[np.repeat(np.arange(n_users), np.diff(self.starts.numpy())), self.items.numpy()] = True
        return out

    def _shared_from(
        self, table: npt.NDArray[np.bool_], users: Sequence[Tensor], shared: Tensor
    ) -> Tensor:
        """`in_shared` from a table of all pairs: rows of a part's users, columns of its items."""
        bounds = np.cumsum([0, *map(len, users)])
        out = np.empty((bounds[-1], shared.shape[1]), dtype=bool)

        def fill(part: int) -> None:
            rows = table[users[part].numpy()]
            own = out[bounds[part] : bounds[part + 1]]
            np.take(rows, shared[part].numpy(), axis=1, out=own, mode="clip")  # needs no buffer

        with thread_map() if out.size > THREADED else nullcontext(map) as parallel_map:
            list(parallel_map(fill, range(len(users))))
        return torch.from_numpy(out)

    def _blocks(self, sizes: Tensor, length: Tensor) -> Iterator[tuple[slice, slice]]:
        """Rows and parts with about as many entries of histories as stay in a cache."""
        stops = sizes.cumsum(0)
        entries = F.pad(length.cumsum(0), (1, 0))[stops].tolist()
        row = part = done = 0
        for last, stop in enumerate(stops.tolist(), start=1):
            is_full = last < len(entries) and (
                entries[last] - done > BLOCK or (last - part + 1) * self.n_items > TABLE
            )
            if is_full or last == len(entries):
                yield slice(row, stop), slice(part, last)
                row, part, done = stop, last, entries[last - 1]

    def _hits(self, start: Tensor, length: Tensor, part: Tensor, shared: Tensor) -> Tensor:
        """Flat places in ``[rows, M]`` where a history has an item of the list of its part.

        Entries of histories are looked up in a table of the items of the lists: there are far fewer
        of them than places, and few are found.
        """
        parts, width = shared.shape
        count_up = partial(torch.arange, device=shared.device)
        if len(self._run) < parts * self.n_items:
            self._run = self.items.new_full((parts * self.n_items,), -1)
        offset = count_up(parts).unsqueeze(1) * self.n_items
        keys, order = (shared + offset).view(-1).sort()
        distinct, count = torch.unique_consecutive(keys, return_counts=True)  # runs of equal items
        self._run[distinct] = count_up(len(distinct), dtype=torch.int32)
        row = torch.repeat_interleave(length)  # [E], entries of all histories
        entry = count_up(len(row)) + (start - length.cumsum(0) + length)[row]
        run = self._run[self.items[entry] + (part * self.n_items)[row]]
        self._run[distinct] = -1
        found = (run >= 0).nonzero()[:, 0]
        row, run = row[found], run[found].long()
        times = count[run]  # a list may hold an item several times
        each = torch.repeat_interleave(times)
        place = count_up(len(each)) + (count.cumsum(0)[run] - times.cumsum(0))[each]
        return row[each] * width + order[place] % width
