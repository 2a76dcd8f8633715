"""Smooth ranking metrics as losses: equations 1 and 2 and appendix A of the paper, and item-log."""

from collections.abc import Sequence

import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.losses.base import (
    Scores,
    apply_mask,
    bindable,
    check_mask,
    mean,
    mean_over_users,
    widened,
)
from itemfold.ops.neural_sort import neural_sort, sinkhorn
from itemfold.ops.smooth_rank import count_above


def negative_count(pos: Tensor, neg: Scores, neg_mask: Tensor | None, tau: float) -> Tensor:
    """Smooth number of negatives above each positive, Σ_{j∈V⁻} σ((s_j − s_p)/τ), [B, P]."""
    if isinstance(neg, Tensor):
        neg = widened(neg)
        check_mask(neg_mask, "neg")
        shape = (len(pos), neg.shape[-1] if neg_mask is None else neg_mask.shape[-1])
        mask = None if neg_mask is None else neg_mask.expand(shape)
        return count_above(pos, neg.expand(shape), tau, mask)
    if neg_mask is not None:
        raise ItemfoldError(f"'neg_mask' must be None with {type(neg).__name__}, got a tensor")
    return neg.count_above(pos, tau)


def smooth_rank(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Smooth rank of each positive in its user's list, and its smooth rank among the positives.

    With V⁺ the positives and V = V⁺ ∪ V⁻ all items of the list (the paper's equation 1):

        rank(p)  = 1 + Σ_{j∈V,  j≠p} σ((s_j − s_p)/τ)
        rank⁺(p) = 1 + Σ_{j∈V⁺, j≠p} σ((s_j − s_p)/τ)

    As τ → 0, σ becomes the step function and the rank exact (tied items count one half each). The
    paper's equation sums over all j∈V, p included, which adds σ(0) = ½ to every rank: the best
    positive then has rank 1½, and the loss of a perfect list is not 0. It is left out here (j≠p).

    Args:
        pos: Scores of positives, `[B, P]`; all inputs are those of a `Loss`.
        neg: Scores of negatives, or a stream of them (`LazyScores`).
        pos_mask: True where a positive is real.
        neg_mask: True where a negative is real.
        tau: Temperature τ of the sigmoid.

    Returns:
        rank, rank⁺, and which positives are real, each `[B, P]`.

    Raises:
        ItemfoldError: A mask is not boolean, or a stream comes with a mask.

    Examples:
        >>> import torch
        >>> from itemfold.losses import smooth_rank
        >>> pos, neg = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0]])
        >>> rank, among, _ = smooth_rank(pos, neg, tau=1e-3)
        >>> rank.tolist(), among.tolist()
        ([[1.0, 3.0]], [[1.0, 2.0]])
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    others = pos.masked_fill(~mask, -torch.inf)
    # p itself adds σ(0) = ½ exactly and no net gradient to this sum: 1 − ½ removes it.
    rank_pos = 0.5 + count_above(pos, others, tau)  # [B, P]
    return rank_pos + negative_count(pos, neg, neg_mask, tau), rank_pos, mask


