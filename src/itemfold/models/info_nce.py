"""InfoNCE between two views of users and items, with fixed shapes.

`contrast` compares the distinct nodes of a batch with each other (SimGCL, XSimGCL);
`contrast_with_all` compares every row of a batch with all users, or all items (SGL).
"""

from __future__ import annotations

import torch
from torch import Tensor

from itemfold.ops.columns import sum_over_ranks, unit_rows
from itemfold.ops.pair_scores import take_rows
from itemfold.sampling.base import Batch


def contrast(
    one: tuple[Tensor, Tensor],
    two: tuple[Tensor, Tensor],
    batch: Batch,
    tau: float,
    generator: torch.Generator,
) -> Tensor:
    """InfoNCE of the batch's users plus that of its items, between two (users, items) views.

    From a list with several positives one is drawn, so that the cost stays B².
    """
    real = batch.mask.any(1)
    rows = (batch.users, one_positive(batch, generator))
    users, items = (
        info_nce(take_rows(first, index), take_rows(second, index), tau, first_of(index, real))
        for first, second, index in zip(one, two, rows, strict=True)
    )
    return users + items


def contrast_with_all(
    one: tuple[Tensor, Tensor],
    two: tuple[Tensor, Tensor],
    batch: Batch,
    tau: float,
    generator: torch.Generator,
) -> Tensor:
    """InfoNCE of the batch's rows against all users, plus against all items.

    A user or item that occurs in several rows counts as often, as in a sum over interactions.
    """
    real = batch.mask.any(1)
    rows = (batch.users, one_positive(batch, generator))
    total = one[0].new_zeros(())
    for first, second, index in zip(one, two, rows, strict=True):
        first, second = unit_rows(first), unit_rows(second)
        own = take_rows(first, index)  # [B, d]
        same = sum_over_ranks((own * take_rows(second, index)).sum(1)) / tau
        logits = sum_over_ranks(own @ second.T) / tau  # [B, nodes]
        values = torch.logsumexp(logits, 1) - same
        total = total + torch.where(real, values, 0.0).sum() / real.sum().clamp(min=1)
    return total


def one_positive(batch: Batch, generator: torch.Generator) -> Tensor:
    """One random positive of each list, ``[B]``."""
    draw = torch.rand(len(batch.mask), generator=generator, device=batch.mask.device)
    pick = (draw * batch.mask.sum(1)).long().clamp(max=batch.mask.shape[1] - 1)
    return batch.positives.gather(1, pick.unsqueeze(1)).squeeze(1)  # real ones come first


def info_nce(one: Tensor, two: Tensor, tau: float, mask: Tensor) -> Tensor:
    """−log(e^{cos(a_i, b_i)/τ} / Σ_j e^{cos(a_i, b_j)/τ}), mean over the rows in the mask.

    The sum is over the rows in the mask as well; ``[n, d], [n, d], bool [n]``.
    """
    if not mask.is_cuda:  # a GPU needs a fixed shape; elsewhere fewer rows are faster
        one, two, mask = one[mask], two[mask], mask[mask]
    one, two = unit_rows(one), unit_rows(two)
    cosines = sum_over_ranks(one @ two.T)  # [n, n]
    logits = (cosines / tau).masked_fill(~mask, -torch.inf)  # columns masked
    same = sum_over_ranks((one * two).sum(1)) / tau
    values = torch.where(mask, logits.logsumexp(1) - same, 0.0)
    return values.sum() / mask.sum().clamp(min=1)


def first_of(index: Tensor, real: Tensor) -> Tensor:
    """True at the first real occurrence of every value: `unique` with a fixed shape.

    A node that occurs twice must count once, and must not be its own negative.
    """
    largest = torch.iinfo(index.dtype).max
    ordered, order = torch.sort(torch.where(real, index, largest), stable=True)
    new = torch.ones_like(real)
    new[1:] = ordered[1:] != ordered[:-1]
    return torch.empty_like(new).scatter_(0, order, new) & real
