"""A network trained with negatives by popularity, as it scores: cosine + τ · log popularity."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.models.base import Model
from itemfold.models.embedding_model import EmbeddingModel


class NetworkWithPrior(Model):
    """A network under training as it is validated: cosine + τ · log popularity.

    Negatives drawn by popularity remove popularity from the cosines; τ, the temperature of the
    loss, is the factor with which it has to be added again. Without a temperature the score is the
    inner product.
    """

    def __init__(self, network: EmbeddingModel, train: sp.csr_array, temperature: float) -> None:
        super().__init__()
        self.encoder, self.temperature = network, temperature
        self.n_users, self.n_items = train.shape
        self.popularity, self.spread = log_popularity(train, network.device)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Cosines and prior, or inner products."""
        vectors, items = self.encoder.vectors_of(history, users), self.encoder.item_vectors
        if not self.temperature:
            return vectors @ items.T
        scores = F.normalize(vectors, dim=1) @ F.normalize(items, dim=1).T
        return scores.add_(self.popularity, alpha=self.temperature * self.spread)


def log_popularity(train: sp.csr_array, device: torch.device) -> tuple[Tensor, float]:
    """log(1 + interactions) of each item, standardised, and the deviation it was divided by."""
    count = np.bincount(train.indices, train.data, train.shape[1]).astype(np.float32)
    logarithm = torch.from_numpy(np.log1p(count)).to(device)
    spread = max(float(logarithm.std(correction=0)), 1e-6)
    return (logarithm - logarithm.mean()) / spread, spread
