"""Softmax losses over the negatives of a list: softmax (InfoNCE), sampled softmax, BSL and PSL."""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from itemfold.losses.base import apply_mask, bindable, mean_over_users

LOWEST = -69.0  # log(1e-30), in place of the logarithm of 0


def log_sum(neg: Tensor, neg_mask: Tensor | None, tau: float) -> tuple[Tensor, Tensor]:
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
    total, some = log_sum(neg, neg_mask, tau)
    values = torch.where(some, softplus(total - pos / tau), 0.0)  # [B, P]
    return mean_over_users(values, mask)


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
    total, some = log_sum(neg, neg_mask, tau)
    values = t2 * torch.where(some, total, 0.0) - pos / tau  # [B, P]
    return mean_over_users(values, mask)


@bindable
def sampled_softmax(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    log_expected: Tensor,
    tau: float = 1.0,
) -> Tensor:
    """Softmax over the catalogue, estimated from a sample: the log-Q correction (Bengio, 2008).

        −log(e^{s_p/τ} / (e^{s_p/τ} + Σ_j e^{s_j/τ − log c_j}))

    `c_j` is the expected number of times that item j is in the list. `Σ_j e^{s_j/τ}/c_j` is then an
    unbiased estimate of the sum over all items that are not the user's, however they are drawn; an
    item that popularity draws often counts less each time. `softmax` has c_j = 1. `Loss` describes
    the other inputs and the result.

    Args:
        log_expected: log c_j of every negative, `[B, N]` or `[1, N]`; training asks the sampler.
        tau: Temperature τ, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import sampled_softmax
        >>> pos, neg = torch.tensor([[1.0]]), torch.tensor([[1.0]])
        >>> one_of_three = torch.tensor([[1 / 3]]).log()  # stands for three items
        >>> round(float(sampled_softmax(pos, neg, log_expected=one_of_three)), 4)  # log 4
        1.3863
    """
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    corrected = neg - tau * log_expected.to(neg.dtype)  # s_j/τ − log c_j = (s_j − τ log c_j)/τ
    return softmax(pos, corrected, pos_mask, negatives.expand_as(corrected), tau=tau)


@bindable
def psl(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 0.2,
    activation: str = "tanh",
) -> Tensor:
    """Pairwise softmax loss, `log Σ_j σ((s_j − s_p)/2)^{2/τ}` (Yang et al., NeurIPS 2024).

    `σ(d)` takes the place of `e^d` in the softmax: `1 + tanh d`, `1 + atan d` or `max(0, 1 + d)`.
    All three lie between the step function and `e^d` for d in [−1, 1], which halved differences of
    cosines are; below, σ is cut at 1e-30. Slopes at d = 0 are those of the softmax with the same
    τ; the paper's τ* is τ/2. As in its code, the sum is over the negatives alone. The mean over a
    user's positives, then over users; a user without negatives has loss 0. `Loss` describes the
    inputs and the result.

    Args:
        tau: Temperature τ, positive.
        activation: "tanh", "atan" or "relu".

    Examples:
        >>> import torch
        >>> from itemfold.losses import psl
        >>> pos, neg = torch.tensor([[0.5]]), torch.tensor([[0.5, 0.5]])
        >>> round(float(psl(pos, neg)), 4)  # σ(0) = 1 twice: log 2
        0.6931
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    half = (neg[:, None, :] - pos[:, :, None]) / 2  # [B, P, N]
    if activation == "tanh":  # 1 + tanh d = 2 / (1 + e^{−2d})
        log = math.log(2.0) + logsigmoid(2 * half)
    else:
        base = 1 + (torch.atan(half) if activation == "atan" else half)
        log = base.clamp(min=1e-30).log()
    log = torch.where(negatives[:, None, :], log.clamp(min=LOWEST), 2 * LOWEST)
    values = (log * (2 / tau)).logsumexp(-1)  # [B, P]
    values = torch.where(negatives.any(-1, keepdim=True), values, 0.0)
    return mean_over_users(values, mask)
