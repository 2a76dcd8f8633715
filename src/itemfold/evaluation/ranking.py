"""Scores of a block of users with their history masked, and the best items of each user."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.array_types import Ints
from itemfold.data.csr import row_of_entry
from itemfold.models.base import Model
from itemfold.reranking.reranker import LARGEST_POOL, Reranker

BUDGET = 256  # MB of scores held at a time
IN_CACHE = 16  # MB of scores at a time on a CPU: each of several passes over them is in its cache
ROW_BLOCK = 64  # block sizes are a multiple of this, so that rounding does not depend on the block
STRETCH = 64  # consecutive items that are first compared by their largest score


def padded_scores(model: Model, history: sp.csr_array, users: Ints) -> Tensor:
    """Scores of users, padded to a multiple of `ROW_BLOCK` rows: rounding depends on the shape."""
    missing = -history.shape[0] % ROW_BLOCK
    if missing:
        empty = np.full(missing, history.indptr[-1], dtype=history.indptr.dtype)
        parts = (history.data, history.indices, np.concatenate([history.indptr, empty]))
        history = sp.csr_array(parts, shape=(history.shape[0] + missing, history.shape[1]))
        users = np.concatenate([users, np.full(missing, users[0], dtype=users.dtype)])
    return model.scores(history, users).contiguous()


def mask_history(scores: Tensor, history: sp.csr_array) -> Tensor:
    """Set the scores of each user's history to −∞, in place."""
    flat = row_of_entry(history) * scores.shape[1] + history.indices
    scores.view(-1)[torch.from_numpy(flat).to(scores.device)] = -torch.inf
    return scores


def top_items(scores: Tensor, k: int) -> Tensor:
    """The k best items of each row, best first, −1 where scores are −∞; ties: lower item; [B, k].

    ``topk`` does not define the order of equal scores. One extra position shows whether a tie
    crosses the cut-off; only in such rows the equal scores are looked up among all items.
    """
    depth = min(k + 1, scores.shape[1])
    value, item = largest(scores, depth)
    equal = (value[:, 1:] == value[:, :-1]) & (value[:, 1:] > -torch.inf)
    unordered = torch.nonzero(equal.any(1)).squeeze(1)
    if len(unordered):  # by item first, then stably by score: ties go to the lower item
        by_item = item[unordered].sort(dim=1)
        values = value[unordered].gather(1, by_item.indices)
        order = torch.argsort(values, dim=1, descending=True, stable=True)
        item[unordered] = by_item.values.gather(1, order)
    if depth > k:
        for rows in torch.split(torch.nonzero(equal[:, k - 1]).squeeze(1), 256):
            item[rows, :k] = _with_lowest(scores[rows], value[rows, :k], item[rows, :k])
    return item[:, :k].masked_fill(value[:, :k] == -torch.inf, -1)


def top_items_for_all(scores: Tensor, hidden: sp.csr_array, k: int) -> Ints:
    """The items of `top_items` where all users have the same scores, ``[items] → [B, k]``.

    Args:
        scores: The scores, finite.
        hidden: Items that are not ranked, a row for each user.
        k: Length of the lists.
    """
    order = torch.argsort(scores, descending=True, stable=True).cpu().numpy()
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    rows = row_of_entry(hidden)
    by_place = np.lexsort((place[hidden.indices], rows))
    # the j-th item that is not hidden follows all hidden ones with at most j others before them
    before = place[hidden.indices[by_place]] - (np.arange(hidden.nnz) - hidden.indptr[rows])
    near = before < k
    passed = np.bincount(rows[near] * k + before[near], minlength=hidden.shape[0] * k)
    places = np.arange(k) + passed.reshape(-1, k).cumsum(1)
    out: Ints = np.where(places < len(order), order[np.minimum(places, len(order) - 1)], -1)
    return out


def _with_lowest(scores: Tensor, value: Tensor, item: Tensor) -> Tensor:
    """The best items, in which those that share the last value are the lowest of all that do."""
    k, n_items = value.shape[1], scores.shape[1]
    last = value[:, -1:]
    from_end = torch.arange(n_items, 0, -1, dtype=torch.int32, device=scores.device)
    lowest = n_items - from_end.where(scores == last, 0).topk(k, dim=1).values.long()  # ascending
    place = torch.arange(k, device=scores.device) - (value > last).sum(1, keepdim=True)
    return torch.where(place < 0, item, lowest.gather(1, place.clamp(min=0)))


def steered_items(scores: Tensor, k: int, reranker: Reranker | None) -> Tensor:
    """The items of `top_items`, or those that a re-ranker chooses; ``[B, k]``.

    A list that caps leave short is chosen again from a larger pool.
    """
    if reranker is None:
        return top_items(scores, k)
    k = min(k, scores.shape[1])
    size = reranker.pool_size(k)
    chosen = _steered(scores, k, reranker, size)
    short = torch.nonzero(chosen[:, -1] < 0).squeeze(1)
    if len(short) and size < min(LARGEST_POOL, scores.shape[1]):
        chosen[short] = _steered(scores[short], k, reranker, LARGEST_POOL)
    return chosen


def _steered(scores: Tensor, k: int, reranker: Reranker, size: int) -> Tensor:
    pool = top_items(scores, size)
    width = pool.shape[1]
    if needed := reranker.tail_needed(k):  # the pool may have too few items of the long tail
        tail = top_items(scores.masked_fill(~reranker.facts.in_tail, -torch.inf), needed)
        known = (tail.unsqueeze(2) == pool.unsqueeze(1)).any(2)
        pool = torch.cat([pool, tail.masked_fill(known, -1)], dim=1)
    return reranker.choose(pool, scores.gather(1, pool.clamp(min=0)), k, width)


def largest(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """The largest scores of each row and their items, ``[B, depth]``; on a CPU faster than topk.

    They are in the ``depth`` stretches with the largest maxima: any other stretch has at least
    ``depth`` stretches whose maxima are not below its own. Finding maxima is one vectorised pass.
    """
    stretches = scores.shape[1] // STRETCH
    if scores.is_cuda or stretches < 4 * depth:
        found = torch.topk(scores, depth, dim=1)
        return found.values, found.indices
    covered = stretches * STRETCH
    best = scores[:, :covered].view(len(scores), stretches, STRETCH).amax(2)
    chosen = torch.topk(best, depth, dim=1, sorted=False).indices.unsqueeze(2) * STRETCH
    inside = (chosen + torch.arange(STRETCH)).flatten(1)  # [B, depth · STRETCH]
    rest = torch.arange(covered, scores.shape[1]).expand(len(scores), -1)
    item = torch.cat([inside, rest], dim=1)
    value, at = torch.topk(scores.gather(1, item), depth, dim=1)
    return value, item.gather(1, at)
