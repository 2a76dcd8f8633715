"""GF-CF: collaborative filtering as two fixed filters of the interaction graph.

Shen et al., "How Powerful is Graph Convolution for Recommendation?", CIKM 2021. With
``R̃ = D_U^-½ R D_I^-½``, Ū the first k right singular vectors of R̃ ``[items, k]``, a history r:

    scores = r · (R̃ᵀR̃ + α D_I^-½ Ū Ūᵀ D_I^½)                             [B, items]

a linear filter and an ideal low-pass filter. The first is two propagation steps over the training
graph, the second two thin products; Ū is computed by subspace iteration with the same propagation.
Scores are linear in the history: shares are exact, and a new user is a history like any other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.graph.graph import Graph, inverse_root, row_degrees
from itemfold.graph.propagation import propagate
from itemfold.models.additive import explain_additive
from itemfold.models.base import Kind, Model
from itemfold.validation import at_least_zero, positive_integers

SPARE = 32  # extra vectors, so that the wanted ones converge faster
BLOCK = 512  # users propagated at a time


class GFCF(Model):
    """Linear and ideal low-pass graph filters (CIKM 2021).

    A user is represented by the history alone, and explanations are exact.

    Args:
        dim: Singular vectors of the low-pass filter, k.
        alpha: Weight α of the low-pass filter.
        iterations: Steps of the subspace iteration.
    """

    paper = "How Powerful is Graph Convolution for Recommendation?"
    year = 2021
    explains = True
    kind = Kind.CLOSED_FORM
    weighs = ("graph",)

    basis: Tensor  # [items, k]
    crow: Tensor  # the training graph, int32 [nodes + 1]
    col: Tensor  # int32 [2 · interactions]

    def __init__(self, dim: int = 256, alpha: float = 0.3, iterations: int = 20) -> None:
        super().__init__()
        positive_integers(dim=dim, iterations=iterations)
        at_least_zero(alpha=alpha)
        self.dim, self.alpha, self.iterations = dim, alpha, iterations
        self.graph: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Draw a random initial subspace."""
        super().setup(train, inductive=inductive, generator=generator)
        width = min(self.dim + SPARE, self.n_items)
        self.start = torch.randn(self.n_items, width, generator=generator)
        self.store("basis", torch.zeros(self.n_items, min(self.dim, self.n_items)))
        self.graph = None

    @torch.no_grad()
    def solve(self, train: sp.csr_array) -> None:
        """Store the graph and compute Ū."""
        self.replace_interactions(train)
        space = torch.linalg.qr(self.start.to(self.device)).Q
        for _ in range(self.iterations):
            space = torch.linalg.qr(self.linear(space)).Q
        small = space.T @ self.linear(space)  # Rayleigh–Ritz: the best basis within the subspace
        vectors = torch.linalg.eigh(small).eigenvectors.flip(1)[:, : self.dim]
        self.store("basis", (space @ vectors).contiguous())

    def replace_interactions(self, train: sp.csr_array) -> None:
        """Store the graph."""
        graph = Graph.from_csr(train, self.device)
        self.store("crow", graph.crow)
        self.store("col", graph.col)
        if graph.weight is not None:
            self.store("edge_values", graph.weight)
        self.graph = graph

    def linear(self, x: Tensor) -> Tensor:
        """``R̃ᵀR̃ x``: from items to users and back, ``[items, n] → [items, n]``."""
        graph = self.adjacency()
        nodes = torch.cat([x.new_zeros(self.n_users, x.shape[1]), x])
        return propagate(graph, propagate(graph, nodes))[self.n_users :]

    def adjacency(self) -> Graph:
        """The stored training graph."""
        if self.graph is None or self.graph.crow.device != self.crow.device:
            weight = self._buffers.get("edge_values")
            degree = row_degrees(self.crow, weight)
            size = self.n_users, self.n_items
            self.graph = Graph(self.crow, self.col, degree, degree, *size, weight=weight)
        return self.graph

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Apply both filters, one block of users at a time."""
        root = inverse_root(self.adjacency().item_degree)  # [items, 1]
        back = self.adjacency().item_degree.sqrt().unsqueeze(1)
        out = root.new_empty(history.shape[0], self.n_items)
        for start in range(0, history.shape[0], BLOCK):
            rows = history[start : start + BLOCK].T.toarray().astype(np.float32)
            x = torch.from_numpy(rows).to(self.device)  # [items, b]
            low = (self.basis @ (self.basis.T @ (x * root))) * back
            out[start : start + BLOCK] = (self.linear(x) + self.alpha * low).T
        return out

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Score each history item alone: scores are additive."""
        return explain_additive(self, history, items)
