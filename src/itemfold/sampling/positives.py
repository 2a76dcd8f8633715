"""Lookup of the training positives of users."""

from __future__ import annotations

from collections.abc import Iterator
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
    """Whether items are training positives of users."""

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
        """Users ``[B]`` against their items, bool ``[B, N]``."""
        wanted = users.unsqueeze(1) * self.n_items + items  # [B, N]
        if self.all_pairs is not None:
            return torch.from_numpy(self.all_pairs).view(-1)[wanted]
        return self.keys[torch.searchsorted(self.keys, wanted)] == wanted

    def negatives(
        self, users: Tensor, shared: Tensor, real: Tensor, size: int, before: int = 0
    ) -> Tensor:
        """Which real items of the list that a part shares are no positives of its users.

        A part has ``size`` of the users ``[b]``, of which the first part lacks ``before`` and the
        last maybe some. Lists and which of their items are real are ``[parts, M]``, the result is
        bool ``[b, M]``.
        """
        if on_triton(shared):
            from itemfold.ops.triton.membership import missing

            return missing(self.starts, self.items, users, shared, real, size, before)
        stops = [min(end * size - before, len(users)) for end in range(1, len(shared) + 1)]
        start = self.starts[users].long()
        length = self.starts[users + 1].long() - start
        is_long = int(length.sum()) * PLACES_PER_ENTRY > len(users) * shared.shape[1]
        if is_long and self.all_pairs is not None:
            return self._negatives_from(self.all_pairs, users, shared, real, stops)
        part = (torch.arange(len(users), device=shared.device) + before) // size
        out = real.index_select(0, part)
        for rows, parts in self._blocks(stops, length):
            hits = self._hits(start[rows], length[rows], part[rows] - parts.start, shared[parts])
            out[rows].view(-1)[hits] = False
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

    def _negatives_from(
        self,
        table: npt.NDArray[np.bool_],
        users: Tensor,
        shared: Tensor,
        real: Tensor,
        stops: list[int],
    ) -> Tensor:
        """`negatives` from a table of all pairs: rows of a part's users, columns of its items."""
        out = np.empty((len(users), shared.shape[1]), dtype=bool)
        starts = [0, *stops[:-1]]

        def fill(part: int) -> None:
            some = slice(starts[part], stops[part])
            rows, own = table[users[some].numpy()], out[some]
            np.take(rows, shared[part].numpy(), axis=1, out=own, mode="clip")  # needs no buffer
            np.greater(real[part].numpy(), own, out=own)  # real and no positive

        with thread_map() if out.size > THREADED else nullcontext(map) as parallel_map:
            list(parallel_map(fill, range(len(stops))))
        return torch.from_numpy(out)

    def _blocks(self, stops: list[int], length: Tensor) -> Iterator[tuple[slice, slice]]:
        """Rows and parts with about as many entries of histories as stay in a cache."""
        entries = F.pad(length.cumsum(0), (1, 0))[stops].tolist()
        row = part = done = 0
        for last, stop in enumerate(stops, start=1):
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
