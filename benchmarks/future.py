"""The default model, chosen in time and chosen at random, judged on the future.

The data is split by time: training, a validation period, a test period. The default model is
trained twice: everything chosen on the validation period, and everything chosen on a random tenth
of each user's interactions before the test period. Both are tested on the same future, for all, for
known and for new users, beside every part of the model and popularity with every half-life.
"""

from __future__ import annotations

import time

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemfold.data.array_types import Floats
from itemfold.data.datasets import load
from itemfold.data.split import Split
from itemfold.data.time_splits import split_by_time
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.significance import paired_test
from itemfold.models.base import Model
from itemfold.models.popularity import Popularity
from itemfold.training.fit import train
from itemfold.training.run import Run
from itemfold.training.strategies.parts import parts_alone
from itemfold.training.strategies.recency import OF_POPULARITY, fading, half_lives

METRIC = "ndcg@20"


def main() -> None:
    """Print a table and the verdict: the chosen model against the best of its parts."""
    options = parser(__doc__, data="synthetic")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    print(hardware(given.threads))
    data = load(given.data, data_root=given.data_root)
    in_time = split_by_time(data, seed=given.seed)
    at_random = split_by_time(data, seed=given.seed, valid=0.1, valid_by="random")
    few = {"epochs": 2} if given.quick else {}
    runs: dict[str, Run] = {}
    for name, split in (("chosen in time", in_time), ("chosen at random", at_random)):
        started = time.perf_counter()
        runs[name] = train(split, seed=given.seed, **few)
        print(f"{name}: {time.perf_counter() - started:.1f} s, {runs[name].metrics['chosen']}")
    future = in_time.refit()
    is_new = future.is_new("test")
    values = {name: run.per_user[METRIC] for name, run in runs.items()}
    chosen = runs["chosen in time"].model
    values |= {name: value(part, future) for name, part in parts_alone(chosen, future).items()}
    for half_life in half_lives(in_time, None, OF_POPULARITY):
        values[f"popularity, half-life {half_life}"] = value(popularity(future, half_life), future)
    print(f"\n{'NDCG@20':32} {'all':>7} {'known':>7} {'new':>7}   p against chosen in time")
    own = values["chosen in time"]
    for name, found in values.items():
        groups = (found, found[~is_new], found[is_new])
        means = " ".join(f"{group.mean():7.4f}" if len(group) else "      –" for group in groups)
        p = "" if found is own else f"{paired_test(own, found).p_t:.3g}"
        print(f"{name:32} {means}   {p}")
    others = [found.mean() for name, found in values.items() if not name.startswith("chosen")]
    share = float(own.mean() / max(np.max(others), 1e-12))
    Verdicts().last("future_over_best_part", share, 1.0, at_least=True)


def value(model: Model, split: Split) -> Floats:
    """The metric of every test user."""
    return evaluate(model, split, metrics=[METRIC]).per_user[METRIC]


def popularity(split: Split, half_life: str) -> Popularity:
    """Popularity that fades."""
    model = Popularity()
    model.n_users, model.n_items = split.train.shape
    model.solve(fading(split, half_life).train)
    return model


if __name__ == "__main__":
    main()
