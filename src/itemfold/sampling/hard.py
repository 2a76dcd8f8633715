"""Hard negatives: the highest-scoring of a few candidates under the current model.

Both samplers draw M uniform candidates for each negative and choose by the vectors of the step. No
gradient flows through the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.ops.columns import sum_over_ranks, sum_own_rows
from itemfold.ops.pair_scores import pair_scores, take_rows
from itemfold.sampling.base import Batch, Encoded, ScoredLists, score_drawn
from itemfold.sampling.uniform import Uniform
from itemfold.validation import positive_integers


@dataclass
class Candidates(Uniform):
    """Uniform draws as candidates; a subclass chooses among them by the vectors of the step."""

    candidates: int = 1

    def __post_init__(self) -> None:
        positive_integers(candidates=self.candidates)


@dataclass
class Dynamic(Candidates):
    """Dynamic negative sampling: the highest-scoring of M candidates (Zhang et al., SIGIR 2013).

    Args:
        candidates: Candidates per negative, M.
    """

    by_columns = True
    candidates: int = 16

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """``argmax_j u·e_j`` of M candidates for each of ``n`` negatives per user."""
        user_vectors = encoded.users_of(batch)  # [B, d]
        candidates = self(batch.users, n * self.candidates, generator)  # [B, n·M]
        drawn = hardest(user_vectors, encoded.items, candidates, n)
        return score_drawn(user_vectors, encoded.items, batch, drawn)


@dataclass
class MixGCF(Candidates):
    """Hop mixing: synthetic negatives near a positive (Huang et al., "MixGCF", KDD 2021).

    At each hop l, with e₊ a positive of the list and α⁽ˡ⁾ ~ U(0, 1):

        e′_j⁽ˡ⁾ = α⁽ˡ⁾·e₊⁽ˡ⁾ + (1 − α⁽ˡ⁾)·e_j⁽ˡ⁾        j over M candidates
        e₋⁽ˡ⁾ = e′_x⁽ˡ⁾,  x = argmax_j e_u·e′_j⁽ˡ⁾        e₋ = pool(e₋⁰ … e₋ᴸ)

    All candidates of a hop share its α and its positive, so the hardest mixture is the mixture with
    the hardest candidate: candidates are chosen by score, and only the chosen ones are mixed. Each
    of a list's n negatives has its own candidates, α's and positive (its real positives take
    turns). Memory is O(B·n·M) ids and scores; lists need fewer negatives than with other samplers.

    Args:
        candidates: Candidates per negative, M.
    """

    needs_layers = True
    by_columns = True
    candidates: int = 64

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """Mix at every depth, pool the mixtures, and score them in place of items."""
        assert encoded.pool is not None
        user_vectors = encoded.users_of(batch)  # [B, d]
        hops, drawn = self.mix(encoded.item_layers, user_vectors, batch, n, generator)
        mixed = encoded.pool(hops)  # [B, n, d], synthetic vectors
        neg = sum_own_rows((mixed @ user_vectors.unsqueeze(2)).squeeze(2))  # [B, n]
        pos = sum_own_rows(pair_scores(user_vectors, encoded.items, batch.positives))
        return ScoredLists(pos, neg, drawn, counted=batch.real_rows(drawn))

    def mix(
        self,
        layers: Sequence[Tensor],
        user_vectors: Tensor,
        batch: Batch,
        n: int,
        generator: torch.Generator,
    ) -> tuple[list[Tensor], Tensor]:
        """Mixed vectors of each hop, ``L+1 × [B, n, d]``, and the items mixed at hop 0 ``[B, n]``.

        ``layers`` are the vectors of all items at each hop ``[items, d]``, ``user_vectors`` the
        users' pooled vectors; if pooling concatenates, each hop is scored by its own part of them.
        """
        candidates = self(batch.users, n * self.candidates, generator)  # [B, n·M]
        real = batch.mask.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
        turn = torch.arange(n, device=user_vectors.device) % real
        positives = batch.positives.gather(1, turn)  # [B, n]; real ones come first
        widths = [layer.shape[1] for layer in layers]
        concatenated = len(layers) > 1 and user_vectors.shape[1] == sum(widths)
        if not concatenated and user_vectors.shape[1] != widths[0]:
            raise ItemfoldError(
                "'negatives' cannot be mixgcf: this model's pooled vectors are neither the sum nor "
                "the concatenation of its layers"
            )
        parts = [user_vectors] * len(layers)
        if concatenated:
            parts = list(torch.split(user_vectors, widths, dim=1))
        pairs = zip(parts, layers, strict=True)
        chosen = torch.stack([hardest(*pair, candidates, n) for pair in pairs])  # [L+1, B, n]
        shape, device, dtype = (*chosen.shape, 1), user_vectors.device, user_vectors.dtype
        alpha = torch.rand(shape, generator=generator, device=device, dtype=dtype)
        # All hops as one table: its gradient sorts the gathered rows once, not once per hop.
        table, hop = torch.cat(list(layers)), torch.arange(len(layers), device=user_vectors.device)
        first = len(layers[0]) * hop.view(-1, 1, 1)
        near, far = take_rows(table, first + torch.stack([positives.expand_as(chosen), chosen]))
        mixed = alpha * near + (1 - alpha) * far  # [L+1, B, n, d]
        return list(mixed), chosen[0]


@torch.no_grad()
def hardest(user_vectors: Tensor, items: Tensor, candidates: Tensor, n: int) -> Tensor:
    """The highest-scoring of each group of candidates: ``[B, d], [I, d], [B, n·M] → [B, n]``."""
    scores = sum_over_ranks(pair_scores(user_vectors, items, candidates))
    scores = scores.view(len(user_vectors), n, -1)  # [B, n, M]
    return candidates.view(scores.shape).gather(2, scores.argmax(2, keepdim=True)).squeeze(2)
