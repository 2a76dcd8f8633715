"""Negatives chosen by what the model thinks at the moment: the hardest of a few candidates.

Both samplers draw M uniform candidates for each negative and need the step's vectors to choose
between them, so the trainer asks `hardest` or `mix` instead of calling them. No gradient goes
through the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.batches import Batch
from itemrec.draws import Draws, prepared
from itemrec.errors import ItemrecError
from itemrec.scoring import pair_scores, take_rows


@dataclass
class Candidates:
    """Uniform draws of what is not a training positive, to choose from."""

    candidates: int

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise ItemrecError(f"'candidates' must be a positive integer, got {self.candidates}")

    def prepare(
        self, train: sp.csr_array, device: Any = "cpu", generator: torch.Generator | None = None
    ) -> None:
        """Cut every user's positives out of the range of items."""
        self._draws = Draws(train, device)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Candidates ``[B, n]``: what is left of the sampler without a model."""
        draws: Draws = prepared(self, "_draws")
        return draws(users, n, generator)


@dataclass
class Dynamic(Candidates):
    """Dynamic negative sampling (Zhang et al., SIGIR 2013): the highest-scoring of M candidates."""

    candidates: int = 16

    def hardest(
        self, own: Tensor, items: Tensor, users: Tensor, n: int, generator: torch.Generator
    ) -> Tensor:
        """``argmax_j own·items_j`` of M candidates for each negative; ids ``[B, n]``."""
        candidates = self(users, n * self.candidates, generator)  # [B, n·M]
        return best(own, items, candidates, n)


@dataclass
class MixGCF(Candidates):
    """Hop mixing (Huang et al., "MixGCF", KDD 2021): synthetic negatives near a positive.

    At each hop l, with e₊ a positive of the list and α⁽ˡ⁾ ~ U(0, 1)::

        e′_j⁽ˡ⁾ = α⁽ˡ⁾·e₊⁽ˡ⁾ + (1 − α⁽ˡ⁾)·e_j⁽ˡ⁾        j over M candidates
        e₋⁽ˡ⁾ = e′_x⁽ˡ⁾,  x = argmax_j e_u·e′_j⁽ˡ⁾        e₋ = pool(e₋⁰ … e₋ᴸ)

    All candidates of a hop share its α and its positive, so the hardest mixture is the mixture with
    the hardest candidate: scores decide, and only the winners are ever mixed. Each of a list's n
    negatives has its own candidates, α's and positive (its real positives take turns). Memory is
    O(B·n·M) ids and scores; for lists, fewer negatives than with other samplers will do.
    """

    candidates: int = 64

    def mix(
        self, layers: list[Tensor], own: Tensor, batch: Batch, n: int, generator: torch.Generator
    ) -> tuple[list[Tensor], Tensor]:
        """Mixed vectors of each hop, ``L+1 × [B, n, d]``, and the items mixed at hop 0 ``[B, n]``.

        ``layers`` are all items' vectors a hop ``[items, d]``, ``own`` the users' pooled vectors;
        where pooling concatenates, each hop is judged by its own part of them.
        """
        candidates = self(batch.users, n * self.candidates, generator)  # [B, n·M]
        turn = torch.arange(n, device=own.device) % batch.mask.sum(1, keepdim=True).clamp(min=1)
        positives = batch.positives.gather(1, turn)  # [B, n]; real ones stand first
        widths = [layer.shape[1] for layer in layers]
        concatenated = len(layers) > 1 and own.shape[1] == sum(widths)
        if not concatenated and own.shape[1] != widths[0]:
            raise ItemrecError(
                "'negatives' cannot be mixgcf for this model: its pooled vectors are neither a sum "
                "of the layers nor all of them side by side"
            )
        judges = torch.split(own, widths, dim=1) if concatenated else [own] * len(layers)
        chosen = torch.stack(
            [best(judge, layer, candidates, n) for layer, judge in zip(layers, judges, strict=True)]
        )  # [L+1, B, n]
        alpha = torch.rand(
            (*chosen.shape, 1), generator=generator, device=own.device, dtype=own.dtype
        )
        # All hops as one table: its gradient sorts the rows that were taken once, not hop by hop.
        table, hop = torch.cat(layers), torch.arange(len(layers), device=own.device)
        first = len(layers[0]) * hop.view(-1, 1, 1)
        near, far = take_rows(table, first + torch.stack([positives.expand_as(chosen), chosen]))
        mixed = alpha * near + (1 - alpha) * far  # [L+1, B, n, d]
        return list(mixed), chosen[0]


@torch.no_grad()
def best(own: Tensor, items: Tensor, candidates: Tensor, n: int) -> Tensor:
    """The highest-scoring of each group of candidates: ``[B, d], [I, d], [B, n·M] → [B, n]``."""
    scores = pair_scores(own, items, candidates).view(len(own), n, -1)  # [B, n, M]
    return candidates.view(scores.shape).gather(2, scores.argmax(2, keepdim=True)).squeeze(2)
