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

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.graph.graph import Graph
from itemfold.models.autoencoder import Autoencoder, linear_layers, mean_of_real, sampled
from itemfold.sampling.base import Batch
from itemfold.validation import at_least_zero, positive_integers, share_below_one


class MultVAE(Autoencoder):
    """Variational autoencoder of histories with a multinomial likelihood (WWW 2018).

    It has its own objective and takes neither a loss nor a sampler.

    Args:
        hidden: Width of the hidden layers.
        latent: Width of the code z.
        dropout: Fraction of the history that is dropped in training.
        beta: Final weight β of the KL term.
        anneal: Steps over which β rises to that weight.
    """

    paper = "Variational Autoencoders for Collaborative Filtering"
    year = 2018
    default_training = MappingProxyType({"batch": 500, "lr": 1e-3})

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

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate four layers and the step counter."""
        super().setup(train, inductive=inductive, generator=generator)
        down = (self.n_items, self.hidden, 2 * self.latent)
        up = (self.latent, self.hidden, self.n_items)
        self.encoder = nn.ParameterList(linear_layers(down, generator))
        self.decoder = nn.ParameterList(linear_layers(up, generator))
        # a parameter without gradient, so that it is saved with the weights for resuming
        self.steps = nn.Parameter(torch.zeros(()), requires_grad=False)

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The negative evidence lower bound, averaged over the batch's users."""
        given = self.histories(graph, batch)
        mean, log_variance = self.encode(self.dropped(given, self.dropout, generator))
        logits = self.decode(sampled(mean, log_variance, generator))
        found = self.log_likelihood(logits, given)
        gap = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1)
        with torch.no_grad():
            self.steps.add_(1)
        weight = self.beta * (self.steps / self.anneal).clamp(max=1)
        return mean_of_real(weight * gap - found, given)

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
