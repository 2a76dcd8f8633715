"""The scores of known users as plain arrays that any system can multiply.

    score(u, i) = user_u · item_i + Σ_W factor_uW · Σ_{h∈H_u} W_hi

up to a constant per user, which changes no list. Models with vectors have the first term,
item–item models the second with one W, the hybrid both: its network and its prior form the
product, each linear part is a W, and a user's standard deviations are divided out beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.models import CML, EASE, GFCF, Hybrid, MultVAE, Popularity
from itemfold.models.base import Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.item_item import SparseWeights
from itemfold.training.progress import track
from itemfold.training.run import Run

Floats = npt.NDArray[np.float32]
BLOCK = 512  # users or items at a time


@dataclass(frozen=True)
class ScoreParts:
    """The terms of a score; vectors that a model does not have are None.

    Attributes:
        users: Vectors of the known users, `[users, d]`.
        items: Vectors of the items, `[items, d]`.
        sums: Of each linear part, the factor of a user's sum of weights, `[users]`, and the weights
            from a history item to a recommended one, `[items, items]`.
    """

    users: Floats | None
    items: Floats | None
    sums: tuple[tuple[Floats, sp.csr_array], ...] = ()

    def scores(self, histories: sp.csr_array, rows: npt.NDArray[np.int64]) -> Floats:
        """Scores of known users, `[B, items]`, from these arrays alone."""
        out = np.zeros((len(rows), histories.shape[1]), dtype=np.float32)
        if self.users is not None and self.items is not None:
            out += self.users[rows] @ self.items.T
        for factors, weights in self.sums:
            out += (histories @ weights).toarray() * factors[rows, None]
        return out


def score_parts(run: Run, *, progress: bool = False) -> ScoreParts:
    """The parts of a run's scores; raise if the model has neither vectors nor weights."""
    model = run.model
    if isinstance(model, Hybrid):
        return _of_hybrid(model, run.interactions, progress)
    if isinstance(model, CML):  # −|u − i|² = 2u·i − |i|² − |u|², and |u|² changes no list
        users, items = model.user_vectors, model.item_vectors
        ones, lengths = torch.ones_like(users[:, :1]), items.square().sum(1, keepdim=True)
        return ScoreParts(_array(users * 2, ones), _array(items, -lengths))
    if isinstance(model, EmbeddingModel) and type(model).scores is EmbeddingModel.scores:
        return ScoreParts(_array(model.user_vectors), _array(model.item_vectors))
    weights = weights_of(model)
    if weights is not None:
        same = np.ones(run.interactions.shape[0], np.float32)
        return ScoreParts(None, None, ((same, weights),))
    advice = ": choose --to onnx" if isinstance(model, MultVAE | Popularity) else ""
    raise ItemfoldError(
        f"{type(model).__name__} has neither vectors nor item–item weights to export{advice}"
    )


def weights_of(model: Model) -> sp.csr_array | None:
    """The item–item weights of a linear model, or None."""
    shape = (model.n_items, model.n_items)
    if isinstance(model, EASE) and model.has_all_weights:
        return sp.csr_array(_array(model.weights))
    if isinstance(model, SparseWeights):
        parts = (model.weight_values, model.weight_items, model.weight_starts)
        return sp.csr_array(tuple(part.cpu().numpy() for part in parts), shape=shape)
    if isinstance(model, GFCF):  # scores are additive over the history
        return sp.csr_array(_scores_of_single_items(model))
    return None


@torch.no_grad()
def _scores_of_single_items(model: Model) -> Floats:
    """Scores of each history of a single item, ``[items, items]``."""
    everything = sp.eye_array(model.n_items, dtype=np.float32, format="csr")
    blocks = []
    for start in range(0, model.n_items, BLOCK):
        part = sp.csr_array(everything[start : start + BLOCK])
        nobody = np.full(len(part.indptr) - 1, -1, dtype=np.int64)
        blocks.append(_array(model.scores(part, nobody)))
    return np.concatenate(blocks)


@torch.no_grad()
def _of_hybrid(model: Hybrid, train: sp.csr_array, progress: bool) -> ScoreParts:
    """The terms of a hybrid: network and prior are one product, and users hold the deviations."""
    linear = linear_weights(model)
    fades = any(row[2] for row in model.blend or ())
    blocks, factors = [], []
    starts = range(0, train.shape[0], BLOCK)
    for start in track(starts, "collecting vectors", show=progress):
        rows = np.arange(start, min(start + BLOCK, train.shape[0]))
        history = train[rows]
        prior, recent, *weights = model.blend_of(history, rows)
        spreads = [spread for _, spread in model.part_scores(history, rows)]
        columns = [prior, recent] if fades else [prior]
        if model.gnn is not None:
            scale = weights.pop(0) / spreads.pop(0)
            columns = [model.gnn.vectors_of(history, rows) * scale, *columns]
        blocks.append(_array(*columns))
        shares = zip(weights, spreads, strict=True)
        factors.append([_array(weight / spread)[:, 0] for weight, spread in shares])
    popularity = [model.popularity.unsqueeze(1)]
    if fades:
        popularity.append(model.recent_popularity.unsqueeze(1))
    items = _array(*popularity) if model.gnn is None else _array(model.table, *popularity)
    whole = map(np.concatenate, zip(*factors, strict=True))
    return ScoreParts(np.concatenate(blocks), items, tuple(zip(whole, linear, strict=True)))


def linear_weights(model: Hybrid) -> list[sp.csr_array]:
    """The item–item weights of a hybrid's parts besides the network; raise if one has none."""
    linear = [part for part in model.parts if part is not model.gnn]
    found = [weights_of(part) for part in linear]
    without = [type(part).__name__ for part, w in zip(linear, found, strict=True) if w is None]
    if without:
        raise ItemfoldError(
            "this hybrid cannot be exported: its parts besides the network must have item–item "
            f"weights, as rlae, ease and itemknn have; {', '.join(without)} has none"
        )
    return [weights for weights in found if weights is not None]


def _array(*columns: Tensor) -> Floats:
    """Tensors side by side as one float32 array."""
    out: Floats = torch.cat(columns, dim=1).detach().cpu().float().contiguous().numpy()
    return out
