"""Losses for single positives and negatives: BPR, SimpleX's cosine contrastive loss, and WARP."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemfold.losses.base import apply_mask, bindable, mean, mean_over_users


@bindable
def bpr(
    pos: Tensor, neg: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None
) -> Tensor:
    """Bayesian personalised ranking, `−log σ(s_p − s_j)` (Rendle et al., UAI 2009).

    The mean over all pairs of a positive p and a negative j of a user, then over users. By
    default it is trained as in its paper: batches of interactions, one negative each. `Loss`
    describes the inputs and the result.

    Examples:
        >>> import torch
        >>> from itemfold.losses import bpr
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[2.0, 1.0]])
        >>> round(float(bpr(pos, neg)), 4)  # (log 2 + log(1 + 1/e)) / 2
        0.5032
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", -torch.inf)  # softplus(−∞) = 0
    pairs = mean(softplus(neg[:, None, :] - pos[:, :, None]), negatives[:, None, :])  # [B, P]
    return mean_over_users(pairs, mask)


@bindable
def ccl(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    margin: float = 0.9,
    weight: float = 10.0,
) -> Tensor:
    """Cosine contrastive loss, `[1 − cos_p]₊ + w/|N| Σ_j [cos_j − m]₊` (SimpleX, CIKM 2021).

    For scores that are cosines: train with `similarity="cosine"`, or with a model that compares by
    cosines itself (`simplex`); a bias may lift a score above 1, where it has no slope. Negatives
    below the margin m have no slope, so only hard ones count. `Loss` describes the inputs and the
    result.

    Args:
        margin: m, between −1 and 1.
        weight: w, at least 0.

    Examples:
        >>> import torch
        >>> from itemfold.losses import ccl
        >>> pos, neg = torch.tensor([[0.8]]), torch.tensor([[0.5, 0.1]])
        >>> round(float(ccl(pos, neg, margin=0.3, weight=2.0)), 4)  # 0.2 + 2·(0.2 + 0)/2
        0.4
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    push = mean((neg - margin).clamp(min=0), negatives)  # [B]
    return mean(mean((1 - pos).clamp(min=0), mask) + weight * push, mask.any(-1))


@bindable
def warp(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    gap: float = 1.0,
    scale: float = 1.0,
) -> Tensor:
    """Weighted approximate-rank pairwise loss, WARP (Weston et al., IJCAI 2011).

        Φ(n_p) · mean over the violators j of (g − s_p + s_j),   Φ(n) = 1 + 1/2 + … + 1/n

    Violators are the negatives with `s_j > s_p − g`; `n_p` is their number times `scale`, an
    estimate of the positive's rank. The paper draws negatives one by one until it finds a violator
    and estimates the rank from the number of draws; a list shows all of them at once. No gradient
    flows through Φ. The mean over a user's positives, then over users. `Loss` describes the inputs
    and the result.

    Args:
        gap: Margin g, positive.
        scale: How many items a negative stands for, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import warp
        >>> pos, neg = torch.tensor([[1.0]]), torch.tensor([[1.0, 0.5, -3.0]])
        >>> round(float(warp(pos, neg)), 4)  # two violators: (1 + 1/2)·(1 + 0.5)/2
        1.125
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, _ = apply_mask(neg, neg_mask, "neg", -torch.inf)
    short = (gap + neg[:, None, :] - pos[:, :, None]).clamp(min=0)  # [B, P, N]
    count = (short.detach() > 0).sum(-1).to(pos.dtype)  # [B, P]
    harmonic = torch.digamma(scale * count + 1) - torch.digamma(torch.ones_like(count))
    values = harmonic * short.sum(-1) / count.clamp(min=1)
    return mean_over_users(values, mask)
