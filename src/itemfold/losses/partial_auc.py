"""The lower-left partial AUC as a loss."""

import torch
from torch import Tensor

from itemfold.losses.base import apply_mask, bindable, mean


@bindable
def llpauc(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    alpha: float = 0.7,
    beta: float = 0.1,
) -> Tensor:
    """Lower-left partial AUC with squared pairs, LLPAUC (Shi et al., WWW 2024).

        mean over p ∈ top α, j ∈ top β of (1 − (σ(s_p) − σ(s_j)))²

    Only the highest ⌈α|V⁺|⌉ positives and ⌈β|V⁻|⌉ negatives of a user count: the part of the ROC
    curve with a true positive rate up to α and a false positive rate up to β, which decides the
    first places. The paper writes the same sum as a min-max problem, whose five extra variables
    take steps of their own with the model's, since it cannot sort all items; a list can be sorted,
    so the inner problem is solved exactly. The mean over users. `Loss` describes the inputs and
    the result.

    Args:
        alpha: Share of the positives that count, above 0 and at most 1.
        beta: Share of the negatives that count, likewise.

    Examples:
        >>> import torch
        >>> from itemfold.losses import llpauc
        >>> pos, neg = torch.tensor([[0.0]]), torch.tensor([[0.0, -9.0]])
        >>> float(llpauc(pos, neg, beta=0.5))  # σ(0) − σ(0) = 0: 1²
        1.0
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    short = 1 - torch.sigmoid(pos)  # [B, P]
    high = torch.sigmoid(neg)  # [B, N]
    first, best = top_share(pos, mask, alpha), top_share(neg, negatives, beta)
    # the mean of (x_p + y_j)² over all pairs, without the pairs
    values = (
        mean(short.square(), first)
        + 2 * mean(short, first) * mean(high, best)
        + mean(high.square(), best)
    )
    return mean(values, mask.any(-1) & negatives.any(-1))


@torch.no_grad()
def top_share(scores: Tensor, mask: Tensor, share: float) -> Tensor:
    """Which entries are among the highest ⌈share·n⌉ of a row's n real ones, bool ``[B, n]``."""
    order = torch.where(mask, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(order.shape[-1], device=scores.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, places)
    # 0.1 · 30 is a little above 3: shares are exact to 1e-9
    count = torch.ceil(mask.sum(-1, keepdim=True).double() * share - 1e-9)
    return mask & (rank < count)
