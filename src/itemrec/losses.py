"""Losses of lists of scores: smooth ranking metrics, and pairwise and softmax ones beside them.

Every loss is a plain function ``loss(pos, neg, pos_mask=None, neg_mask=None, *, settings)``:

- ``pos`` [B, P] scores of P positives of each of B users, ``neg`` [B, N] (or [1, N]) of negatives;
- ``pos_mask``, ``neg_mask`` bool, True where an entry is real; what padding holds never matters;
- the result is the mean over users with at least one positive, and a differentiable 0 without any.

Called with settings alone a loss binds them: ``item_ndcg(tau=0.5)`` is
``functools.partial(item_ndcg, tau=0.5)``. Nothing here depends on the *values* of tensors on the
host, so that a GPU never waits and a step can be captured as a CUDA graph.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, overload

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemrec.counting import count_above
from itemrec.errors import ItemrecError
from itemrec.neural_sort import neural_sort, sinkhorn


class LazyScores(Protocol):
    """Negatives that are never written out, such as the whole catalogue streamed in blocks."""

    def count_above(self, pos: Tensor, tau: float) -> Tensor:
        """Σ_j σ((s_j − s_p)/τ) over each user's negatives, [B, P]; differentiable."""
        ...


Scores: TypeAlias = Tensor | LazyScores


# --- settings ------------------------------------------------------------------------------------


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _positive(value: Any) -> bool:
    return _number(value) and 0 < value < float("inf")


def _cuts(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) > 0
        and all(isinstance(k, int) and not isinstance(k, bool) and k > 0 for k in value)
    )


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tau": (_positive, "a positive number"),
    "tau_k": (_positive, "a positive number"),
    "t2": (_positive, "a positive number"),
    "ks": (_cuts, "a list of positive integers"),
    "margin": (lambda m: _number(m) and -1 <= m <= 1, "a number between -1 and 1"),
    "weight": (lambda w: _number(w) and 0 <= w < float("inf"), "a number of at least 0"),
    "iterations": (lambda n: _cuts([n]), "a positive integer"),
}


class Loss(Protocol):
    """A loss as it is seen from outside: scores give a scalar, settings alone give a partial."""

    __name__: str

    @overload
    def __call__(
        self,
        pos: Tensor,
        neg: Scores,
        pos_mask: Tensor | None = None,
        neg_mask: Tensor | None = None,
        **settings: float | Sequence[int],
    ) -> Tensor: ...

    @overload
    def __call__(self, **settings: float | Sequence[int]) -> functools.partial[Tensor]: ...


def _bindable(function: Callable[..., Tensor]) -> Loss:
    """Check the settings of every call; with settings alone, bind them instead of computing."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    inputs = {p.name for p in parameters} - set(known)

    @functools.wraps(function)
    def loss(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() - inputs:
            if name not in known:
                choices = f"choose from {', '.join(known)}" if known else "it has none"
                raise ItemrecError(f"'{name}' is not a setting of {function.__name__}: {choices}")
            rule, text = RULES[name]
            if not rule(kwargs[name]):
                raise ItemrecError(f"'{name}' must be {text}, got {kwargs[name]!r}")
        if not args and not inputs & kwargs.keys():
            return functools.partial(loss, **kwargs)
        return function(*args, **kwargs)

    loss.bindable = True  # type: ignore[attr-defined]
    return loss


# --- lists and masks -----------------------------------------------------------------------------


def _real(scores: Tensor, mask: Tensor | None, name: str, fill: float) -> tuple[Tensor, Tensor]:
    """Scores with `fill` in the padding, and the mask; both [B, n]. Half precision is widened.

    A count of 200 does not fit bfloat16's eight bits. Padding is overwritten first, since not even
    a zero gradient survives its product with a NaN found there.
    """
    if not isinstance(scores, Tensor):
        raise ItemrecError(
            "'negatives' must be sampled for this loss: only item-ndcg, item-ap, item-recall and "
            "item-log sum over the whole catalogue"
        )
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if mask is None:
        return scores, torch.ones_like(scores, dtype=torch.bool)
    if mask.dtype != torch.bool:
        raise ItemrecError(f"'{name}_mask' must be a boolean tensor, got {mask.dtype}")
    scores = torch.where(mask, scores, fill)  # broadcasts [1, N] scores to a [B, N] mask
    return scores, mask.expand_as(scores)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real entries of the last dimension, 0 where there are none."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


# --- the smooth rank and its metrics (the paper's equations 1 and 2, and appendix A) --------------


def negative_count(pos: Tensor, neg: Scores, neg_mask: Tensor | None, tau: float) -> Tensor:
    """Smooth number of negatives above each positive, Σ_{j∈V⁻} σ((s_j − s_p)/τ), [B, P]."""
    if isinstance(neg, Tensor):
        neg, mask = _real(neg, neg_mask, "neg", -torch.inf)  # σ(−∞) = 0, and so is its slope
        return count_above(pos, neg.expand(len(pos), mask.shape[-1]), tau)
    if neg_mask is not None:
        raise ItemrecError(f"'neg_mask' must be None with {type(neg).__name__}, got a tensor")
    return neg.count_above(pos, tau)


def smooth_rank(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Rank of each positive in its user's list (equation 1), and its rank among the positives.

    rank(p) = 1 + Σ_{j∈V, j≠p} σ((s_j − s_p)/τ),   rank⁺(p) = 1 + Σ_{j∈V⁺, j≠p} σ((s_j − s_p)/τ)

    As τ → 0, σ becomes the step function and the rank exact (tied items count one half each).
    Returns rank, rank⁺, and which positives are real, each [B, P].
    """
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    others = pos.masked_fill(~mask, -torch.inf)
    # p itself is part of this sum with σ(0) = ½ exactly and no net gradient: 1 − ½ takes it out.
    rank_pos = 0.5 + count_above(pos, others, tau)  # [B, P]
    return rank_pos + negative_count(pos, neg, neg_mask, tau), rank_pos, mask


