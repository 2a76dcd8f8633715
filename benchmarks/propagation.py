"""Forward and backward pass of one neighbourhood average of 64 columns, against torch and scipy."""

from __future__ import annotations

import warnings

from common import Verdicts, begin, interleaved, parser

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.graph.propagation import propagate


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--columns", type=int, default=64)
    options = arguments.parse_args()
    split = begin(options)
    graph = Graph.from_csr(split.train)
    matrix = normalised(split.train)
    generator = torch.Generator().manual_seed(0)
    shape = (graph.n_nodes, options.columns)
    x = torch.randn(shape, generator=generator).requires_grad_()
    toward = torch.randn(shape, generator=generator)
    values = x.detach().numpy()
    csr = torch_csr(matrix)
    coo = csr.to_sparse_coo().coalesce()

    error = np.abs(propagate(graph, x).detach().numpy() - matrix @ values).max()
    print(f"largest difference from scipy {error:.1e}")
    seconds = interleaved(
        {
            "ours": lambda: torch.autograd.grad(propagate(graph, x), x, toward),
            "torch CSR": lambda: torch.autograd.grad(csr @ x, x, toward),
            "torch COO": lambda: torch.autograd.grad(coo @ x, x, toward),
            "scipy": lambda: (matrix @ values, matrix @ toward.numpy()),
        },
        rounds=1 if options.quick else 15,
    )
    for name, spent in seconds.items():
        print(f"{name:>10} {1e3 * spent:8.1f} ms forward and backward")
    verdicts = Verdicts()
    verdicts.also("propagation_error", float(error), 1e-5)
    verdicts.last("propagation_speedup", seconds["torch CSR"] / seconds["ours"], 5.0, at_least=True)


def normalised(train: sp.csr_array) -> sp.csr_array:
    """D^-1/2 A D^-1/2 of the bipartite graph as a scipy matrix."""
    whole = sp.block_array([[None, train], [train.T, None]], format="csr", dtype=np.float32)
    degree = np.diff(whole.indptr)
    root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0).astype(np.float32)
    scale = sp.diags_array(root, dtype=np.float32)
    return sp.csr_array(scale @ whole @ scale)


def torch_csr(matrix: sp.csr_array) -> Tensor:
    """The same matrix as a torch tensor."""
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)


if __name__ == "__main__":
    main()
