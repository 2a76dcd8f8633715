"""One unseen user: from a history of 50 items to the 20 best of the catalogue.

One thread by default: a server handles one user per core.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from common import Verdicts, begin, parser

import numpy as np
import torch
from torch import Tensor

from itemfold.data.splitting.split import Split
from itemfold.graph.graph import Graph
from itemfold.models.base import Model
from itemfold.models.hybrid import Hybrid
from itemfold.models.lightgcn import LightGCN
from itemfold.models.rlae import KEPT
from itemfold.serving.recommender import Recommender
from itemfold.settings.resolve import Request, resolve
from itemfold.training.fitted import FittedModel
from itemfold.training.run import Run

HISTORY, TOP = 50, 20


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    split = begin(options)
    run = untrained(split)
    recommender = Recommender.from_run(run)
    calls = 50 if options.quick else 1000
    spent = []
    for turn, history in enumerate(histories(split, calls + 20)):
        start = time.perf_counter()
        found = recommender.recommend(history=history, k=TOP)
        if turn >= 20:  # after warming up
            spent.append(time.perf_counter() - start)
        assert len(found) == TOP
    vectors, query = run.model.item_vectors, torch.randn(64)
    floor = []
    for _ in range(100):
        start = time.perf_counter()
        torch.topk(vectors @ query, TOP)
        floor.append(time.perf_counter() - start)
    p50, p99 = (1e3 * float(np.percentile(spent, q)) for q in (50, 99))
    print(f"{calls} calls, one at a time: median {p50:.2f} ms, 99th percentile {p99:.2f} ms")
    print(f"a matrix-vector product and a partial sort alone: {1e3 * np.median(floor):.2f} ms")
    Verdicts().last("fold_in_p99_ms", p99, 5.0)


def histories(split: Split, calls: int) -> Iterator[list[Any]]:
    """Items drawn by popularity, without those drawn before."""
    rng = np.random.default_rng(0)
    popularity = np.bincount(split.train.indices, minlength=split.n_items) + 1.0
    chance = popularity / popularity.sum()
    for _ in range(calls):
        rows = rng.choice(split.n_items, HISTORY, replace=False, p=chance)
        yield split.item_ids.external(rows).tolist()


def untrained(split: Split, model: Model | None = None, seed: int = 0) -> Run:
    """A run with random weights, which cost as much time as trained ones."""
    model = model or LightGCN(64, 3)
    model.setup(split.train, inductive=False, generator=torch.Generator().manual_seed(seed))
    if isinstance(model, Hybrid):
        model.linear.keep(random_weights(split, seed))
    assert isinstance(model, Hybrid | LightGCN)
    model.cache_embeddings(Graph.from_csr(split.train))
    settings = resolve(Request({"model": model.fresh()})).of_split(split)
    return Run.of(FittedModel(model, settings, split.train, refit=False, seconds=0.0), split)


def random_weights(split: Split, seed: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """As many weights of each item as a linear model stores, from items drawn by popularity.

    That is at least as much work as with trained weights: histories have popular items, too.
    """
    rng = np.random.default_rng(seed)
    popularity = np.bincount(split.train.indices, minlength=split.n_items) + 1.0
    chance = popularity / popularity.sum()
    shape = (split.n_items, min(KEPT, split.n_items))
    sources = rng.choice(split.n_items, shape, p=chance)
    weights = rng.normal(size=shape).astype(np.float32)
    yield 0, torch.from_numpy(sources), torch.from_numpy(weights)


if __name__ == "__main__":
    main()
