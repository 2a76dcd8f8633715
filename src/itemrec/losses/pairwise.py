"""Losses for single positives and negatives: BPR, and SimpleX's cosine contrastive loss."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemrec.losses.base import bindable, mean, real


@bindable
def bpr(
    pos: Tensor, neg: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None
) -> Tensor:
    """Bayesian personalised ranking, `−log σ(s_p − s_j)` (Rendle et al., UAI 2009).

    The mean over all pairs of a positive p and a negative j of a user, then over users. By
    default it is trained as in its paper: batches of interactions, one negative each.

    Args:
        pos: Scores of positives, `[B, P]`.
        neg: Scores of negatives, `[B, N]`, or `[1, N]` where all users share them.
        pos_mask: True where a positive is real, bool `[B, P]`; by default all are.
        neg_mask: True where a negative is real, bool `[B, N]`; by default all are.

    Returns:
        A scalar; 0 and still differentiable if there is no positive.

    Raises:
        ItemrecError: A mask is not boolean, or `neg` is a stream (`LazyScores`).

    Examples:
        >>> import torch
        >>> from itemrec.losses import bpr
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[2.0, 1.0]])
        >>> round(float(bpr(pos, neg)), 4)  # (log 2 + log(1 + 1/e)) / 2
        0.5032
    """
    pos, mask = real(pos, pos_mask, "pos", 0.0)
    neg, negatives = real(neg, neg_mask, "neg", -torch.inf)  # softplus(−∞) = 0
    pairs = mean(softplus(neg[:, None, :] - pos[:, :, None]), negatives[:, None, :])  # [B, P]
    return mean(mean(pairs, mask), mask.any(-1))


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
    below the margin m have no slope, so only hard ones count.

    Args:
        pos: Cosines of positives, `[B, P]`.
        neg: Cosines of negatives, `[B, N]`, or `[1, N]` where all users share them.
        pos_mask: True where a positive is real, bool `[B, P]`; by default all are.
        neg_mask: True where a negative is real, bool `[B, N]`; by default all are.
        margin: m, between −1 and 1.
        weight: w, at least 0.

    Returns:
        A scalar; 0 and still differentiable if there is no positive.

    Raises:
        ItemrecError: A setting is invalid, a mask is not boolean, or `neg` is a stream.

    Examples:
        >>> import torch
        >>> from itemrec.losses import ccl
        >>> pos, neg = torch.tensor([[0.8]]), torch.tensor([[0.5, 0.1]])
        >>> round(float(ccl(pos, neg, margin=0.3, weight=2.0)), 4)  # 0.2 + 2·(0.2 + 0)/2
        0.4
    """
    pos, mask = real(pos, pos_mask, "pos", 0.0)
    neg, negatives = real(neg, neg_mask, "neg", 0.0)
    push = mean((neg - margin).clamp(min=0), negatives)  # [B]
    return mean(mean((1 - pos).clamp(min=0), mask) + weight * push, mask.any(-1))
