"""Losses of single positives and negatives: BPR, and SimpleX's cosine contrastive loss."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemrec.losses.base import bindable, mean, real


@bindable
def bpr(
    pos: Tensor, neg: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None
) -> Tensor:
    """−log σ(s_p − s_j), mean over a user's pairs of a positive and a negative (Rendle, 2009)."""
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
    """(1 − cos_p) + w/|N| Σ_j max(0, cos_j − m), for scores that are cosines (SimpleX, 2021)."""
    pos, mask = real(pos, pos_mask, "pos", 0.0)
    neg, negatives = real(neg, neg_mask, "neg", 0.0)
    push = mean((neg - margin).clamp(min=0), negatives)  # [B]
    return mean(mean(1 - pos, mask) + weight * push, mask.any(-1))
