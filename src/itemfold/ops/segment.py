"""Sums, products and maxima over ragged rows of gathered vectors, by the device's fastest kernel.

Row v has the entries ``starts[v] … starts[v+1]``; entry e gathers ``x[index[e]]``. The CPU uses
``embedding_bag`` and ``sampled_addmm``, which are vectorised and use all threads. A GPU uses a
Triton kernel, or embedding_bag and its gradient if triton is not installed.

Columns may be divided into equal *heads*, each with its own weights or products.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.data.csr import row_of_entry


def row_tensors(matrix: sp.csr_array, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Starts, indices and float32 weights of the rows of a scipy matrix, for `segment_sum`."""
    starts, index = (
        torch.from_numpy(part.astype(np.int64)).to(device)
        for part in (matrix.indptr, matrix.indices)
    )
    return starts, index, torch.from_numpy(matrix.data.astype(np.float32)).to(device)


def dense_rows(matrix: sp.csr_array, device: torch.device) -> Tensor:
    """A scipy matrix without duplicates as float32 ``[rows, columns]``; copies only its entries."""
    flat = torch.from_numpy(row_of_entry(matrix) * matrix.shape[1] + matrix.indices).to(device)
    out = torch.zeros(matrix.shape, device=device)
    out.view(-1)[flat] = torch.from_numpy(matrix.data.astype(np.float32)).to(device)
    return out


def segment_sum(
    starts: Tensor,
    index: Tensor,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """``out[v] = Σ_e w_e · x[index[e]]`` over the entries of each row, ``[rows, d]``.

    Weights are ``[entries]`` or ``[entries, heads]``. ``order`` may list the rows longest first,
    which helps a GPU. Starts may be int64 where the index is int32.
    """
    if fused(x):
        from itemfold.ops.triton.segment import gather_sum

        return gather_sum(starts, index, _rows(starts, order), x, weight=weight)
    if starts.dtype != index.dtype:
        sums = (
            segment_sum(own, index[part], x, weight=None if weight is None else weight[part])
            for _, part, own in narrow_blocks(starts)
        )
        return torch.cat(list(sums))
    if weight is not None and weight.dim() == 2:
        parts = zip(x.chunk(weight.shape[1], dim=1), weight.unbind(1), strict=True)
        return torch.cat([segment_sum(starts, index, part, weight=w) for part, w in parts], dim=1)
    return F.embedding_bag(
        index,
        x.contiguous(),
        starts,
        mode="sum",
        per_sample_weights=None if weight is None else weight.contiguous(),
        include_last_offset=True,
    )


def sampled_dot(
    starts: Tensor,
    index: Tensor,
    rows: Tensor,
    x: Tensor,
    *,
    heads: int | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """``out[e] = rows[v] · x[index[e]]`` for every entry e of every row v, ``[entries]``.

    With ``heads`` it is ``[entries, heads]``, one product per part of the columns.
    """
    if fused(x):
        from itemfold.ops.triton.segment import edge_dots

        dots = edge_dots(starts, index, _rows(starts, order), rows, x, heads or 1)
        return dots.squeeze(1) if heads is None else dots
    if starts.dtype != index.dtype:
        products = (
            sampled_dot(own, index[part], rows[block], x, heads=heads)
            for block, part, own in narrow_blocks(starts)
        )
        return torch.cat(list(products))
    if heads is not None:
        parts = zip(rows.chunk(heads, dim=1), x.chunk(heads, dim=1), strict=True)
        return torch.stack(
            [sampled_dot(starts, index, row_part, part) for row_part, part in parts], dim=1
        )
    if not x.is_cuda and len(index) <= len(rows) * len(x):  # the limit of a sparsity pattern
        return _sampled(starts, index, rows, x)
    owner = torch.repeat_interleave(
        torch.arange(len(rows), device=x.device, dtype=index.dtype),
        starts.diff(),
        output_size=len(index),
    )
    out: Tensor = torch.ops.aten._embedding_bag_per_sample_weights_backward(
        rows.contiguous(), x.contiguous(), index, starts[:-1], owner, 0
    )
    return out


def segment_max(
    starts: Tensor, index: Tensor, values: Tensor, *, order: Tensor | None = None
) -> Tensor:
    """``out[v] = max_e values[index[e]]``, very low for a row without entries, ``[rows]``."""
    if fused(values):
        from itemfold.ops.triton.segment import row_max

        return row_max(starts, index, _rows(starts, order), values)
    lowest = torch.finfo(values.dtype).min
    gathered = values.index_select(0, index)
    return torch.segment_reduce(gathered, "max", offsets=starts.long(), axis=0, initial=lowest)


MOST_NARROW = 2**31 - 1  # entries whose positions fit into 32 bits


def narrow_blocks(starts: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Blocks of rows whose positions fit into 32 bits: the rows, their entries, and int32 starts.

    CPU kernels need starts and indices of the same type; wider indices would double the memory of a
    large graph.
    """
    row, rows = 0, len(starts) - 1
    while row < rows:
        first = int(starts[row])
        end = int(torch.searchsorted(starts, first + MOST_NARROW, right=True)) - 1
        end = min(max(end, row + 1), rows)
        own = (starts[row : end + 1] - first).int()
        yield slice(row, end), slice(first, int(starts[end])), own
        row = end


def _sampled(starts: Tensor, index: Tensor, rows: Tensor, x: Tensor) -> Tensor:
    """The entries of ``rows · xᵀ`` in a CSR pattern, in its order, including duplicates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        pattern = torch.sparse_csr_tensor(
            starts, index, x.new_zeros(len(index)), size=(len(rows), len(x)), check_invariants=False
        )
    product = torch.sparse.sampled_addmm(pattern, rows.contiguous(), x.contiguous().T, beta=0.0)
    out: Tensor = product.values()
    return out


def fused(x: Tensor) -> bool:
    """Whether the Triton kernels apply: float32 or bfloat16 on a GPU with triton installed."""
    return x.dtype in (torch.float32, torch.bfloat16) and on_triton(x)


def on_triton(x: Tensor) -> bool:
    """Whether a tensor is on a GPU and triton is installed."""
    return x.is_cuda and _triton_present()


@functools.cache
def _triton_present() -> bool:
    return importlib.util.find_spec("triton") is not None


def _rows(starts: Tensor, order: Tensor | None) -> Tensor:
    return torch.arange(len(starts) - 1, device=starts.device) if order is None else order
