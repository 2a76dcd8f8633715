"""Rows of a sparse matrix as a dense tensor, filled where it is needed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor


def dense_rows(matrix: sp.csr_array, device: torch.device) -> Tensor:
    """A CSR matrix without duplicates as float32 ``[rows, columns]``; only its entries travel."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    flat = torch.from_numpy(rows * matrix.shape[1] + matrix.indices).to(device)
    out = torch.zeros(matrix.shape, device=device)
    out.view(-1)[flat] = torch.from_numpy(matrix.data.astype(np.float32)).to(device)
    return out
