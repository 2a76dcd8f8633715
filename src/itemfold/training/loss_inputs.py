"""Inputs of a loss other than scores and masks, computed for one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.losses.base import extra_inputs
from itemfold.ops.columns import sum_own_rows
from itemfold.ops.pair_scores import pair_scores, take_rows
from itemfold.sampling.base import Batch, Encoded, Sampler, ScoredLists

OWN_ITEMS = 128  # training items per user from which the threshold of `sl_at_k` is estimated
GROUPS = 10  # of users and of items with a similar number of interactions, for `bc`


class LossInputs:
    """Computes additional inputs of a loss; tables of a graph are built at the first batch."""

    graph: Graph | None = None

    def __call__(
        self,
        loss: Callable[..., Tensor],
        graph: Graph,
        encoded: Encoded,
        batch: Batch,
        lists: ScoredLists,
        sampler: Sampler,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """The additional inputs of a loss by name, for the rows of this rank."""
        wanted, out = extra_inputs(loss), {}
        own = ranks.own_rows(len(batch.users))
        if "log_expected" in wanted:
            out["log_expected"] = sampler.log_expected(batch, lists)[own]
        if "own" in wanted:
            out["own"], out["own_mask"] = own_scores(graph, encoded, batch, generator)
        if "popularity_logit" in wanted:
            out["popularity_logit"] = self.popularity_logit(graph, batch)[own]
        if "user_vectors" in wanted:
            if ranks.size() > 1:
                raise ItemfoldError(
                    "'loss' must compare scores to be trained by several processes, which divide "
                    "the columns of the vectors: direct-au needs one process"
                )
            out["user_vectors"] = encoded.users_of(batch)
            out["item_vectors"] = take_rows(encoded.items, batch.positives)
        return {name: out[name] for name in wanted}

    def popularity_logit(self, graph: Graph, batch: Batch) -> Tensor:
        """Log-odds that a user of this activity has an item of this popularity, ``[B, P]``."""
        if self.graph is not graph:
            self.graph, self.tables = graph, popularity_tables(graph)
        of_users, of_items, logits = self.tables
        return logits[of_users[batch.users].unsqueeze(1), of_items[batch.positives]]


@torch.no_grad()
def own_scores(
    graph: Graph, encoded: Encoded, batch: Batch, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Scores of training items of each user, and a mask of real entries, ``[b, OWN_ITEMS]``.

    A longer history is divided into `OWN_ITEMS` parts, and one item is drawn from each.
    """
    start = graph.crow[batch.users].long().unsqueeze(1)  # [B, 1]
    length = graph.crow[batch.users + 1].long().unsqueeze(1) - start
    place = torch.arange(OWN_ITEMS, device=start.device).expand(len(start), -1)
    real = (place < length) & batch.mask.any(1, keepdim=True)
    begin, end = (length * step // OWN_ITEMS for step in (place, place + 1))
    within = torch.rand(place.shape, generator=generator, device=start.device)
    drawn = (begin + (within * (end - begin)).long()).clamp(max=end - 1)
    place = torch.where(length > OWN_ITEMS, drawn, place)
    items = graph.col[torch.where(real, start + place, 0)].long() - graph.n_users
    scores = sum_own_rows(pair_scores(encoded.users_of(batch), encoded.items, items))
    return scores, real[ranks.own_rows(len(batch.users))]


def popularity_tables(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Groups of users and of items, and log P(item group | user group) / P(item group), [G, G].

    Groups are deciles by number of interactions. P(item group) is the probability of a random
    item, so the ratio is the odds of a positive against a random item. For smoothing, each user
    group gets one more interaction, in proportion to P(item group).
    """
    users, items = groups(graph.degree[: graph.n_users]), groups(graph.degree[graph.n_users :])
    edges = len(graph.col) // 2  # the first half goes from users to items
    pair = users[graph.row[:edges]] * GROUPS + items[graph.col[:edges].long() - graph.n_users]
    counts = torch.bincount(pair, minlength=GROUPS * GROUPS).view(GROUPS, GROUPS).double()
    share = torch.bincount(items, minlength=GROUPS).double() / max(len(items), 1)
    given = (counts + share) / (counts.sum(1, keepdim=True) + 1)
    logits = (given / share.clamp(min=1e-12)).log().float()
    return users, items, logits


def groups(degree: Tensor) -> Tensor:
    """Decile of each node by degree, with equal degrees in the same decile, int64 ``[nodes]``."""
    ordered = degree.sort().values
    below = torch.searchsorted(ordered, degree.contiguous())
    return (below * GROUPS // max(len(degree), 1)).clamp(max=GROUPS - 1)
