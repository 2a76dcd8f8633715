"""Softmax losses that weigh positives or negatives: SL@K, AdvInfoNCE and the BC loss."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemfold.losses.base import apply_mask, bindable, mean_over_users
from itemfold.losses.softmax_family import log_sum


@bindable
def sl_at_k(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    own: Tensor,
    own_mask: Tensor,
    tau: float = 0.2,
    tau_quantile: float = 1.0,
    k: int = 20,
) -> Tensor:
    """Softmax loss for the first k places, SL@K (Yang et al., KDD 2025).

        σ((s_p − β)/τ_β) · log Σ_j e^{(s_j − s_p)/τ}

    β is the k-th highest score among the user's training items and the negatives of the list, the
    paper's estimate of the score that enters the first k places. No gradient flows through it. The
    paper stores β and renews it every few epochs; here every step has its own. As in the authors'
    code, the sum is over the negatives alone. The mean over a user's positives, then over users; a
    user without negatives has loss 0. `Loss` describes the other inputs and the result.

    Args:
        own: Scores of the user's training items, or of a sample of them, `[B, H]`; training
            provides them.
        own_mask: True where an entry of `own` is real, bool `[B, H]`.
        tau: Temperature τ of the softmax, positive.
        tau_quantile: Temperature τ_β of the weight, positive.
        k: Number of places, a positive integer.

    Examples:
        >>> import torch
        >>> from itemfold.losses import sl_at_k
        >>> pos, neg = torch.tensor([[0.5]]), torch.tensor([[0.5, -1.0]])
        >>> own = {"own": pos, "own_mask": torch.tensor([[True]])}
        >>> round(float(sl_at_k(pos, neg, **own, k=1)), 4)  # β = 0.5: σ(0)·log(1 + e^−7.5)
        0.0003
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    total, some = log_sum(neg, neg_mask, tau)
    threshold = kth_highest(neg, neg_mask, own, own_mask, k)  # [B, 1]
    weight = torch.sigmoid((pos - threshold) / tau_quantile)
    values = torch.where(some, weight * (total - pos / tau), 0.0)  # [B, P]
    return mean_over_users(values, mask)


@torch.no_grad()
def kth_highest(
    neg: Tensor, neg_mask: Tensor | None, own: Tensor, own_mask: Tensor, k: int
) -> Tensor:
    """The k-th highest of two lists together, the lowest if they are shorter, ``[B, 1]``."""
    neg, negatives = apply_mask(neg, neg_mask, "neg", -torch.inf)
    own, known = apply_mask(own, own_mask, "own", -torch.inf)
    rows = max(len(neg), len(own))
    both = torch.cat([neg.expand(rows, -1), own.expand(rows, -1)], -1)
    best = both.topk(min(k, both.shape[-1]), sorted=True).values  # [B, ≤k]
    count = negatives.sum(-1, keepdim=True) + known.sum(-1, keepdim=True)
    last = best.gather(-1, (count - 1).clamp(min=0, max=best.shape[-1] - 1))
    return torch.where(count > 0, last, 0.0)


