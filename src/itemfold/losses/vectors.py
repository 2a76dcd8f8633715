"""A loss of vectors instead of scores: DirectAU's alignment and uniformity."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from itemfold.losses.base import bindable, mean_over_users


@bindable
def direct_au(
    pos: Tensor,
    neg: Tensor,
    pos_mask: Tensor | None = None,
    neg_mask: Tensor | None = None,
    *,
    user_vectors: Tensor,
    item_vectors: Tensor,
    gamma: float = 1.0,
) -> Tensor:
    """Alignment and uniformity on the unit sphere, DirectAU (Wang et al., KDD 2022).

        mean of |u − p|² + γ/2·(uniformity of users + uniformity of items)
        uniformity: log of the mean of e^{−2|x − y|²} over pairs of different rows

    A positive pulls its user's vector, and all vectors of a batch push each other apart, so no
    negatives are needed: scores and `neg` have no effect. Uniformity is that of the users of the
    batch and of the first positive of each. By default it is trained as in its paper, on batches of
    interactions. The result is 0 if there is no positive. `Loss` describes the other inputs.

    Args:
        user_vectors: The users of the batch, `[B, d]`; training provides them.
        item_vectors: Their positives, `[B, P, d]`; training provides them.
        gamma: Weight γ of the uniformity, at least 0.

    Examples:
        >>> import torch
        >>> from itemfold.losses import direct_au
        >>> scores, x = torch.zeros(2, 1), torch.eye(2)  # |x − y|² = 2
        >>> round(float(direct_au(scores, scores, user_vectors=x, item_vectors=x[:, None])), 4)
        -4.0
    """
    mask = torch.ones_like(pos, dtype=torch.bool) if pos_mask is None else pos_mask
    real = mask.any(-1)  # [B]
    users = normalize(torch.where(real[:, None], user_vectors, 0.0), dim=-1)
    items = normalize(torch.where(mask[:, :, None], item_vectors, 0.0), dim=-1)
    apart = (users[:, None, :] - items).square().sum(-1)  # [B, P]
    alignment = mean_over_users(apart, mask)
    first = mask.to(torch.uint8).argmax(-1) if mask.shape[-1] else None
    if first is None:
        return alignment
    chosen = items[torch.arange(len(items), device=items.device), first]  # [B, d]
    return alignment + gamma / 2 * (uniformity(users, real) + uniformity(chosen, real))


def uniformity(x: Tensor, real: Tensor) -> Tensor:
    """Log of the mean of e^{−2|x − y|²} over pairs of different real rows, 0 without a pair."""
    squared = (2 - 2 * (x @ x.T)).clamp(min=0)  # of unit vectors, [B, B]
    pairs = real[:, None] & real[None, :]
    pairs = pairs & ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    lowest = torch.where(pairs, -2 * squared, -1e30)
    total = lowest.reshape(1, -1).logsumexp(-1)[0] if len(x) else x.sum()
    return torch.where(pairs.any(), total - pairs.sum().to(x.dtype).clamp(min=1).log(), 0.0)
