"""Scores of items without interactions, by a regression of each user's scores on item features.

With regressors A of the known items, centred, and a user's scores s of them:

    R s = mean(s) + A_new (AᵀDA + λI)⁻¹ AᵀD s          ridge regression in closed form
    K s = Σ_j d_j·sim(new, j)^p · s_j / (Σ_j d_j·sim(new, j)^p + c)     items with similar words

    z = R(w₁ s + w₂ h) + K(I − R)(w₃ s + w₄ h)                 h: the user's history

D = diag(d) weights known items: the scores of those with few interactions are uncertain. R is
linear. If scores are products with item vectors E, then R s = u · (R E): it maps features to the
trained item space. If scores are a history times item–item weights W, it predicts the new item's
column of W. The history h adds the features of the user's items, independent of the model.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.items.feature_matrix import FeatureMatrix
from itemfold.errors import ItemfoldError
from itemfold.validation import is_number

NEIGHBOURS = 50  # known items with similar words
BLOCK = 512  # new items compared with the known ones at a time
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MapSettings:
    """Settings selected by `choose_map` on known items left out of the regression."""

    l2: float = 100.0  # λ
    power: float = 2.0  # p
    prior: float = 1.0  # c
    half: float = 0.0  # interactions at which a known item has half of the highest weight d
    scores: float = 1.0  # w₁
    history: float = 0.0  # w₂
    similar_scores: float = 1.0  # w₃
    similar_history: float = 0.0  # w₄
    shift: float = 0.0  # of z, in standard deviations of a user's scores
    scale: float = 1.0

    def record(self) -> dict[str, float]:
        """The settings as plain numbers, to be stored."""
        return {name: float(value) for name, value in asdict(self).items()}

    @classmethod
    def read(cls, stored: Any) -> Self:
        """Checked settings from a stored record."""
        known = asdict(cls())
        if not isinstance(stored, dict) or not known.keys() <= stored.keys():
            raise ItemfoldError(f"the stored settings of new items must have {', '.join(known)}")
        found = {name: stored[name] for name in known}
        if not all(is_number(value) and np.isfinite(value) for value in found.values()):
            raise ItemfoldError(f"the stored settings of new items must be numbers, got {found}")
        return cls(**found)


class Ridge:
    """Ridge regression of many targets on the same regressors, in closed form."""

    def __init__(self, regressors: sp.csr_array, weights: Floats, l2: float) -> None:
        from scipy.linalg import cho_factor

        self.rows, self.weights = regressors, weights  # [n, F] and [n], 1 on average
        self.mean = (regressors.T @ weights.astype(np.float64)) / max(len(weights), 1)
        gram = (regressors.T @ sp.diags_array(weights) @ regressors).toarray().astype(np.float64)
        gram -= len(weights) * np.outer(self.mean, self.mean)
        gram[np.diag_indices_from(gram)] += l2
        self.factor = cho_factor(gram) if len(gram) else None

    def solve(self, sums: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """``(AᵀA + λI)⁻¹`` times columns ``[F, m]``."""
        from scipy.linalg import cho_solve

        if self.factor is None:
            return np.zeros(sums.shape)
        out: npt.NDArray[np.float64] = cho_solve(self.factor, sums.astype(np.float64))
        return out

    def fit(self, targets: Floats) -> tuple[Floats, Floats]:
        """Mean ``[m, 1]`` and coefficients ``[F, m]`` of each target ``[m, n]``."""
        mean: Floats = (targets @ self.weights)[:, None] / np.float32(max(len(self.weights), 1))
        weighted = (targets - mean) * self.weights
        return mean, self.solve(self.rows.T @ weighted.T).astype(np.float32)

    def predict(self, fitted: tuple[Floats, Floats], rows: sp.csr_array) -> Floats:
        """Predictions ``[m, rows]`` for items with these regressors."""
        mean, coefficients = fitted
        centre = (self.mean @ coefficients)[:, None]  # [m, 1]
        out: Floats = (mean + (rows @ coefficients).T - centre).astype(np.float32)
        return out


def item_weights(degree: npt.NDArray[Any], half: float) -> Floats:
    """Weights of known items by their number of interactions, 1 on average.

    >>> item_weights(np.array([1, 3]), 3.0).tolist()
    [0.6666666865348816, 1.3333333730697632]
    """
    raw = degree / (degree + half)
    out: Floats = (raw / max(float(raw.mean()), 1e-12) if len(raw) else raw).astype(np.float32)
    return out


def similarities(new: sp.csr_array, known: sp.csr_array) -> sp.csr_array:
    """Cosines of each new item with the known items of most similar words, ``[new, known]``."""
    other = sp.csr_array(known.T)
    blocks = [sp.csr_array((0, known.shape[0]), dtype=np.float32)]
    for start in range(0, new.shape[0], BLOCK):
        part = sp.csr_array(new[start : start + BLOCK] @ other)
        for row in range(part.shape[0]):
            values = part.data[part.indptr[row] : part.indptr[row + 1]]
            if len(values) > NEIGHBOURS:
                values[values < np.partition(values, -NEIGHBOURS)[-NEIGHBOURS]] = 0
        part.eliminate_zeros()
        blocks.append(part)
    return sp.csr_array(sp.vstack(blocks, format="csr", dtype=np.float32))


def smoother(cosines: sp.csr_array, weights: Floats, power: float, prior: float) -> sp.csr_array:
    """Weights of the known items for each new one, which sum to less than 1."""
    out = cosines.copy()
    out.data = out.data**power
    out = sp.csr_array(out @ sp.diags_array(weights))
    total = np.asarray(out.sum(axis=1)).reshape(-1) + prior
    return sp.csr_array(sp.diags_array((1 / total).astype(np.float32)) @ out)


class FeatureMap:
    """Scores of new items from a user's scores of known items and the user's history."""

    def __init__(
        self,
        known: FeatureMatrix,
        new: FeatureMatrix,
        settings: MapSettings,
        degree: npt.NDArray[np.int64],
    ) -> None:
        self.settings = settings
        self.seen = np.flatnonzero(degree)  # rows of the items with interactions
        self.weights = item_weights(degree[self.seen], settings.half)
        self.known, self.new = known.take(self.seen), new
        self.n_new = int(new.regressors.shape[0])

    @cached_property
    def ridge(self) -> Ridge:
        """The regression."""
        return Ridge(self.known.regressors, self.weights, self.settings.l2)

    @cached_property
    def smoother(self) -> sp.csr_array:
        """Weights of known items with similar words, ``[new, seen]``."""
        cosines = similarities(self.new.words, self.known.words)
        return smoother(cosines, self.weights, self.settings.power, self.settings.prior)

    def combine(self, scores: Floats, history: Floats) -> Floats:
        """z of the new items: ``[m, known]`` and ``[m, known]`` to ``[m, new]``."""
        s, scores, history = self.settings, scores[:, self.seen], history[:, self.seen]
        out = self.regressed(s.scores * scores + s.history * history, self.new.regressors)
        if not self.smoother.nnz:
            return out
        target = s.similar_scores * scores + s.similar_history * history
        rest = target - self.regressed(target, self.known.regressors)
        similar: Floats = np.asarray(self.smoother @ rest.T).T
        return out + similar

    def regressed(self, target: Floats, rows: sp.csr_array) -> Floats:
        """R of a target ``[m, seen]`` for items with these regressors."""
        return self.ridge.predict(self.ridge.fit(target), rows)

    def nearest_known(self, k: int) -> sp.csr_array:
        """Similarities of each new item to its k most similar known items, ``[new, seen]``."""
        blocks = [sp.csr_array((0, len(self.seen)), dtype=np.float32)]
        for start in range(0, self.n_new, BLOCK):
            found = np.maximum(self.similarity(slice(start, start + BLOCK)), 0)
            if k < found.shape[1]:
                others = np.argpartition(-found, k, axis=1)[:, k:]
                np.put_along_axis(found, others, 0, axis=1)
            blocks.append(sp.csr_array(found))
        return sp.csr_array(sp.vstack(blocks, format="csr"))

    def similarity(self, items: slice) -> Floats:
        """Cosines of regressors plus cosines of words, of new items with known, ``[n, seen]``."""
        own, words = self.new.regressors[items], self.new.words[items]
        dots = (own @ self.known.regressors.T).toarray()
        lengths = (np.sqrt(m.multiply(m).sum(axis=1)) for m in (own, self.known.regressors))
        cosines = dots / np.maximum(np.multiply.outer(*lengths), 1e-12)
        out: Floats = (cosines + (words @ self.known.words.T).toarray()).astype(np.float32)
        return out


def scaled_history(history: sp.csr_array) -> Floats:
    """Histories divided by the root of their length, dense ``[B, items]``."""
    length = np.sqrt(np.maximum(np.diff(history.indptr), 1)).astype(np.float32)
    out: Floats = history.toarray().astype(np.float32) / length[:, None]
    return out
