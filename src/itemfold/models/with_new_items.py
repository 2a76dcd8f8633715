"""A trained model that also scores items without interactions, by their features."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import take_columns
from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_matrix import FeatureEncoder
from itemfold.data.items.item_features import ItemFeatures
from itemfold.models.base import Explainer, Model
from itemfold.models.feature_map import FeatureMap, MapSettings, scaled_history
from itemfold.models.feature_map_fit import choose_map, standardise


class WithNewItems(Model):
    """The known items of a model, followed by new ones.

    Known items keep their scores. The scores of new items are on the same scale, and explanations
    are as exact as the model's: the map is linear.

    Args:
        model: A trained model.
        feature_map: The map from scores of known items to those of new items.
        only_new: Whether known items have a score of −∞.
    """

    def __init__(self, model: Model, feature_map: FeatureMap, only_new: bool = False) -> None:
        super().__init__()
        self.model, self.map, self.only_new = model, feature_map, only_new
        self.n_users, self.n_known = model.n_users, model.n_items
        self.n_items = self.n_known + feature_map.n_new
        self.explains = model.explains
        self.eval()

    @classmethod
    def of(
        cls,
        model: Model,
        train: sp.csr_array,
        features: ItemFeatures,
        known: IdMap,
        new: IdMap,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Encode the features of known and new items; without settings, choose them."""
        degree = np.bincount(train.indices, minlength=len(known))
        encode = FeatureEncoder(features.of(known.take(np.flatnonzero(degree))))
        old = encode(features.of(known))
        chosen = MapSettings.read(settings) if settings else choose_map(model, train, old)
        return cls(model, FeatureMap(old, encode(features.of(new)), chosen, degree))

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.device

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Scores of the known items, then of the new ones."""
        known = self._known(history)
        return self._with_new_scores(known, self.model.scores(known, users))[0]

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Shares of the history in the scores of known items, and, mapped, in those of new ones."""
        return self.scores_and_explainer(history, user)[1](items)

    @torch.no_grad()
    def scores_and_explainer(self, history: sp.csr_array, user: int) -> tuple[Tensor, Explainer]:
        """Scores for one user, and a function that keeps their deviation over the known items."""
        known = self._known(history)
        known_scores, explain_known = self.model.scores_and_explainer(known, user)
        scores, deviation = self._with_new_scores(known, known_scores)
        return scores, partial(self._shares, known, explain_known, deviation)

    def _with_new_scores(
        self, history: sp.csr_array, scores: Tensor
    ) -> tuple[Tensor, npt.NDArray[np.float32]]:
        """Scores of known and new items, and the deviation over the known ones, ``[B, 1]``."""
        standard, mean, deviation = standardise(scores.float().cpu().numpy())
        s = self.map.settings
        z = self.map.combine(standard, scaled_history(history))
        new = torch.from_numpy(mean + deviation * (s.shift + s.scale * z)).to(scores)
        if self.only_new:
            scores = torch.full_like(scores, -torch.inf)
        return torch.cat([scores, new], dim=1), deviation

    @torch.no_grad()
    def _shares(
        self,
        history: sp.csr_array,
        explain_known: Explainer,
        deviation: npt.NDArray[np.float32],
        items: Tensor,
    ) -> Tensor:
        """Shares in the scores of known and new items, ``[n, H]``."""
        is_new = items >= self.n_known
        out = items.new_zeros((len(items), history.nnz), dtype=torch.float32)
        out[~is_new] = explain_known(items[~is_new]).to(out)
        if is_new.any():
            every = torch.arange(self.n_known, device=self.device)
            shares = explain_known(every).float().cpu().numpy().T  # [H, known]
            single = np.zeros_like(shares)
            values = history.data / np.sqrt(max(history.nnz, 1))
            single[np.arange(history.nnz), history.indices] = values
            part = self.map.combine(shares / deviation[0, 0], single)
            new = torch.from_numpy(self.map.settings.scale * deviation[0, 0] * part).to(out)
            out[is_new] = new[:, items[is_new] - self.n_known].T
        return out

    def popularity_part(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """The part of the model; that of a new item belongs to the rest of its score."""
        is_new = items >= self.n_known
        out = torch.zeros(len(items), device=items.device)
        out[~is_new] = self.model.popularity_part(self._known(history), user, items[~is_new])
        return out

    @torch.no_grad()
    def similar_to(self, item: int) -> Tensor:
        """Similarities to known items: the model's, or by features if the item is new."""
        out = torch.full((self.n_items,), -torch.inf, device=self.device)
        if item < self.n_known:
            out[: self.n_known] = self.model.similar_to(item)
            return out
        seen = torch.from_numpy(self.map.seen).to(self.device)
        new = item - self.n_known
        out[seen] = torch.from_numpy(self.map.similarity(slice(new, new + 1))[0]).to(out)
        return out

    def nearest_known(self, k: int) -> sp.csr_array:
        """Similarities of each new item to its k most similar known items, ``[new, known]``."""
        found = self.map.nearest_known(k)
        parts = (found.data, self.map.seen[found.indices], found.indptr)
        return sp.csr_array(parts, shape=(found.shape[0], self.n_known))

    def _known(self, history: sp.csr_array) -> sp.csr_array:
        return take_columns(history, np.arange(self.n_known))
