"""RecVAE: Mult-VAE with a deeper encoder, a composite prior and alternating training.

Shenbin et al., "RecVAE: A New Variational Autoencoder for Top-N Recommendations with Implicit
Feedback", WSDM 2020. For a history x:

    h_0 = drop(x/|x|)        h_k = LN(swish(W_k h_{k−1} + b_k + h_1 + … + h_{k−1})), k = 1 … 5
    μ, log σ² = W h_5 + b        z = μ + σ ⊙ ε, ε ~ N(0, I)        logits = W' z + b'
    p(z|x) = 3/20 N(0, I) + 3/4 N(μ_old(x), σ²_old(x)) + 1/10 N(0, e¹⁰ I), in each dimension
    L = −Σ_i x_i log softmax(logits)_i + γ|x|₁ Σ_d (log q(z_d|x) − log p(z_d|x))

The sum over dimensions is taken at one z. Of every four epochs three update the encoder; then it
becomes the old encoder of the prior, and one epoch updates the decoder, without dropout. Scoring
uses z = μ. Inductive: a user is represented by a history.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

from itemfold.graph.graph import Graph
from itemfold.models.autoencoder import Autoencoder, linear_layers, mean_of_real, sampled
from itemfold.sampling.base import Batch
from itemfold.validation import at_least_zero, positive_integers, share_below_one

DEPTH = 5  # hidden layers of the encoder
EPSILON = 0.1  # added to the variance in a layer norm
WEIGHTS = (3 / 20, 3 / 4, 1 / 10)  # of the prior's parts
WIDE = 10.0  # log variance of the last part
ENCODER_EPOCHS = 3  # of four


class RecVAE(Autoencoder):
    """Variational autoencoder with a composite prior, trained in turns (WSDM 2020).

    It has its own objective and takes neither a loss nor a sampler. Validate after multiples of
    four epochs: the decoder is trained in the last of each four.

    Args:
        hidden: Width of the encoder's layers.
        latent: Width of the code z.
        dropout: Fraction of the history that is dropped while the encoder is trained.
        gamma: Weight γ of the divergence, for each item of a history.
    """

    paper = "RecVAE: A New Variational Autoencoder for Top-N Recommendations with Implicit Feedback"
    year = 2020
    default_training = MappingProxyType({"batch": 500, "lr": 5e-4, "eval_every": 4})
    same_steps = False

    def __init__(
        self, hidden: int = 600, latent: int = 200, dropout: float = 0.5, gamma: float = 0.005
    ) -> None:
        super().__init__()
        positive_integers(hidden=hidden, latent=latent)
        share_below_one(dropout=dropout)
        at_least_zero(gamma=gamma)
        self.hidden, self.latent, self.dropout, self.gamma = hidden, latent, dropout, gamma

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate both encoders, the decoder and the counter of epochs."""
        super().setup(train, inductive=inductive, generator=generator)
        sizes = (self.n_items, *[self.hidden] * DEPTH, 2 * self.latent)

        def encoder() -> nn.ParameterList:
            norms = [nn.Parameter(f(self.hidden)) for f in (torch.ones, torch.zeros) * DEPTH]
            return nn.ParameterList([*linear_layers(sizes, generator), *norms])

        self.encoder, self.old_encoder = encoder(), encoder().requires_grad_(False)
        self.decoder = nn.ParameterList(linear_layers((self.latent, self.n_items), generator))
        # without gradient, saved with the weights for resuming
        self.epochs = nn.Parameter(torch.zeros(()), requires_grad=False)

    @torch.no_grad()
    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Before an epoch that trains the decoder, the prior takes over the encoder."""
        self.epochs.add_(1)
        if self.trains_decoder:
            for old, new in zip(self.old_encoder, self.encoder, strict=True):
                old.copy_(new)

    @property
    def trains_decoder(self) -> bool:
        """Whether this epoch trains the decoder, not the encoder."""
        return int(self.epochs) % (ENCODER_EPOCHS + 1) == 0

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The objective of the part that is trained, averaged over the batch's users."""
        given = self.histories(graph, batch)
        if self.trains_decoder:
            with torch.no_grad():
                z = sampled(*self.encode(self.dropped(given, 0.0, generator)), generator)
            return mean_of_real(-self.log_likelihood(self.decode(z), given), given)
        mean, log_variance = self.encode(self.dropped(given, self.dropout, generator))
        z = sampled(mean, log_variance, generator)
        weight, bias = (part.detach() for part in self.decoder)
        found = self.log_likelihood(z @ weight + bias, given)
        with torch.no_grad():
            old = self.encode(self.dropped(given, 0.0, generator), self.old_encoder)
        gap = (log_normal(z, mean, log_variance) - log_prior(z, *old)).sum(1)
        return mean_of_real(self.gamma * given.size * gap - found, given)

    def encode(self, x: Tensor, weights: nn.ParameterList | None = None) -> tuple[Tensor, Tensor]:
        """Mean and log variance of z, both ``[B, items] → [B, latent]``."""
        parts = list(self.encoder if weights is None else weights)
        linear, norms = parts[: 2 * (DEPTH + 1)], parts[2 * (DEPTH + 1) :]
        total: Tensor | float = 0.0  # of the layers so far
        for k in range(DEPTH):
            weight, bias = linear[2 * k : 2 * k + 2]
            scale, shift = norms[2 * k : 2 * k + 2]
            x = layer_norm(silu(x @ weight + bias + total), (self.hidden,), scale, shift, EPSILON)
            total = total + x
        mean, log_variance = (x @ linear[-2] + linear[-1]).chunk(2, dim=1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Logits of all items, ``[B, latent] → [B, items]``."""
        weight, bias = self.decoder
        logits: Tensor = z @ weight + bias
        return logits


def log_normal(z: Tensor, mean: Tensor | float, log_variance: Tensor | float) -> Tensor:
    """Log density of a normal distribution in each dimension."""
    spread = torch.as_tensor(log_variance, dtype=z.dtype, device=z.device)
    return -0.5 * (spread + math.log(2 * math.pi) + (z - mean).square() / spread.exp())


def log_prior(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Log density of the composite prior in each dimension, given the old encoder's output."""
    parts = log_normal(z, 0.0, 0.0), log_normal(z, mean, log_variance), log_normal(z, 0.0, WIDE)
    weighted = [part + math.log(weight) for part, weight in zip(parts, WEIGHTS, strict=True)]
    return torch.stack(weighted).logsumexp(0)
