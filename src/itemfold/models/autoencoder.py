"""Base of autoencoders of whole histories: input with dropout, multinomial likelihood, scores."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Kind, Model
from itemfold.models.random_values import glorot
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import UserRows


class Histories(NamedTuple):
    """The histories of a batch's users as entries of a matrix ``[B, items]``."""

    place: Tensor  # int64 [entries], row · items + item
    valid: Tensor  # bool [entries], False for padding
    size: Tensor  # float [B], items of each user
    real: Tensor  # bool [B], False for padding
    shape: tuple[int, int]


class Autoencoder(Model):
    """An encoder of histories and a decoder to the logits of all items; a subclass defines both."""

    kind = Kind.OWN_OBJECTIVE
    batch_by = "users"

    def __init__(self) -> None:
        super().__init__()
        self.rows = UserRows()

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of z, both ``[B, items] → [B, latent]``."""
        raise ItemfoldError(f"{type(self).__name__} must define 'encode'")

    def decode(self, z: Tensor) -> Tensor:
        """Logits of all items, ``[B, latent] → [B, items]``."""
        raise ItemfoldError(f"{type(self).__name__} must define 'decode'")

    def histories(self, graph: Graph, batch: Batch) -> Histories:
        """The histories of the batch's users."""
        real = batch.mask.any(1)  # [B]
        _, owner, item, valid = self.rows(graph, batch.users, real)  # [entries]
        size = torch.zeros_like(real, dtype=torch.float32).index_add_(0, owner, valid.float())
        place = owner * self.n_items + item
        return Histories(place, valid, size, real, (len(real), self.n_items))

    def dropped(self, given: Histories, dropout: float, generator: torch.Generator) -> Tensor:
        """Rows of length 1 with dropout, ``[B, items]``."""
        draw = torch.rand(len(given.place), generator=generator, device=given.place.device)
        kept = given.valid * (draw >= dropout) / (1 - dropout)
        length = given.size.clamp(min=1).sqrt().unsqueeze(1)  # |x| of a row of ones
        return dense(given.place, kept, given.shape) / length

    def log_likelihood(self, logits: Tensor, given: Histories) -> Tensor:
        """``Σ_i x_i log softmax(logits)_i``, ``[B]``."""
        targets = dense(given.place, given.valid.float(), given.shape)
        return (torch.log_softmax(logits, 1) * targets).sum(1)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Logits at the mean of z."""
        size = np.diff(history.indptr)
        place = np.repeat(np.arange(len(size)) * self.n_items, size) + history.indices
        value = np.repeat(1 / np.sqrt(np.maximum(size, 1)), size).astype(np.float32)
        where, what = (torch.from_numpy(part).to(self.device) for part in (place, value))
        rows = dense(where, what, (len(size), self.n_items))
        return self.decode(self.encode(rows)[0])


def sampled(mean: Tensor, log_variance: Tensor, generator: torch.Generator) -> Tensor:
    """z = μ + σ ⊙ ε, ε ~ N(0, I)."""
    noise = torch.randn(mean.shape, generator=generator, device=mean.device)
    return mean + noise * (0.5 * log_variance).exp()


def mean_of_real(values: Tensor, given: Histories) -> Tensor:
    """Mean over the batch's users, without padding."""
    return (values * given.real).sum() / given.real.sum().clamp(min=1)


def dense(place: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """Entries as a matrix; each position has at most one value, so adding is exact."""
    flat = value.new_zeros(shape[0] * shape[1])
    return flat.index_add_(0, place, value).view(shape)


def linear_layers(sizes: tuple[int, ...], generator: torch.Generator) -> list[nn.Parameter]:
    """Weights and biases of layers of these sizes, one after the other."""
    out = []
    for before, after in pairwise(sizes):
        out += [glorot((before, after), generator), nn.Parameter(torch.zeros(after))]
    return out
