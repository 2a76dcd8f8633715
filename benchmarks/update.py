"""An update against training anew after 5 % new data: test NDCG@20 and seconds.

Three runs of the default model for each seed: one without the new data, the same after
`itemrec update`, and one trained anew on everything, settings chosen again as `itemrec train` does.
Also printed: training again with the settings and epochs of the first run, as `--final` does.

Late data is the latest in time (train on the first 90 %, update with the next 5 %, test on the last
5 %), or, for data without times or with a test part of its own, a random share of the training
interactions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemrec.data.csr import take_columns
from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.joining import as_interactions
from itemrec.data.split import HeldOut, Split
from itemrec.data.splitters import split_interactions
from itemrec.data.time_splits import split_rolling
from itemrec.evaluation.evaluate import evaluate
from itemrec.experiments.build import make_plan
from itemrec.experiments.config import resolve
from itemrec.models import MODELS
from itemrec.training.loop import run_plan, train
from itemrec.training.run import Run
from itemrec.training.update import update

METRIC = "ndcg@20"
QUALITY, SECONDS = 0.99, 0.15  # least share of the NDCG, largest share of the seconds
TEST = 0.2  # share of random test interactions, if the data has no test part


def main() -> None:
    arguments = parser(__doc__, "ml-latest-small")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument("--seeds", type=int, default=1, help="of splits and training")
    arguments.add_argument("--share", type=float, default=0.05, help="share of new interactions")
    arguments.add_argument("--start", type=float, help="share before them (default: 1 - 2 share)")
    arguments.add_argument("--random", action="store_true", help="late at random, not by time")
    arguments.add_argument("--model", default="hybrid", help="a model by name")
    arguments.add_argument("--epochs", type=int, help="of the update (default: its own)")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    data = load(options.data, data_root=options.data_root)
    if options.quick:
        options.seeds = 1
    print(f"{data}; {hardware(options.threads, options.device != 'cpu')}")
    rows = [compare(data, seed, options) for seed in range(options.seeds)]
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    stale, anew = mean["stale"], mean["anew"]
    print(
        f"mean of {len(rows)} seeds: {METRIC} {stale:.4f} before, {mean['updated']:.4f} updated, "
        f"{anew:.4f} anew; {mean['update_seconds']:.1f} s against {mean['anew_seconds']:.1f} s "
        f"({mean['again_seconds']:.1f} s with known settings)"
    )
    name = data.name.replace("-", "_")
    verdicts = Verdicts()
    seconds = mean["update_seconds"] / mean["anew_seconds"]
    verdicts.also(f"{name}_update_seconds_share", seconds, SECONDS)
    ratio = mean["updated"] / anew
    verdicts.last(f"{name}_update_ndcg_share", ratio, QUALITY, at_least=True)


def compare(data: Interactions, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """One seed: quality and seconds of the three runs."""
    before, after = late_data(data, seed, options)
    whole = after.refit()
    new = as_interactions(whole.train, whole.user_ids, whole.item_ids, "new")
    settings: dict[str, Any] = {"device": options.device, "seed": seed, "progress": True}
    if options.quick:
        settings |= {"epochs": 4, "eval_every": 2, "patience": 2}

    def model() -> Any:
        return MODELS[options.model]()

    old, _ = timed(lambda: train(before, model(), **settings))
    fresh, spent = timed(
        lambda: update(old, new, device=options.device, epochs=options.epochs, progress=True)
    )
    anew, total = timed(lambda: train(after, model(), **settings))
    again, once = timed(lambda: trained_again(old, whole))
    share = fresh.metrics["update"]["new_interactions"] / old.train.nnz
    found = {
        "stale": quality(old, whole),
        "updated": quality(fresh, whole),
        "anew": quality(anew, whole),
        "again": quality(again, whole),
        "update_seconds": spent,
        "anew_seconds": total,
        "again_seconds": once,
    }
    facts = fresh.metrics["update"]
    print(
        f"seed {seed}: {share:.1%} new interactions, {facts['new_users']} new users, "
        f"{facts['new_items']} new items; {facts['epochs']} epochs after "
        f"{old.metrics['best_epoch']}; linear part: {facts['linear'] or 'none'}"
    )
    print("  " + ", ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    return found


def timed(task: Callable[[], Run]) -> tuple[Run, float]:
    """A run and the seconds that it took."""
    start = time.perf_counter()
    run = task()
    return run, time.perf_counter() - start


def late_data(data: Interactions, seed: int, options: argparse.Namespace) -> tuple[Split, Split]:
    """The splits before and after the new data; the test part of the second is used."""
    if data.times is not None and data.held_out is None and not options.random:
        start = options.start or 1 - 2 * options.share
        count = round((1 - start) / options.share)
        before, after, *_ = split_rolling(data, count, start=start, seed=seed)
        return before, after
    rng = np.random.default_rng(seed)
    if data.held_out is None:
        data = replace(data, held_out=rng.random(len(data)) < TEST)
    assert data.held_out is not None
    late = ~data.held_out & (rng.random(len(data)) < options.share)
    return split_interactions(data.where(~late), seed=seed), split_interactions(data, seed=seed)


def trained_again(old: Run, whole: Split) -> Run:
    """All data with the settings of the first run and its number of epochs."""
    config = {name: dict(section) for name, section in old.config.items()}
    config["data"] = {"data": "none"}
    config["train"] |= {"epochs": max(old.metrics["best_epoch"], 1)}
    if "linear_items" in config["model"]:
        config["model"]["linear_items"] = whole.n_items
    config.pop("split")
    nothing = HeldOut(whole.train[:0], whole.train[:0], np.empty(0, np.int64), np.empty(0))
    plan = make_plan(resolve(config), replace(whole, test=nothing))
    return run_plan(plan, progress=True)


def quality(run: Run, split: Split) -> float:
    """NDCG@20 on the test users of a split whose rows and columns have another order."""
    held = split.test
    rows = run.user_ids.index(held.ids)
    items = run.item_ids.index(split.item_ids.ids)
    known = np.flatnonzero(items >= 0)
    parts = []
    for matrix in (held.history, held.target):
        coo = take_columns(matrix, known).tocoo()
        place = coo.row, items[known][coo.col]
        parts.append(type(matrix)((coo.data, place), shape=(len(held), len(run.item_ids))))
    moved = HeldOut(parts[0], parts[1], rows, held.ids)
    same = replace(split, train=run.train, test=moved, user_ids=run.user_ids, valid=None)
    same = replace(same, item_ids=run.item_ids, titles=None, genres=None)
    return evaluate(run.model, same, metrics=[METRIC]).metrics[METRIC]


if __name__ == "__main__":
    main()