@_bindable
def item_ndcg(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """1 − DCG/iDCG with DCG = Σ_{p∈V⁺} 1/log₂(1 + rank(p)): the paper's loss (equation 2).

    iDCG = Σ_{i=1}^{|V⁺|} 1/log₂(1 + i) is exact, over the positives the list really has.

    >>> pos, neg = torch.tensor([[2.0]]), torch.tensor([[3.0, 1.0]])
    >>> round(float(item_ndcg(pos, neg, tau=1e-3)), 4)  # rank 2: 1 − 1/log₂(3)
    0.3691
    """
    rank, _, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    dcg = torch.where(mask, 1 / torch.log2(1 + rank), 0.0).sum(-1)  # [B]
    return _mean(1 - dcg / _ideal_dcg(mask, rank), mask.any(-1))


def _ideal_dcg(mask: Tensor, like: Tensor) -> Tensor:
    """Σ_{i=1}^{n} 1/log₂(1 + i) for the n real positives of each user, at least 1, [B]."""
    place = torch.arange(mask.shape[-1], device=mask.device)  # [P]
    discount = 1 / torch.log2(place.to(like.dtype) + 2)
    return torch.where(place < mask.sum(-1, keepdim=True), discount, 0.0).sum(-1).clamp(min=1)


@_bindable
def item_ap(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """1 − average precision: 1 − 1/|V⁺| Σ_{p∈V⁺} rank⁺(p)/rank(p)."""
    rank, rank_pos, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    return _mean(1 - _mean(rank_pos / rank, mask), mask.any(-1))


@_bindable
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
    """1 − 1/|K| Σ_{k∈K} 1/min(|V⁺|, k) Σ_{p∈V⁺} σ((k + ½ − rank(p))/τ_k): capped recall at every k.

    τ_k is in ranks. With τ_k = 1 a positive at rank 500 of 1,000 has no slope, and nothing is ever
    learnt; a twentieth of the list does (LOG.md).

    The step H(k − rank) counts a positive *at* rank k. Without the ½ the sigmoid would count it
    half, and the loss would not tend to the metric: the step lies between the ranks k and k + 1.
    """
    rank, _, mask = smooth_rank(pos, neg, pos_mask, neg_mask, tau=tau)
    count = mask.sum(-1)
    recall = torch.zeros_like(rank[:, :1]).sum(-1)  # [B]
    for k in ks:
        hits = torch.where(mask, torch.sigmoid((k + 0.5 - rank) / tau_k), 0.0).sum(-1)
        recall = recall + hits / count.clamp(min=1, max=k)
    return _mean(1 - recall / len(ks), count > 0)


@_bindable
def item_log(
    pos: Tensor,
    neg: Scores,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """1/|V⁺| Σ_{p∈V⁺} log₂(1 + n_p), n_p = Σ_{j∈V⁻} σ((s_j − s_p)/τ): a bound of −log₂ NDCG.

    Not in the paper. The slope of 1/log₂(1 + rank) vanishes as 1/(rank·log² rank), so positives
    far down are given up; that of a logarithm is 1/rank. With e^x in place of σ(x) ≤ e^x it is the
    softmax loss, a looser bound.

    Why a bound, for exact counts: rank(p) = i + n_p for the i-th positive, log₂(1 + i + n) ≤
    (1 + n)·log₂(1 + i), hence NDCG ≥ Σᵢ wᵢ/(1 + n_p) with wᵢ ∝ 1/log₂(1 + i). Jensen's inequality
    gives −log₂ NDCG ≤ Σᵢ wᵢ log₂(1 + n_p), and Chebyshev's equal weights, since w falls as n grows.
    """
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    above = negative_count(pos, neg, neg_mask, tau)  # [B, P]
    return _mean(_mean(torch.log2(1 + above), mask), mask.any(-1))


@_bindable
def neural_ndcg(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
    iterations: int = 50,
) -> Tensor:
    """1 − NDCG of the list as NeuralSort orders it (Pobrotyn and Białobrzeski, 2021).

    DCG = Σᵢ (P̃·gain)ᵢ / log₂(1 + i), P̃ the permutation of `neural_sort` made doubly stochastic by
    `sinkhorn`, gain 1 for positives. Memory is a few [B, P+N, P+N] tensors: 2,048 users with lists
    of 205 take 0.34 GB each in float32, so use smaller batches on a small machine.
    """
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    neg, negatives = _real(neg, neg_mask, "neg", 0.0)
    negatives = negatives.expand(len(pos), -1)
    scores = torch.cat([pos, neg.expand_as(negatives)], -1)  # [B, L], L = P + N
    order = neural_sort(scores, torch.cat([mask, negatives], -1), tau)  # [B, L, L]
    r, c = sinkhorn(order, iterations)
    gain = torch.where(mask, c[:, : mask.shape[-1]], 0.0)  # [B, P]
    place = torch.arange(scores.shape[-1], device=scores.device)
    discount = r / torch.log2(place.to(scores.dtype) + 2)  # [B, L]
    dcg = (discount * (order[:, :, : mask.shape[-1]] @ gain[:, :, None])[:, :, 0]).sum(-1)
    return _mean(1 - dcg / _ideal_dcg(mask, scores), mask.any(-1))


# --- pairs and softmax ---------------------------------------------------------------------------


@_bindable
def bpr(
    pos: Tensor, neg: Tensor, pos_mask: Tensor | None = None, neg_mask: Tensor | None = None
) -> Tensor:
    """−log σ(s_p − s_j), mean over a user's pairs of a positive and a negative (Rendle, 2009)."""
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    neg, negatives = _real(neg, neg_mask, "neg", -torch.inf)  # softplus(−∞) = 0
    pairs = _mean(softplus(neg[:, None, :] - pos[:, :, None]), negatives[:, None, :])  # [B, P]
    return _mean(_mean(pairs, mask), mask.any(-1))


def _log_sum(neg: Tensor, neg_mask: Tensor | None, tau: float) -> tuple[Tensor, Tensor]:
    """log Σ_j exp(s_j/τ) over the negatives, hugely negative where there are none; any; [B, 1]."""
    # finite, even after the division: the gradient of a log-sum over −∞ alone is NaN
    neg, mask = _real(neg, neg_mask, "neg", -1e38 * min(tau, 1))
    return (neg / tau).logsumexp(-1, keepdim=True), mask.any(-1, keepdim=True)


@_bindable
def softmax(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    tau: float = 1.0,
) -> Tensor:
    """−log(e^{s_p/τ} / (e^{s_p/τ} + Σ_j e^{s_j/τ})), mean over a user's positives (InfoNCE)."""
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    log_sum, some = _log_sum(neg, neg_mask, tau)
    values = torch.where(some, softplus(log_sum - pos / tau), 0.0)  # [B, P]
    return _mean(_mean(values, mask), mask.any(-1))


@_bindable
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
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    log_sum, some = _log_sum(neg, neg_mask, tau)
    values = t2 * torch.where(some, log_sum, 0.0) - pos / tau  # [B, P]
    return _mean(_mean(values, mask), mask.any(-1))


@_bindable
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
    pos, mask = _real(pos, pos_mask, "pos", 0.0)
    neg, negatives = _real(neg, neg_mask, "neg", 0.0)
    push = _mean((neg - margin).clamp(min=0), negatives)  # [B]
    return _mean(_mean(1 - pos, mask) + weight * push, mask.any(-1))


LOSSES: dict[str, Loss] = {
    "bpr": bpr,
    "item-ndcg": item_ndcg,
    "item-ap": item_ap,
    "item-recall": item_recall,
    "item-log": item_log,
    "neural-ndcg": neural_ndcg,
    "softmax": softmax,
    "bsl": bsl,
    "ccl": ccl,
}

# How a loss is trained in the paper that introduced it, where that differs from lists of users.
CUSTOMARY: dict[str, dict[str, Any]] = {"bpr": {"by": "interactions", "sampled": 1}}


def customary(loss: Callable[..., Tensor]) -> dict[str, Any]:
    """Training settings that belong to a loss unless others are given.

    >>> customary(bpr)
    {'by': 'interactions', 'sampled': 1}
    """
    while isinstance(loss, functools.partial):
        loss = loss.func
    names = [name for name, known in LOSSES.items() if known is loss]
    return CUSTOMARY.get(names[0], {}) if names else {}
