"""A loss of your own: a hinge on the difference of scores, max(0, gap − (s_p − s_j))."""

from torch import Tensor

import itemfold as ir
from itemfold.losses.base import apply_mask, mean


@ir.losses.bindable  # checks settings, and lets own_loss(gap=0.5) bind them
def own_loss(
    pos: Tensor,  # scores of positives [B, P]
    neg: Tensor,  # scores of negatives [B, N]
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    gap: float = 1.0,
) -> Tensor:
    """Mean over a user's pairs of a positive and a negative, then over users."""
    pos, positives = apply_mask(pos, pos_mask, "pos", 0.0)  # padding gets a value that does no harm
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    hinge = (gap - pos[:, :, None] + neg[:, None, :]).clamp(min=0)  # [B, P, N]
    pairs = mean(hinge, negatives[:, None, :])  # [B, P]
    return mean(mean(pairs, positives), positives.any(-1))


ir.losses.LOSSES["own-loss"] = own_loss