@bindable
def item_ndcg(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """Smooth NDCG, `1 − DCG/iDCG` with `DCG = Σ_{p∈V⁺} 1/log₂(1 + rank(p))`: the ITEM paper's loss.

    The rank is `smooth_rank` (equation 2 of the paper). `iDCG = Σ_{i=1}^{|V⁺|} 1/log₂(1 + i)` is
    exact, over the real positives of the list. Values are in [0, 1). `Loss` describes the inputs
    and the result.

    Args:
        tau: Temperature τ of the rank, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import item_ndcg
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[3.0, 1.0]])
        >>> round(float(item_ndcg(pos, neg, tau=1e-3)), 4)  # rank 2: 1 − 1/log₂(3)
        0.3691
    """
    rank, _, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    dcg = torch.where(mask, 1 / torch.log2(1 + rank), 0.0).sum(-1)  # [B]
    return mean(1 - dcg / ideal_dcg(mask, rank), mask.any(-1))


def ideal_dcg(mask: Tensor, like: Tensor) -> Tensor:
    """Σ_{i=1}^{n} 1/log₂(1 + i) for the n real positives of each user, at least 1, [B]."""
    place = torch.arange(mask.shape[-1], device=mask.device)  # [P]
    discount = 1 / torch.log2(place.to(like.dtype) + 2)
    return torch.where(place < mask.sum(-1, keepdim=True), discount, 0.0).sum(-1).clamp(min=1)


@bindable
def item_ap(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """Smooth average precision, `1 − 1/|V⁺| Σ_{p∈V⁺} rank⁺(p)/rank(p)`.

    Both ranks are those of `smooth_rank`. Values are in [0, 1). `Loss` describes the inputs and the
    result.

    Args:
        tau: Temperature τ of the rank, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import item_ap
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[3.0, 1.0]])
        >>> round(float(item_ap(pos, neg, tau=1e-3)), 4)  # rank 2 of 1 positive: 1 − 1/2
        0.5
    """
    rank, rank_pos, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    return mean(1 - mean(rank_pos / rank, mask), mask.any(-1))


@bindable
def item_recall(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    tau_k: float = 50.0,
) -> Tensor:
    """Smooth capped recall, the mean over several cut-offs k.

        1 − 1/|K| Σ_{k∈K} 1/min(|V⁺|, k) Σ_{p∈V⁺} σ((k + ½ − rank(p))/τ_k)

    `tau_k` is in ranks. With τ_k = 1 a positive at rank 500 of 1,000 has no slope, and the
    model does not learn; a twentieth of the list works (docs/research/training.md).

    The ½ is not in the paper, whose appendix has `σ((k − rank(p))/τ_k)`. The step `H(k − rank)`
    counts a positive *at* rank k. Without the ½ the sigmoid would count it half, and the loss would
    not tend to the metric: the step lies between the ranks k and k + 1. Values are in [0, 1].
    `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ of the rank, positive.
        ks: The cut-offs K, positive integers.
        tau_k: Temperature of the cut, in ranks, positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import item_recall
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[3.0, 1.0]])
        >>> round(float(item_recall(pos, neg, tau=1e-3, ks=(1, 2), tau_k=1e-3)), 4)  # rank 2
        0.5
    """
    rank, _, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    count = mask.sum(-1)
    recall = torch.zeros_like(rank[:, :1]).sum(-1)  # [B]
    for k in ks:
        hits = torch.where(mask, torch.sigmoid((k + 0.5 - rank) / tau_k), 0.0).sum(-1)
        recall = recall + hits / count.clamp(min=1, max=k)
    return mean(1 - recall / len(ks), count > 0)


@bindable
def item_log(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    scale: float = 1.0,
) -> Tensor:
    """Logarithm of the smooth rank, a bound of `−log₂ NDCG`; not in the ITEM paper.

        1/|V⁺| Σ_{p∈V⁺} log₂(1 + n_p)        n_p = scale · Σ_{j∈V⁻} σ((s_j − s_p)/τ)

    The slope of `1/log₂(1 + rank)` vanishes as `1/(rank·log² rank)`, so low-ranked positives
    have almost no gradient; the slope of a logarithm is `1/rank`. With `e^x` in place of
    `σ(x) ≤ e^x` it is the softmax loss, a looser bound.

    Why a bound, for exact counts: `rank(p) = i + n_p` for the i-th positive, and `log₂(1 + i + n) ≤
    (1 + n)·log₂(1 + i)`, hence `NDCG ≥ Σᵢ wᵢ/(1 + n_p)` with `wᵢ ∝ 1/log₂(1 + i)`. Jensen's
    inequality gives `−log₂ NDCG ≤ Σᵢ wᵢ log₂(1 + n_p)`, and Chebyshev's equal weights, since w
    falls as n grows. `Loss` describes the inputs and the result.

    Args:
        tau: Temperature τ of the count, positive.
        scale: How many items a negative stands for, positive. A sample of N negatives with scale
            `M/N` estimates the count among M.

    Examples:
        >>> import torch
        >>> from itemfold.losses import item_log
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[5.0, 4.0, 3.0, 1.0]])
        >>> round(float(item_log(pos, neg, tau=1e-3)), 4)  # three negatives above: log₂ 4
        2.0
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    above = scale * negative_count(pos, neg, neg_mask, tau)  # [B, P]
    return mean_over_users(torch.log2(1 + above), mask)


@bindable
def neural_ndcg(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    iterations: int = 50,
) -> Tensor:
    """NeuralNDCG: 1 − NDCG of the list as NeuralSort orders it (Pobrotyn and Białobrzeski, 2021).

    `DCG = Σᵢ (P̃·gain)ᵢ / log₂(1 + i)`, P̃ the permutation of `neural_sort` made doubly stochastic
    by `sinkhorn`, gain 1 for positives. Memory is a few `[B, P+N, P+N]` tensors: 2,048 users with
    lists of 205 take 0.34 GB each in float32, so use smaller batches on a small machine. `Loss`
    describes the inputs and the result.

    Args:
        tau: Temperature of the sorting, positive.
        iterations: Steps of Sinkhorn's scaling.

    Examples:
        >>> import torch
        >>> from itemfold.losses import neural_ndcg
        >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[3.0, 1.0]])
        >>> round(float(neural_ndcg(pos, neg, tau=0.1)), 3)  # second place: 1 − 1/log₂(3)
        0.369
    """
    pos, mask = apply_mask(pos, pos_mask, "pos", 0.0)
    neg, negatives = apply_mask(neg, neg_mask, "neg", 0.0)
    negatives = negatives.expand(len(pos), -1)
    scores = torch.cat([pos, neg.expand_as(negatives)], -1)  # [B, L], L = P + N
    order = neural_sort(scores, torch.cat([mask, negatives], -1), tau)  # [B, L, L]
    r, c = sinkhorn(order, iterations)
    gain = torch.where(mask, c[:, : mask.shape[-1]], 0.0)  # [B, P]
    place = torch.arange(scores.shape[-1], device=scores.device)
    discount = r / torch.log2(place.to(scores.dtype) + 2)  # [B, L]
    dcg = (discount * (order[:, :, : mask.shape[-1]] @ gain[:, :, None])[:, :, 0]).sum(-1)
    return mean(1 - dcg / ideal_dcg(mask, scores), mask.any(-1))
