"""EASE: the closed-form linear autoencoder.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. With the interactions X:

    P = (XᵀX + λI)⁻¹        B = I − P·diag(1/P_jj)        scores = history · B

With weights they are the entries of X and of the history. A catalogue whose P does not fit into
memory has a sparse B: each column is solved on its nearest items alone (`ridge_problem.py`).

The λ of the result tables (200 for Yelp2018 and ml-latest-small, 1,000 for ML-1M, 50 for
Amazon-CDs) come from measurements before the first version that used test data. `rlae` without a
given λ chooses it on validation.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.environment import check_square_fits, square_has_room
from itemfold.graph.graph import fold_adjacency
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.item_item import SparseWeights, history_values
from itemfold.models.ridge_problem import Floats, RidgeProblem
from itemfold.validation import one_of, positive, positive_integers

Form = Literal["auto", "dense", "sparse"]
FORMS = get_args(Form)
NEIGHBOURS = 200


class EASE(SparseWeights):
    """Linear item–item weights in closed form (WWW 2019).

    A user is represented by the history alone, so new users need no special handling, and
    explanations are exact. Memory is one items × items matrix, or, in the sparse form, `neighbours`
    weights for each item.

    Args:
        l2: Regularisation λ, positive; hundreds for small data, thousands for large.
        form: "dense" for the weights of all pairs of items, "sparse" for those of the nearest
            ones; "auto" is sparse if the dense matrix takes more than half of the memory.
        neighbours: Items that each item's weights come from in the sparse form.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.EASE(l2=200.0)).metrics["model"]
        'ease'
    """

    paper = "Embarrassingly Shallow Autoencoders for Sparse Data"
    year = 2019

    weights: Tensor  # of the dense form [items, items]

    def __init__(
        self, l2: float = 200.0, form: Form = "auto", neighbours: int = NEIGHBOURS
    ) -> None:
        super().__init__()
        positive(l2=l2)
        one_of("form", form, FORMS)
        positive_integers(neighbours=neighbours)
        self.l2, self.form, self.neighbours = l2, form, neighbours

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Check the memory that `solve` will need."""
        super().setup(train, inductive=inductive, generator=generator)
        if not wants_sparse(self.form, self.n_items, self.device):
            check_square_fits("ease", self.n_items, self.device)

    def solve(self, train: sp.csr_array) -> None:
        """Compute the items × items inverse and turn it into the weights, or the sparse weights."""
        problem = self.problem(train)
        ridge = self.ridge_of(problem)
        if wants_sparse(self.form, self.n_items, self.device):
            sources, weights, _ = problem.columns(ridge, self.neighbours, self.watch)
            self.keep([(0, sources, weights)])
            return
        check_square_fits("ease", self.n_items, self.device)
        self.store("weights", torch.empty(0, device=self.device))
        self.take_inverse(problem.inverse(ridge, self.watch), ridge, train, None)

    def restore(self, train: sp.csr_array) -> None:
        """Check loaded weights, which may have either form."""
        if "weights" not in self._buffers:
            super().restore(train)
        elif self.weights.shape != (self.n_items, self.n_items):
            raise ValueError(f"the item–item weights are not those of {self.n_items} items")

    @property
    def has_all_weights(self) -> bool:
        """Whether the weights are dense: those of a fitted model, or those `solve` would store."""
        if "weight_values" in self._buffers or "weights" in self._buffers:
            return "weights" in self._buffers
        return not wants_sparse(self.form, self.n_items, self.device)

    def covered(self, train: sp.csr_array) -> tuple[sp.csr_array, None]:
        """The interactions with the items that have weights: all of them."""
        return train, None

    def problem(self, part: sp.csr_array) -> RidgeProblem:
        """The matrix to invert."""
        return RidgeProblem(part, 0.0, self.device)

    def ridge_of(self, problem: RidgeProblem) -> Floats:
        """λ of every item."""
        return np.full(len(problem.squares), self.l2)

    def take_inverse(
        self, inverse: Tensor, ridge: Floats, part: sp.csr_array, items: Tensor | None
    ) -> None:
        """Store the weights that follow from P, in its memory."""
        weights = inverse.div_(inverse.diagonal().clone().neg_())
        weights.fill_diagonal_(0)
        self.store("weights", weights)

    def dense_weights(self, train: sp.csr_array) -> Tensor:
        """A copy of B, ``[items, items]``."""
        return self.weights.clone()

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Rows of the weights, summed over the history."""
        if not self.has_all_weights:
            return super().scores(history, users)
        degree = self.weights.new_zeros(self.n_items)
        return neighbour_sum(fold_adjacency(history, degree), self.weights)

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """The weight from each history item to each recommended one, times the history's."""
        if not self.has_all_weights:
            return super().explain(history, user, items)
        listed = torch.from_numpy(history.indices).long().to(self.device)
        return self.weights[listed][:, items].T * history_values(history, self.device)


def wants_sparse(form: Form, n_items: int, device: torch.device) -> bool:
    """Whether a linear model of so many items is to be fitted in the sparse form."""
    return form == "sparse" or (form == "auto" and not square_has_room(n_items, device))
