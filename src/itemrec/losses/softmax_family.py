"""Softmax losses over a positive and all negatives of a list: softmax (InfoNCE) and BSL."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemrec.losses.base import bindable, mean, real


def _log_sum(neg: Tensor, neg_mask: Tensor | None, tau: float) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(s_j/τ) over the negatives, hugely negative where there are none; any; [B, 1]."""
    # finite, even after the division: the gradient of a log-sum over −∞ alone is NaN
    neg, mask = real(neg, neg_mask, "neg", -1e38 * min(tau, 1))
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
    """−log(e^{s_p/τ} / (e^{s_p/τ} + Σ_j e^{s_j/τ})), mean over a user's positives (InfoNCE)."""
    pos, mask = real(pos, pos_mask, "pos", 0.0)
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
    """−log(e^{s_p/τ} / (Σ_j e^{s_j/τ})^t₂), mean over a user's positives (Wu et al., 2024).

    It has no floor. A user without negatives has only the first part, −s_p/τ.
    """
    pos, mask = real(pos, pos_mask, "pos", 0.0)
    log_sum, some = _log_sum(neg, neg_mask, tau)
    values = t2 * torch.where(some, log_sum, 0.0) - pos / tau  # [B, P]
    return mean(mean(values, mask), mask.any(-1))