@bindable
def adv_info_nce(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 0.2,
    hardness: float = 1.0,
    weight: float = 1.0,
) -> Tensor:
    """Softmax against the hardest weights of the negatives, AdvInfoNCE (Zhang et al., 2023).

        log(1 + w · max_g Σ_j e^{(s_j − s_p)/τ} · N·e^{g_j}/Σ_l e^{g_l}),   |g_j| ≤ h

    An adversary distributes the weight of the N negatives. In the paper g is the cosine of two
    learned vectors, so that |g| ≤ 1, and takes a few steps of gradient ascent; here it is the exact
    maximum within the same bounds: g = h for the highest scores and −h for the rest, at the best
    cut. With h = 0 and w = 1 it is `softmax`. The mean over a user's positives, then over users.
    `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ, positive.
        hardness: The bound h, at least 0.
        weight: Weight w of the negatives' sum, at least 0; 64 in the paper's code.

    Examples:
        >>> import torch
        >>> from itemfold.losses import adv_info_nce
        >>> pos, neg = torch.tensor([[1.0]]), torch.tensor([[1.0, 1.0, 1.0]])
        >>> round(float(adv_info_nce(pos, neg)), 4)  # equal negatives: log 4
        1.3863
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    log_weight = hardest_log_weights(neg, neg_mask, tau, hardness)  # [B, N], log(N·p_j)
    total, some = log_sum(neg + tau * log_weight, neg_mask, tau)
    if weight == 0:
        some = torch.zeros_like(some)
    total = total + math.log(max(weight, 1e-30))
    values = torch.where(some, softplus(total - pos / tau), 0.0)  # [B, P]
    return mean_over_users(values, mask)


@torch.no_grad()
def hardest_log_weights(neg: Tensor, neg_mask: Tensor | None, tau: float, bound: float) -> Tensor:
    """log(N·softmax(g)) of the g in [−h, h]^N that maximises Σ_j e^{s_j/τ}·softmax(g)_j, [B, N].

    A weighted mean is largest with the highest weights on the highest values: g is h for the m
    highest scores and −h for the others, and m is found by trying all.
    """
    neg, real = apply_mask(neg, neg_mask, "neg", -1e38 * min(tau, 1))
    top = neg.amax(-1, keepdim=True) if neg.shape[-1] else neg.sum(-1, keepdim=True)
    value = torch.where(real, ((neg - top) / tau).exp(), 0.0)  # [B, N], at most 1
    ordered, place = value.sort(dim=-1, descending=True, stable=True)
    count = real.sum(-1, keepdim=True)  # padding sorts last
    number = torch.arange(1, neg.shape[-1] + 1, device=neg.device).to(value.dtype)  # m
    ratio = math.exp(-2.0 * bound)  # e^{−h}/e^{h}
    first, rest = ordered.cumsum(-1), ordered.sum(-1, keepdim=True)
    mass = number + ratio * (count - number)
    means = torch.where(number <= count, (first + ratio * (rest - first)) / mass, -1.0)
    best = means.argmax(-1, keepdim=True) if neg.shape[-1] else count  # m − 1
    rank = torch.empty_like(place).scatter_(
        -1, place, torch.arange(neg.shape[-1], device=neg.device).expand_as(place)
    )
    log_ratio = (rank > best).to(value.dtype) * (-2.0 * bound)
    cut = (best + 1).to(value.dtype)
    mass = cut + ratio * (count - cut)
    return log_ratio + torch.log(count.clamp(min=1) / mass.clamp(min=1e-30))


@bindable
def bc(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    popularity_logit: Tensor,
    tau: float = 0.2,
) -> Tensor:
    """Softmax with a margin that popularity sets, the BC loss (Zhang et al., NeurIPS 2022).

        −log(e^{c/τ} / (e^{c/τ} + Σ_j e^{s_j/τ})),   c = cos(θ_p + M),   M = min(1 − σ(r), π − θ_p)

    For cosines, `s_p = cos θ_p`. r says how well popularity alone predicts the interaction: one
    that it explains has a small margin, one that it does not must be learned more firmly. In the
    paper r is a product of learned vectors of the user's and the item's number of interactions;
    here it is what these vectors estimate, the log-odds of a positive against a random item by
    groups of equal popularity. Scores are cut at ±1. The mean over a user's positives, then over
    users. `Loss` describes the other inputs and the result.

    Args:
        popularity_logit: r of every positive, `[B, P]`; training provides it.
        tau: Temperature τ, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import bc, softmax
        >>> pos, neg = torch.tensor([[0.5]]), torch.tensor([[0.1]])
        >>> explained = torch.tensor([[30.0]])  # by popularity: no margin
        >>> bool(bc(pos, neg, popularity_logit=explained).isclose(softmax(pos, neg, tau=0.2)))
        True
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    total, some = log_sum(neg, neg_mask, tau)
    logit = torch.where(mask, popularity_logit.to(pos.dtype), 0.0)
    margin = torch.sigmoid(-logit)  # 1 − σ(r), in [0, 1]
    cosine = pos.clamp(-1 + 1e-6, 1 - 1e-6)  # sin θ has no slope at ±1
    turned = cosine * margin.cos() - (1 - cosine * cosine).sqrt() * margin.sin()
    turned = torch.where(cosine <= -margin.cos(), -1.0, turned)  # θ + M ≥ π
    values = torch.where(some, softplus(total - turned / tau), 0.0)  # [B, P]
    return mean_over_users(values, mask)
