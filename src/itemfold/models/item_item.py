"""Item–item statistics in blocks, and the base of models with sparse item–item weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import as_ones
from itemfold.graph.edge_ops import weighted_sum
from itemfold.graph.graph import Adjacency, fold_adjacency
from itemfold.models.base import Kind, Model
from itemfold.models.stored_csr import check_stored_csr
from itemfold.ops.segment import dense_rows, row_tensors, segment_sum
from itemfold.ops.thread_map import thread_map

Floats = npt.NDArray[np.float32]
BLOCK = 1024  # items at a time
DENSE = (2**25, 2**28)  # elements of the interactions that a CPU and a GPU hold at a time
DENSE_SPEED = 12  # sums of dense rows against a sparse product: operations in the same time, CPU
DENSE_WEIGHTS = 2**26  # elements of weights that are also held as a dense matrix, 256 MB
BATCH = 64  # histories from which on threads and dense weights pay
CPU = torch.device("cpu")


def cooccurrence(train: sp.csr_array) -> Iterator[tuple[int, Floats]]:
    """``XᵀX`` in blocks of rows: first item, dense counts ``[≤ BLOCK, items]``."""
    by_item = sp.csr_array(train.T)  # [items, users]
    for start in range(0, train.shape[1], BLOCK):
        block = by_item[start : start + BLOCK] @ train
        yield start, np.asarray(block.toarray(), dtype=np.float32)


def gram_matrix(train: sp.csr_array, device: torch.device = CPU) -> Tensor:
    """``XᵀX`` in full ``[items, items]``, by the method of fewest operations."""
    lengths = np.diff(train.indptr).astype(np.float64)
    as_dense = float(train.nnz) * train.shape[1]
    if device.type != "cpu" or as_dense < DENSE_SPEED * float((lengths**2).sum()):
        return _gram_of_dense(train, device)
    return _gram_of_sparse(train)


def _gram_of_sparse(train: sp.csr_array) -> Tensor:
    """Products of sparse blocks, several at a time, each written to its place."""
    n_items = train.shape[1]
    gram = np.zeros((n_items, n_items), np.float32)
    train = train.astype(np.float32, copy=False)
    by_item = sp.csr_array(train.T)  # [items, users]
    size = min(BLOCK, -(-n_items // torch.get_num_threads()))

    def fill(start: int) -> None:
        part = slice(start, start + size)
        (by_item[part] @ train).toarray(out=gram[part])

    with thread_map() as spread:
        list(spread(fill, range(0, n_items, max(size, 1))))
    return torch.from_numpy(gram)


def _gram_of_dense(train: sp.csr_array, device: torch.device) -> Tensor:
    """Sums of dense rows over the users of each item, some columns at a time."""
    n_users, n_items = train.shape
    by_item = sp.csr_array(train.T)  # [items, users]
    starts, index, weight = row_tensors(by_item, device)
    gram = torch.empty(n_items, n_items, device=device)
    size = max(DENSE[device.type == "cuda"] // max(n_users, 1), 1)
    for start in range(0, n_items, size):
        part = slice(start, start + size)
        columns = dense_rows(by_item[part], device).T.contiguous()  # [users, ≤ size]
        gram[:, part] = segment_sum(starts, index, columns, weight=weight)
    return gram


def row_sums(history: sp.csr_array, weights: Tensor) -> Tensor:
    """``history · weights``: the rows of dense weights, summed over each history."""
    starts, index, value = row_tensors(history, weights.device)
    return segment_sum(starts, index, weights, weight=value)


def history_values(history: sp.csr_array, device: torch.device) -> Tensor:
    """The entries of a history: ones, weights, or numbers below 0 for dislikes, ``[H]``."""
    return torch.from_numpy(history.data.astype(np.float32)).to(device)


def strongest(values: Floats, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their columns, both ``[rows, k]``."""
    top = torch.from_numpy(values).topk(min(k, values.shape[1]), dim=1)
    return top.values, top.indices


