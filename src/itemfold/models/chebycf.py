"""ChebyCF: a Chebyshev filter of the interaction graph plus an ideal low-pass filter.

Kim et al., "Graph Spectral Filtering with Chebyshev Interpolation for Recommendation", SIGIR 2025.
With ``R̃ = D_U^-½ R D_I^-½``, ``L̃ = I − 2R̃ᵀR̃`` (spectrum within [−1, 1], smooth signals near −1),
Chebyshev polynomials T_k, Ū the first singular vectors of R̃, a history r:

    scores = r · D_I^-β (Σ_{k=0}^{K} c_k T_k(L̃) + α Ū Ūᵀ) D_I^β                  [B, items]
    c_k = (2 − [k = 0])/(K + 1) · Σ_{n=0}^{K} h(y_n) T_k(x_n)
    h(y) = ½ + ½|y|^φ for y < 0, ½ − ½y^φ else: a plateau

x_n are the K + 1 zeros of T_{K+1}, ascending. As in the authors' code, h is read at the extrema
``y_n = cos((K − n)π/K)``, so that the ends of the spectrum have the values 1 and 0. The filter is K
products with the graph; scores are linear in the history, so shares are exact. An item without
interactions contributes nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.models.gf_cf import BLOCK, GFCF
from itemfold.validation import at_least_zero, positive, positive_integers


class ChebyCF(GFCF):
    """Chebyshev and ideal low-pass graph filters (SIGIR 2025).

    A user is represented by the history alone, and explanations are exact.

    Args:
        order: Degree K of the polynomial.
        flatness: Power φ: the larger, the wider the plateau of the filter.
        dim: Singular vectors of the ideal low-pass filter.
        alpha: Weight α of the ideal low-pass filter.
        beta: Power β of the item degrees that histories are divided by and scores multiplied by.
        iterations: Steps of the subspace iteration.
    """

    paper = "Graph Spectral Filtering with Chebyshev Interpolation for Recommendation"
    year = 2025

    def __init__(
        self,
        order: int = 8,
        flatness: float = 10.0,
        dim: int = 512,
        alpha: float = 0.2,
        beta: float = 0.0,
        iterations: int = 20,
    ) -> None:
        super().__init__(dim, alpha, iterations)
        positive_integers(order=order)
        positive(flatness=flatness)
        at_least_zero(beta=beta)
        self.order, self.flatness, self.beta = order, flatness, beta

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Apply the recurrence of the polynomials, one block of users at a time."""
        degree = self.adjacency().item_degree.unsqueeze(1)  # [items, 1]
        scale = torch.where(degree > 0, degree.clamp(min=1e-30) ** self.beta, 0.0)
        shrink = torch.where(scale > 0, 1 / scale.clamp(min=1e-30), 0.0)
        coefficients = plateau_coefficients(self.order, self.flatness).tolist()
        out = degree.new_empty(history.shape[0], self.n_items)
        for start in range(0, history.shape[0], BLOCK):
            rows = history[start : start + BLOCK].T.toarray().astype(np.float32)
            x = torch.from_numpy(rows).to(self.device) * shrink  # [items, b]
            before, last = x, self.shifted(x)
            total = coefficients[0] * before + coefficients[1] * last
            for coefficient in coefficients[2:]:
                before, last = last, 2 * self.shifted(last) - before
                total += coefficient * last
            total += self.alpha * (self.basis @ (self.basis.T @ x))
            out[start : start + BLOCK] = (total * scale).T
        return out

    def shifted(self, x: Tensor) -> Tensor:
        """``L̃ x``, ``[items, n] → [items, n]``."""
        return x - 2 * self.linear(x)


def plateau_coefficients(order: int, flatness: float) -> npt.NDArray[np.float64]:
    """c_0 … c_K of the plateau filter."""
    n = np.arange(order + 1)
    extrema = np.cos((order - n) / order * np.pi)
    target = 0.5 - 0.5 * np.sign(extrema) * np.abs(extrema) ** flatness
    angle = (order + 0.5 - n) / (order + 1) * np.pi  # of the zeros of T_{K+1}, ascending
    out: npt.NDArray[np.float64] = np.cos(np.outer(n, angle)) @ target * (2 / (order + 1))
    out[0] /= 2
    return out
