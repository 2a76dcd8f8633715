"""Pairwise logistic losses that are weighted by the change of NDCG: LambdaRank, LambdaLoss@K."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemfold.losses.base import apply_mask, bindable, mean
from itemfold.losses.smooth_ranking import ideal_dcg


@bindable
def lambda_rank(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """LambdaRank, `Σ_{p,j} |ΔNDCG_pj| · log(1 + e^{(s_j − s_p)/τ})` (Burges et al., 2006).

    `ΔNDCG_pj = (1/log₂(1 + r_p) − 1/log₂(1 + r_j))/iDCG` is the change of NDCG when positive p and
    negative j trade places; r are the exact ranks in the list, and no gradient flows through them.
    A sum over a user's pairs, then the mean over users. Memory is a few `[B, P, N]` tensors. `Loss`
    describes the inputs and the result.

    Args:
        tau: Temperature τ of the logistic function, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import lambda_rank
        >>> pos, neg = torch.tensor([[0.0]]), torch.tensor([[0.0]])  # ranks 2 and 1
        >>> round(float(lambda_rank(pos, neg)), 4)  # (1 − 1/log₂ 3)·log 2
        0.2558
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    rank_pos, rank_neg = list_ranks(pos, neg, mask, negatives)
    change = 1 / torch.log2(1 + rank_pos[:, :, None]) - 1 / torch.log2(1 + rank_neg[:, None, :])
    return _weighted_pairs(pos, neg, mask, negatives, change.abs(), tau)


@bindable
def lambda_loss(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    k: int = 20,
) -> Tensor:
    """LambdaLoss@K: LambdaRank with weights that bound NDCG@k (Jagerman et al., SIGIR 2022).

        δ_pj = 1/D(Δ) − 1/D(Δ + 1),   Δ = |r_p − r_j|,   D(x) = log₂(1 + x)
        δ_pj · (1 − 1/D(max(r_p, r_j)))⁻¹   if one of the two ranks is beyond k

    divided by iDCG, in place of |ΔNDCG_pj| in `lambda_rank`: neighbours in the list weigh most,
    wherever they are. Ranks are exact in the list. With a k beyond the list it is LambdaLoss (Wang
    et al., CIKM 2018). `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ of the logistic function, positive.
        k: Number of places, a positive integer.

    Examples:
        >>> import torch
        >>> from itemfold.losses import lambda_loss
        >>> pos, neg = torch.tensor([[0.0]]), torch.tensor([[0.0]])  # ranks 2 and 1
        >>> round(float(lambda_loss(pos, neg)), 4)  # (1 − 1/log₂ 3)·log 2
        0.2558
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    rank_pos, rank_neg = list_ranks(pos, neg, mask, negatives)
    one, two = rank_pos[:, :, None], rank_neg[:, None, :]
    apart = (one - two).abs().clamp(min=1)  # [B, P, N]; ranks in a list are distinct
    change = 1 / torch.log2(1 + apart) - 1 / torch.log2(2 + apart)
    lower = torch.maximum(one, two)
    beyond = 1 / (1 - 1 / torch.log2(1 + lower.clamp(min=2)))
    return _weighted_pairs(
        pos, neg, mask, negatives, torch.where(lower > k, change * beyond, change), tau
    )


def _weighted_pairs(
    pos: Tensor, neg: Tensor, mask: Tensor, negatives: Tensor, weight: Tensor, tau: float
) -> Tensor:
    """Mean over users of Σ_{p,j} weight_pj · log(1 + e^{(s_j − s_p)/τ}) / iDCG."""
    pairs = weight * softplus((neg[:, None, :] - pos[:, :, None]) / tau)  # [B, P, N]
    real = mask[:, :, None] & negatives[:, None, :]
    total = torch.where(real, pairs, 0.0).sum((1, 2))  # [B]
    return mean(total / ideal_dcg(mask, total), mask.any(-1))


@torch.no_grad()
def list_ranks(pos: Tensor, neg: Tensor, mask: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """Exact ranks from 1 in each user's list, ``[B, P]`` and ``[B, N]``; padding comes last.

    Of equal scores a negative comes first, so that a model that scores all items alike is not
    rewarded.
    """
    below = torch.where(mask, pos, -torch.inf)
    above = torch.where(negatives, neg, -torch.inf).expand(len(pos), -1)
    order = torch.cat([above, below], -1).argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(1, order.shape[-1] + 1, device=pos.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, places).to(pos.dtype)
    return rank[:, neg.shape[-1] :], rank[:, : neg.shape[-1]]