class SparseWeights(Model):
    """A linear model with few weights: ``scores = history · W`` with a sparse W [items, items].

    ``W[i, j]`` is the contribution of an item i in the history to the score of item j, so a score
    is a sum over the history and every share is exact. Users have no parameters: a new user is a
    history like any other. Weights of interactions are the entries of the histories.
    """

    explains = True
    kind = Kind.CLOSED_FORM
    weighs = ("linear",)

    weight_starts: Tensor  # int64 [items + 1]
    weight_items: Tensor  # int32 [weights]
    weight_values: Tensor  # float32 [weights]

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Start without weights."""
        super().setup(train, inductive=inductive, generator=generator)
        self.register_buffer("nothing", torch.empty(0), persistent=False)  # has a device
        self.targets: tuple[Adjacency, Tensor] | None = None
        self.matrix: tuple[Tensor, sp.csr_array] | None = None
        self.dense: tuple[Tensor, Tensor] | None = None

    def keep(
        self, columns: Iterable[tuple[int, Tensor, Tensor]], items: Tensor | None = None
    ) -> None:
        """Store blocks: first item j, sources i ``[b, k]``, weights ``[b, k]``; drop zeros.

        If only some items have weights, blocks number these, and ``items`` lists them, ascending. A
        single block's memory may be used for the result.
        """
        rows, values, lengths = [], [], np.zeros(self.n_items + 1, dtype=np.int64)
        for start, sources, weights in columns:
            targets = torch.arange(start, start + len(sources))
            if items is not None:
                sources, targets = items[sources.long()], items[targets]
            rows.append(sources.reshape(-1).to(torch.int32).numpy())
            values.append(weights.reshape(-1).numpy())
            lengths[targets.numpy() + 1] = sources.shape[1]
        if len(rows) > 1:  # a single block is not copied
            rows, values = [np.concatenate(rows)], [np.concatenate(values)]
        parts = (values[0], rows[0], lengths.cumsum())
        by_target = sp.csc_array(parts, shape=(self.n_items, self.n_items))
        by_target.eliminate_zeros()
        matrix = sp.csr_array(by_target)
        matrix.sort_indices()
        self._put(matrix.indptr, matrix.indices, matrix.data)

    def keep_all(self, weights: Tensor) -> None:
        """Store all weights, ``[items, items]``, without zeros."""
        values = weights.cpu().numpy()
        there = values != 0
        items = np.broadcast_to(np.arange(self.n_items, dtype=np.int32), values.shape)
        ends = np.append(0, there.sum(1).cumsum())
        self._put(ends, items[there], values[there])

    def _put(self, *parts: npt.NDArray[Any]) -> None:
        """Store the parts of a sparse matrix with sorted rows: starts, columns, values."""
        names = {"starts": np.int64, "items": np.int32, "values": np.float32}
        for (name, dtype), part in zip(names.items(), parts, strict=True):
            tensor = torch.from_numpy(part.astype(dtype, copy=False))
            self.store(f"weight_{name}", tensor.to(self.device))
        self.targets = None

    def restore(self, train: sp.csr_array) -> None:
        """Check the weights of a file: compiled code that reads them trusts their positions."""
        names = ("weight_starts", "weight_items", "weight_values")
        check_stored_csr(self, names, "the item–item weights", n_rows=self.n_items)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """A sparse product; on the CPU one that reads only the weights of the history's items."""
        if self.device.type != "cpu":
            return self.scores_on_device(history)
        if history.shape[0] >= BATCH and self._is_dense:
            return row_sums(history, self._dense_matrix())
        return self._sparse_scores(history)

    def _sparse_scores(self, history: sp.csr_array) -> Tensor:
        """scipy's product, of many histories in several threads."""
        matrix, rows = self._matrix(), history.shape[0]
        ends, items = (
            part.astype(matrix.indices.dtype, copy=False)  # else scipy converts the weights
            for part in (history.indptr, history.indices)
        )
        values = history.data.astype(np.float32, copy=False)
        short = sp.csr_array((values, items, ends), shape=history.shape)
        if rows < 2 * BATCH:
            return torch.from_numpy((short @ matrix).toarray())
        out = torch.zeros(rows, self.n_items)
        into = out.numpy()

        def fill(start: int) -> None:
            part = slice(start, min(start + BATCH, rows))
            (short[part] @ matrix).toarray(out=into[part])

        with thread_map() as spread:
            list(spread(fill, range(0, rows, BATCH)))
        return out

    def scores_on_device(self, history: sp.csr_array) -> Tensor:
        """A neighbourhood sum: each item sums over its sources, for all histories at once."""
        if self.targets is None or self.targets[0].crow.device != self.device:
            transposed = sp.csr_array(self._matrix().T)  # [targets, sources]
            zeros = torch.zeros(self.n_items, device=self.device)
            adjacency = fold_adjacency(as_ones(transposed), zeros)
            self.targets = adjacency, torch.from_numpy(transposed.data).to(self.device)
        seen = dense_rows(history, self.device).T.contiguous()  # [items, B]
        return weighted_sum(*self.targets, seen).T.contiguous()

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """The weight from each history item to each recommended one, times the history's."""
        part = self._matrix()[history.indices][:, items.cpu().numpy()].toarray()
        weights = torch.from_numpy(part.T.copy()).to(self.device)
        return weights * history_values(history, self.device)

    @property
    def _is_dense(self) -> bool:
        """Whether dense rows of weights are summed faster than sparse ones, and are small."""
        n_weights, size = len(self.weight_values), self.n_items**2
        return size <= DENSE_WEIGHTS and n_weights * DENSE_SPEED >= size

    def _dense_matrix(self) -> Tensor:
        """The stored weights as a dense matrix, made once."""
        if self.dense is None or self.dense[0] is not self.weight_values:
            self.dense = self.weight_values, torch.from_numpy(self._matrix().toarray())
        return self.dense[1]

    def _matrix(self) -> sp.csr_array:
        """The stored weights as a scipy matrix, made once; on the CPU no weight is copied."""
        if self.matrix is None or self.matrix[0] is not self.weight_values:
            parts = (self.weight_values, self.weight_items, self.weight_starts)
            data, indices, indptr = (part.cpu().numpy() for part in parts)
            if indptr[-1] < 2**31:  # scipy needs one type, and would convert the longer array
                indptr = indptr.astype(indices.dtype)
            shape = (self.n_items, self.n_items)
            self.matrix = self.weight_values, sp.csr_array((data, indices, indptr), shape=shape)
        return self.matrix[1]
