"""UserKNN: what the users with the most similar histories chose.

Resnick et al., "GroupLens: An Open Architecture for Collaborative Filtering of Netnews", CSCW 1994,
for implicit feedback with a shrunk cosine. With a history h and training histories x_v:

    s_v = h·x_v / (|h||x_v| + shrink)     scores = Σ_v s_v x_v over the k nearest users v

Inductive: a user is represented by the history alone. A training user is not its own neighbour.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.models.base import Kind, Model
from itemfold.models.stored_csr import check_stored_csr
from itemfold.validation import at_least_zero, positive_integers

BLOCK = 256  # users scored at a time


class UserKNN(Model):
    """Nearest neighbours among users by shrunk cosine (CSCW 1994).

    A user is represented by the history alone. The training interactions are stored.

    Args:
        neighbours: Neighbours of a user, k.
        shrink: Added to the denominator; reduces cosines of short histories.
    """

    paper = "GroupLens: An Open Architecture for Collaborative Filtering of Netnews"
    year = 1994
    kind = Kind.CLOSED_FORM
    weighs = ("linear",)

    train_starts: Tensor  # int64 [users + 1]
    train_items: Tensor  # int32 [interactions]
    train_values: Tensor  # float32 [interactions]

    def __init__(self, neighbours: int = 200, shrink: float = 10.0) -> None:
        super().__init__()
        positive_integers(neighbours=neighbours)
        at_least_zero(shrink=shrink)
        self.neighbours, self.shrink = neighbours, shrink
        self.matrix: tuple[Tensor, sp.csr_array, sp.csr_array] | None = None

    def solve(self, train: sp.csr_array) -> None:
        """Store the training interactions."""
        self.replace_interactions(train)

    def replace_interactions(self, train: sp.csr_array) -> None:
        """Replace the stored interactions."""
        parts = {
            "starts": train.indptr.astype(np.int64),
            "items": train.indices.astype(np.int32),
            "values": train.data.astype(np.float32),
        }
        for name, part in parts.items():
            self.store(f"train_{name}", torch.from_numpy(part).to(self.device))
        self.matrix = None

    def restore(self, train: sp.csr_array) -> None:
        """Check the interactions of a file."""
        names = ("train_starts", "train_items", "train_values")
        check_stored_csr(self, names, "the training interactions", "users")

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Similarities to all training users, then the sum over the nearest, block by block."""
        x, by_item = self._interactions()
        length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())  # [training users]
        out = np.empty(history.shape, np.float32)
        for start in range(0, history.shape[0], BLOCK):
            part = sp.csr_array(history[start : start + BLOCK]).astype(np.float32)
            own = np.sqrt(np.asarray(part.multiply(part).sum(1)).ravel())
            similarity = (part @ by_item).toarray()  # [b, training users]
            similarity /= np.maximum(own[:, None] * length + self.shrink, 1e-12)
            known = users[start : start + BLOCK]
            rows = np.flatnonzero(known >= 0)
            similarity[rows, known[rows]] = 0
            if (k := self.neighbours) < similarity.shape[1]:
                least = np.partition(np.abs(similarity), -k, axis=1)[:, -k]
                similarity[np.abs(similarity) < least[:, None]] = 0
            out[start : start + BLOCK] = (sp.csr_array(similarity) @ x).toarray()
        return torch.from_numpy(out).to(self.device)

    def _interactions(self) -> tuple[sp.csr_array, sp.csr_array]:
        """The stored interactions and their transpose, made once."""
        if self.matrix is None or self.matrix[0] is not self.train_values:
            parts = (self.train_values, self.train_items, self.train_starts)
            data, indices, indptr = (part.cpu().numpy() for part in parts)
            shape = (len(indptr) - 1, self.n_items)
            x = sp.csr_array((data, indices, indptr), shape=shape)
            self.matrix = self.train_values, x, sp.csr_array(x.T)
        return self.matrix[1], self.matrix[2]
