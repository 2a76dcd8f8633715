"""Softmax losses over a positive and all negatives of a list: softmax (InfoNCE) and BSL."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemfold.losses.base import apply_mask, bindable, mean


def _log_sum(neg: Tensor, neg_mask: Tensor | None, tau: float) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(s_j/τ) over the negatives, very low without any; whether any exist; [B, 1]."""
    # finite, even after the division: the gradient of a log-sum over −∞ alone is NaN
    neg, mask = apply_mask(neg, neg_mask, "neg", -1e38 * min(tau, 1))
    return (neg / tau).logsumexp(-1, keepdim=True), mask.any(-1, keepdim=True)


@bindable
def softmax(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """Softmax loss, `−log(e^{s_p/τ} / (e^{s_p/τ} + Σ_j e^{s_j/τ}))`; also called InfoNCE.

    The mean over a user's positives, then over users. `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import softmax
        >>> pos, neg = torch.tensor([[1.0]]), torch.tensor([[1.0, 1.0, 1.0]])
        >>> round(float(softmax(pos, neg)), 4)  # log 4
        1.3863
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    log_sum, some = _log_sum(neg, neg_mask, tau)
    values = torch.where(some, softplus(log_sum - pos / tau), 0.0)  # [B, P]
    return mean(mean(values, mask), mask.any(-1))


@bindable
def bsl(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    t2: float = 1.0,
) -> Tensor:
    """Bilateral softmax loss, `−log(e^{s_p/τ} / (Σ_j e^{s_j/τ})^t₂)` (Wu et al., ICDE 2024).

    The mean over a user's positives, then over users. It has no lower bound. For a user without
    negatives only the first term is left, `−s_p/τ`. `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ, positive.
        t2: Exponent t₂ of the negatives' sum, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import bsl
        >>> pos, neg = torch.tensor([[1.0]]), torch.tensor([[1.0, 1.0]])
        >>> round(float(bsl(pos, neg)), 4)  # 1 + log 2 − 1
        0.6931
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    log_sum, some = _log_sum(neg, neg_mask, tau)
    values = t2 * torch.where(some, log_sum, 0.0) - pos / tau  # [B, P]
    return mean(mean(values, mask), mask.any(-1))
