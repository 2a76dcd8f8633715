"""An ITEM epoch (2,048 users, 5 + 200 items, 3 layers, 64 columns) against a plain torch loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from common import Training, Verdicts, begin, interleaved, parser

import scipy.sparse as sp
import torch
from propagation import normalised, torch_csr
from torch import Tensor

from itemfold.losses import item_ndcg
from itemfold.settings.schema import TrainConfig

PAPER = 12.3  # seconds per epoch on Yelp2018, on the paper's GPU
TAU, POSITIVES, NEGATIVES = 1.5, 5, 200


def main() -> None:
    options = parser(__doc__, "yelp2018").parse_args()
    split = begin(options)
    config = TrainConfig(positives=POSITIVES, n_negatives=NEGATIVES)
    ours = Training(split.train, item_ndcg(tau=TAU), config)
    mine = itertools.cycle(ours.keys())
    theirs = itertools.cycle(ours.keys())
    plain = plain_step(split.train, config.lr)
    steps = len(ours.keys())
    seconds = interleaved(
        {"ours": lambda: ours.step(next(mine)), "plain": lambda: plain(next(theirs))},
        rounds=2 if options.quick else 12,
        warm_up=1 if options.quick else 2,
    )
    epoch = {name: spent * steps for name, spent in seconds.items()}
    for name, spent in epoch.items():
        print(f"{name:>6} {spent:7.2f} s per epoch: median step × {steps} steps")
    print(f" paper {PAPER:7.2f} s per epoch on Yelp2018 on a Quadro RTX 5000")
    verdicts = Verdicts()
    verdicts.also("epoch_seconds", epoch["ours"], PAPER)
    verdicts.last("epoch_speedup", epoch["plain"] / epoch["ours"], 3.0, at_least=True)


def plain_step(train: sp.csr_array, lr: float) -> Callable[[Tensor], Tensor]:
    """A straightforward version: torch CSR and autograd, gathered rows, equation 2, Adam."""
    n_users, n_items = train.shape
    adjacency = torch_csr(normalised(train))
    generator = torch.Generator().manual_seed(0)
    table = (torch.randn(n_users + n_items, 64, generator=generator) * 0.1).requires_grad_()
    optimizer = torch.optim.Adam([table], lr=lr)
    indptr, indices = torch.from_numpy(train.indptr), torch.from_numpy(train.indices).long()

    def step(keys: Tensor) -> Tensor:
        users = keys[keys >= 0]
        start, end = indptr[users], indptr[users + 1]
        draw = torch.rand(len(users), POSITIVES, generator=generator)
        chosen = (start.unsqueeze(1) + draw * (end - start).unsqueeze(1)).long()
        positives = indices[torch.minimum(chosen, end.unsqueeze(1).long() - 1)]
        # rare false negatives are allowed: that is cheaper than what the package does
        negatives = torch.randint(n_items, (len(users), NEGATIVES), generator=generator)
        optimizer.zero_grad()
        layers = [table]
        for _ in range(3):
            layers.append(adjacency @ layers[-1])
        final = torch.stack(layers).mean(0)
        listed = final[n_users:][torch.cat([positives, negatives], 1)]  # [B, 205, d]
        scores = (final[:n_users][users].unsqueeze(1) * listed).sum(2)
        value = plain_ndcg(scores)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def plain_ndcg(scores: Tensor) -> Tensor:
    """1 − Σ_p 1/log₂(1 + rank(p)) / iDCG, rank(p) = ½ + Σ_j σ((s_j − s_p)/τ) over the list."""
    above = (scores.unsqueeze(1) - scores[:, :POSITIVES].unsqueeze(2)) / TAU  # [B, P, L]
    rank = 0.5 + torch.sigmoid(above).sum(2)
    ideal = sum(1 / torch.log2(torch.tensor(2.0 + i)) for i in range(POSITIVES))
    return (1 - (1 / torch.log2(1 + rank)).sum(1) / ideal).mean()


if __name__ == "__main__":
    main()
