"""Mult-VAE: a variational autoencoder of whole histories with a multinomial likelihood.

Liang et al., "Variational Autoencoders for Collaborative Filtering", WWW 2018. For a history x:

    h = tanh(W₁ drop(x/|x|) + b₁)        μ, log σ² = W₂h + b₂        z = μ + σ ⊙ ε, ε ~ N(0, I)
    logits = W₄ tanh(W₃z + b₃) + b₄                                             [B, items]
    L = −Σ_i x_i log softmax(logits)_i + β·KL(N(μ, σ²) | N(0, I))

with sizes items → hidden → latent → hidden → items; β rises linearly to its setting over the first
``anneal`` steps. Scoring uses z = μ without dropout. Inductive: a user is represented by a history.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.graph.graph import Graph
from itemfold.models.base import Kind, Model
from itemfold.models.random_values import glorot
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import UserRows
from itemfold.validation import at_least_zero, positive_integers, share_below_one


class MultVAE(Model):
    """Variational autoencoder of histories with a multinomial likelihood (WWW 2018).

    It has its own objective and takes neither a loss nor a sampler.

    Args:
        hidden: Width of the hidden layers.
        latent: Width of the code z.
        dropout: Share of the history that is dropped in training.
        beta: Final weight β of the KL term.
        anneal: Steps over which β rises to that weight.
    """

    paper = "Variational Autoencoders for Collaborative Filtering"
    year = 2018
    default_training = MappingProxyType({"batch": 500, "lr": 1e-3})
    kind = Kind.OWN_OBJECTIVE
    batch_by = "users"

    def __init__(
        self,
        hidden: int = 600,
        latent: int = 200,
        dropout: float = 0.5,
        beta: float = 0.2,
        anneal: int = 2000,
    ) -> None:
        super().__init__()
        positive_integers(hidden=hidden, latent=latent, anneal=anneal)
        share_below_one(dropout=dropout)
        at_least_zero(beta=beta)
        self.hidden, self.latent, self.dropout = hidden, latent, dropout
        self.beta, self.anneal = beta, anneal
        self.rows = UserRows()

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate four layers and the step counter."""
        super().setup(train, inductive=inductive, generator=generator)
        sizes = (self.n_items, self.hidden, 2 * self.latent), (self.latent, self.hidden)
        self.encoder = nn.ParameterList(layers(sizes[0], generator))
        self.decoder = nn.ParameterList(layers((*sizes[1], self.n_items), generator))
        # a parameter without gradient, so that it is saved with the weights for resuming
        self.steps = nn.Parameter(torch.zeros(()), requires_grad=False)

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The negative evidence lower bound, averaged over the batch's users."""
        real = batch.mask.any(1)  # [B]
        _, owner, item, valid = self.rows(graph, batch.users, real)  # [entries]
        draw = torch.rand(len(owner), generator=generator, device=owner.device)
        kept = valid * (draw >= self.dropout) / (1 - self.dropout)
        place = owner * self.n_items + item
        size = torch.zeros_like(real, dtype=torch.float32).index_add_(0, owner, valid.float())
        length = size.clamp(min=1).sqrt().unsqueeze(1)  # |x| of a row of ones
        shape = (len(real), self.n_items)
        mean, log_variance = self.encode(self.dense(place, kept, shape) / length)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        logits = self.decode(mean + noise * (0.5 * log_variance).exp())
        found = (torch.log_softmax(logits, 1) * self.dense(place, valid.float(), shape)).sum(1)
        gap = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        with torch.no_grad():
            self.steps.add_(1)
        weight = self.beta * (self.steps / self.anneal).clamp(max=1)
        return ((weight * gap - found) * real).sum() / real.sum().clamp(min=1)

    @staticmethod
    def dense(place: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
        """Entries as a matrix; each position has at most one value, so adding is exact."""
        flat = value.new_zeros(shape[0] * shape[1])
        return flat.index_add_(0, place, value).view(shape)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of z, both ``[B, items] → [B, latent]``."""
        w1, b1, w2, b2 = self.encoder
        mean, log_variance = (torch.tanh(x @ w1 + b1) @ w2 + b2).chunk(2, dim=1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Logits of all items, ``[B, latent] → [B, items]``."""
        w3, b3, w4, b4 = self.decoder
        logits: Tensor = torch.tanh(z @ w3 + b3) @ w4 + b4
        return logits

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Logits at the mean of z."""
        size = np.diff(history.indptr)
        place = np.repeat(np.arange(len(size)) * self.n_items, size) + history.indices
        value = np.repeat(1 / np.sqrt(np.maximum(size, 1)), size).astype(np.float32)
        where, what = (torch.from_numpy(part).to(self.device) for part in (place, value))
        rows = self.dense(where, what, (len(size), self.n_items))
        return self.decode(self.encode(rows)[0])


def layers(sizes: tuple[int, int, int], generator: torch.Generator) -> list[nn.Parameter]:
    """Weights and biases of two layers."""
    first, second = glorot(sizes[:2], generator), glorot(sizes[1:], generator)
    return [first, nn.Parameter(torch.zeros(sizes[1])), second, nn.Parameter(torch.zeros(sizes[2]))]
