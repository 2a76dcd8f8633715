"""A differentiable sort: NeuralSort's relaxed permutation, made doubly stochastic by Sinkhorn."""

import torch
from torch import Tensor

from itemfold.ops.segment import fused


def neural_sort(scores: Tensor, mask: Tensor, tau: float) -> Tensor:
    """Relaxed permutation of the n real of L entries: row i is a softmax over the entry of rank i.

    P̂ᵢ = softmax([(n + 1 − 2i)·s − A_s𝟙]/τ), A_s = |sᵢ − sⱼ|   [B, L] → [B, L, L]

    Rows beyond n, columns of padding and values below 1e-30 are 0. (Grover et al., 2019)
    """
    scores = scores.masked_fill(~mask, 0.0)
    n = mask.sum(-1)[:, None]  # [B, 1]
    place = torch.arange(1, scores.shape[-1] + 1, device=scores.device)  # [L]
    gap = (scores[:, :, None] - scores[:, None, :]).abs()  # [B, L, L]
    spread = torch.where(mask[:, None, :], gap, 0.0).sum(-1)  # A_s𝟙, [B, L]
    slope = (n + 1 - 2 * place).to(scores.dtype)  # [B, L]
    logits = (slope[:, :, None] * scores[:, None, :] - spread[:, None, :]) / tau
    # A finite fill value: a softmax over −∞ alone (a user without items) would be NaN.
    logits = logits.masked_fill(~mask[:, None, :], torch.finfo(scores.dtype).min)
    order = logits.softmax(-1)
    real = (place <= n)[:, :, None] & mask[:, None, :]
    # Tails of 1e-40 are negligible, and denormal numbers slow a processor down several times.
    return torch.where(real & (order > 1e-30), order, 0.0)


def sinkhorn(
    matrix: Tensor, iterations: int = 50, tolerance: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Vectors r, c such that diag(r)·matrix·diag(c) has rows and columns that sum to one, [B, L].

    Two vectors per step instead of a new [B, L, L] matrix keep the memory of autograd small. A user
    is frozen when all columns are within `tolerance`, so the result does not depend on the rest of
    the batch. Empty rows and columns (padding) get 0. On a GPU lists that fit take one kernel.
    """
    if fused(matrix) and matrix.dtype == torch.float32:
        from itemfold.ops.triton.sinkhorn import LONGEST, balance

        if matrix.shape[-1] <= LONGEST:
            return balance(matrix, iterations, tolerance)
    r = (matrix.amax(-1) > 0).to(matrix.dtype)  # [B, L]
    c = (matrix.amax(-2) > 0).to(matrix.dtype)
    rows, columns = r > 0, c > 0
    done = torch.zeros_like(rows[:, :1])  # [B, 1]
    for _ in range(iterations):
        total = (r[:, None, :] @ matrix)[:, 0]  # of each column, before it is scaled by c
        off = torch.where(columns, (c * total - 1).abs(), 0.0)
        done = done | (off < tolerance).all(-1, keepdim=True)
        if done.device.type == "cpu" and bool(done.all()):  # on a GPU this would synchronise
            break
        c = torch.where(done, c, columns / total.clamp(min=1e-10))
        r = torch.where(done, r, rows / (matrix @ c[:, :, None])[:, :, 0].clamp(min=1e-10))
    return r, c
