"""The objective of one batch: list loss, L2 penalty and the model's extra loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Kind, Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.ops.columns import sum_over_ranks
from itemfold.sampling.base import Batch, Sampler, ScoredLists
from itemfold.settings.schema import TrainConfig
from itemfold.training.loss_inputs import LossInputs
from itemfold.validation import shown


def objective(
    model: Model,
    graph: Graph,
    batch: Batch,
    loss: Callable[..., Tensor],
    sampler: Sampler,
    config: TrainConfig,
    generator: torch.Generator,
    inputs: LossInputs | None = None,
) -> Tensor:
    """The list loss plus L2 penalty and the model's extra loss, or the model's own objective."""
    if model.kind is Kind.OWN_OBJECTIVE:
        return model.own_loss(graph, batch, generator)
    encoder: EmbeddingModel = model  # type: ignore[assignment] # a list loss needs vectors
    encoded = encoder.encode_step(graph, generator, sampler.needs_layers, batch.users)
    compared = encoded.as_cosine() if config.similarity == "cosine" else encoded
    lists = sampler.score(compared, batch, config.n_negatives, generator)
    given = (inputs or LossInputs())(loss, graph, compared, batch, lists, sampler, generator)
    value = list_loss(loss, lists, batch, given)
    if config.l2 > 0:
        value = value + config.l2 * penalty(encoder, batch, lists)
    extra = encoder.extra_loss(graph, batch, encoded, generator)
    return value if extra is None else value + extra


def list_loss(
    loss: Callable[..., Tensor], lists: ScoredLists, batch: Batch, given: Mapping[str, Tensor]
) -> Tensor:
    """The mean loss over the users of a batch; each rank computes it for its own rows."""
    if ranks.size() == 1:
        return one_number(loss(lists.pos, lists.neg, batch.mask, lists.neg_mask, **given))
    mask = batch.mask[ranks.own_rows(len(batch.mask))]
    own_users = mask.any(1).sum() / batch.mask.any(1).sum().clamp(min=1)  # as a fraction
    value = one_number(loss(lists.pos, lists.neg, mask, lists.neg_mask, **given))
    return sum_over_ranks(own_users * value)


def one_number(value: Tensor) -> Tensor:
    """The value of a loss; raise if it is not a single number that depends on the scores."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = (
            f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else shown(value)
        )
        raise ItemfoldError(
            f"'loss' must return one number, the mean over the users, got {got}; "
            "take the mean of its values"
        )
    return value.reshape(())


def penalty(model: EmbeddingModel, batch: Batch, lists: ScoredLists) -> Tensor:
    """½(|u⁰|² + |p⁰|² + |n⁰|²), averaged over a batch's users, positives and negatives.

    The squared norm of each row is weighted by its frequency, which avoids a gather.
    """
    users, items = model.base_norms()
    drawn, counted = lists.items, lists.counted
    total = users @ frequencies(batch.users, batch.mask.any(1).to(users.dtype), len(users))
    total = total + items @ frequencies(batch.positives, batch.mask.to(items.dtype), len(items))
    real = torch.ones_like(drawn, dtype=items.dtype) if counted is None else counted.to(items.dtype)
    return sum_over_ranks(0.5 * (total + items @ frequencies(drawn, real, len(items))))


def frequencies(index: Tensor, weight: Tensor, size: int) -> Tensor:
    """Relative frequency of each row, ``[size]``; sums of ones are exact in any order."""
    counts = weight.new_zeros(size).index_add_(0, index.reshape(-1), weight.reshape(-1))
    return counts / counts.sum().clamp(min=1)
