"""The loss of one batch: encode, score positives and negatives, compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.batches import Batch
from itemrec.catalogue import All, Catalogue
from itemrec.errors import ItemrecError
from itemrec.graph import Graph
from itemrec.hard_negatives import Dynamic, MixGCF
from itemrec.models.base import EmbeddingModel, Model
from itemrec.negatives import InBatch, Sampler
from itemrec.scoring import pair_scores, take_rows

if TYPE_CHECKING:
    from itemrec.train import TrainConfig


@dataclass(frozen=True)
class Lists:
    """Scores of a batch's positives and negatives, and which items the negatives were."""

    pos: Tensor  # [B, P]
    neg: Tensor | Catalogue  # [B, N]
    drawn: Tensor  # int64, any shape
    mask: Tensor | None = None  # bool [B, N], False where an item is no negative of that user
    counts: Tensor | None = None  # bool like `drawn`, False where it stands in padding


def objective(
    model: Model,
    graph: Graph,
    batch: Batch,
    loss: Callable[..., Tensor],
    sampler: Sampler,
    config: TrainConfig,
    generator: torch.Generator,
) -> Tensor:
    """The list loss, the L2 term and what the model adds, as one scalar."""
    if model.own_objective:
        own = model.extra_loss(graph, batch, None, generator)
        if own is None:
            raise ItemrecError(f"{type(model).__name__} has 'own_objective', but no 'extra_loss'")
        return own
    assert isinstance(model, EmbeddingModel)
    users, items, layers = model.encode_step(graph, generator, isinstance(sampler, MixGCF))
    encoded = (users, items)
    if config.similarity == "cosine":
        users, items = F.normalize(users, dim=1), F.normalize(items, dim=1)
    vectors = take_rows(users, batch.users)  # [B, d]
    lists = score_lists(model, sampler, vectors, items, layers, batch, config, generator)
    value = loss(lists.pos, lists.neg, batch.mask, lists.mask)
    if config.l2 > 0:
        value = value + config.l2 * penalty(model, batch, lists.drawn, lists.counts)
    extra = model.extra_loss(graph, batch, encoded, generator)
    return value if extra is None else value + extra


def score_lists(
    model: EmbeddingModel,
    sampler: Sampler,
    vectors: Tensor,
    items: Tensor,
    layers: list[Tensor],
    batch: Batch,
    config: TrainConfig,
    generator: torch.Generator,
) -> Lists:
    """Scores by the kind of negatives: shared by the batch, all items, mixtures, or drawn."""
    real = batch.mask.any(1, keepdim=True)  # [B, 1]
    if isinstance(sampler, InBatch):
        drawn = sampler.shared(batch.positives, batch.mask)  # [M]
        neg = vectors @ take_rows(items, drawn).T  # [B, M]
        mask = sampler.keep(batch.users, drawn, batch.mask)
        pos = pair_scores(vectors, items, batch.positives)
        return Lists(pos, neg, drawn, mask, batch.mask.reshape(-1))
    if isinstance(sampler, All):
        everything = sampler.catalogue(vectors, batch.users, items, config.by == "users")
        pos = pair_scores(vectors, items, batch.positives)
        return Lists(pos, everything, torch.arange(len(items), device=items.device))
    if isinstance(sampler, MixGCF):
        hops, drawn = sampler.mix(layers, vectors, batch, config.sampled, generator)
        mixed = model.pool(hops)  # [B, N, d], vectors that are no item's own
        mixed = F.normalize(mixed, dim=-1) if config.similarity == "cosine" else mixed
        neg = (mixed @ vectors.unsqueeze(2)).squeeze(2)  # [B, N]
        pos = pair_scores(vectors, items, batch.positives)
        return Lists(pos, neg, drawn, counts=real.expand_as(drawn))
    if isinstance(sampler, Dynamic):
        drawn = sampler.hardest(vectors, items, batch.users, config.sampled, generator)
    else:
        drawn = sampler(batch.users, config.sampled, generator)  # [B, N]
    scores = pair_scores(vectors, items, torch.cat([batch.positives, drawn], dim=1))
    cut = batch.positives.shape[1]
    return Lists(scores[:, :cut], scores[:, cut:], drawn, counts=real.expand_as(drawn))


def penalty(
    model: EmbeddingModel, batch: Batch, drawn: Tensor, counts: Tensor | None = None
) -> Tensor:
    """½(|u⁰|² + |p⁰|² + |n⁰|²), averaged over a batch's users, positives and negatives.

    ``counts`` is False where a drawn item belongs to padding. Each vector is weighted by how often
    it occurs: a count and a product instead of a gather.
    """
    users, items = model.base_norms()
    real = batch.mask.any(1).to(users.dtype)
    total = users @ share(batch.users, real, len(users))
    total = total + items @ share(batch.positives, batch.mask.to(items.dtype), len(items))
    real = torch.ones_like(drawn, dtype=items.dtype) if counts is None else counts.to(items.dtype)
    return 0.5 * (total + items @ share(drawn, real, len(items)))


def share(index: Tensor, weight: Tensor, size: int) -> Tensor:
    """How often each row is named, as a share of all; adding ones is exact in any order."""
    counts = weight.new_zeros(size).index_add_(0, index.reshape(-1), weight.reshape(-1))
    return counts / counts.sum().clamp(min=1)
