"""An update against training anew after 5 % new data: test NDCG@20 and seconds.

Three runs of the default model for each seed: one without the new data, the same after
`itemfold update`, and one trained anew on everything, with settings chosen again.
Also printed: training again with the settings and epochs of the first run, as `--final` does.

Late data is the latest in time, at several cuts: train on the first 70 %, update with the next 5 %,
test on the next 5 %; then the same from 75 %, and so on. The run that was trained anew at a cut is
the one to be updated at the next. A cut has some fifty test users on small data, so the means are
over the users of all cuts and seeds, with an interval of what chance can explain.
For data without times or with a test part of its own, a random share of the training interactions
is late.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import numpy.typing as npt
import torch

from itemfold.data.csr import take_columns
from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.joining import as_interactions
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.data.splitting.time_splits import split_rolling
from itemfold.evaluation.evaluate import evaluate
from itemfold.models import MODELS
from itemfold.settings.resolve import resolve
from itemfold.training.fit import fit_and_test, train
from itemfold.training.run import Run
from itemfold.training.update import update

METRIC = "ndcg@20"
RUNS = ("before", "updated", "anew", "again")
QUALITY, SECONDS = 0.99, 0.15  # least share of the NDCG, largest share of the seconds
TEST = 0.2  # share of random test interactions, if the data has no test part


def main() -> None:
    arguments = parser(__doc__, "ml-latest-small")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument("--seeds", type=int, default=1, help="of splits and training")
    arguments.add_argument("--share", type=float, default=0.05, help="share of new interactions")
    arguments.add_argument("--cuts", type=int, default=5, help="updates of each seed, by time")
    arguments.add_argument("--random", action="store_true", help="late at random, not by time")
    arguments.add_argument("--model", default="hybrid", help="a model by name")
    arguments.add_argument("--epochs", type=int, help="of the update (default: its own)")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    data = load(options.data, data_root=options.data_root)
    if options.quick:
        options.seeds, options.cuts = 1, 1
    print(f"{data}; {hardware(options.threads, options.device != 'cpu')}")
    rows = [row for seed in range(options.seeds) for row in compare(data, seed, options)]
    of_users = {name: np.concatenate([row.users[name] for row in rows]) for name in RUNS}
    mean = {name: float(values.mean()) for name, values in of_users.items()}
    seconds = {
        name: float(np.mean([row.seconds[name] for row in rows])) for name in rows[0].seconds
    }
    told = ", ".join(f"{mean[name]:.4f} {name}" for name in RUNS)
    print(
        f"mean of {len(of_users['anew'])} test users in {len(rows)} updates: {METRIC} "
        f"{told}; {seconds['updated']:.1f} s against {seconds['anew']:.1f} s "
        f"({seconds['again']:.1f} s with known settings)"
    )
    low, high = share_interval(of_users["updated"], of_users["anew"])
    ratio = mean["updated"] / mean["anew"]
    print(f"updated ÷ anew: {ratio:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    name = data.name.replace("-", "_")
    verdicts = Verdicts()
    verdicts.also(f"{name}_update_seconds_share", seconds["updated"] / seconds["anew"], SECONDS)
    verdicts.last(f"{name}_update_ndcg_share", ratio, QUALITY, at_least=True)


@dataclass(frozen=True)
class Row:
    """One update: NDCG of every test user and seconds, by run."""

    users: dict[str, npt.NDArray[np.float64]]
    seconds: dict[str, float]


def share_interval(
    updated: npt.NDArray[np.float64], anew: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """Bootstrap 95 % interval of a ratio of means, users drawn in pairs."""
    drawn = np.random.default_rng(0).integers(0, len(anew), (2000, len(anew)))
    ratios = updated[drawn].mean(axis=1) / anew[drawn].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def compare(data: Interactions, seed: int, options: argparse.Namespace) -> Iterator[Row]:
    """The updates of one seed; what was trained anew at a cut is updated at the next."""
    settings: dict[str, Any] = {"device": options.device, "seed": seed, "progress": True}
    if options.quick:
        settings |= {"epochs": 4, "eval_every": 2, "patience": 2}

    def trained(split: Split) -> tuple[Run, float]:
        return timed(lambda: train(split, MODELS[options.model](), **settings))

    first, *others = late_data(data, seed, options)
    old, _ = trained(first)
    for number, split in enumerate(others, 1):
        anew, total = trained(split)
        yield compare_one(old, anew, split.refit(), total, options, f"{seed}, update {number}")
        old = anew


def compare_one(
    old: Run, anew: Run, whole: Split, total: float, options: argparse.Namespace, label: str
) -> Row:
    """One update of a run and its alternatives, on the test users of the split."""
    new = as_interactions(whole.train, whole.user_ids, whole.item_ids, "new")
    fresh, spent = timed(
        lambda: update(old, new, device=options.device, epochs=options.epochs, progress=True)
    )
    again, once = timed(lambda: trained_again(old, whole))
    runs = {"before": old, "updated": fresh, "anew": anew, "again": again}
    found = {name: quality(run, whole) for name, run in runs.items()}
    seconds = {"updated": spent, "anew": total, "again": once}
    facts = fresh.metrics["update"]
    share = facts["new_interactions"] / old.train.nnz
    print(
        f"seed {label}: {share:.1%} new interactions, {facts['new_users']} new users, "
        f"{facts['new_items']} new items; {facts['epochs']} epochs after "
        f"{old.metrics['best_epoch']}; linear part: {facts['linear'] or 'none'}"
    )
    told = [f"{name} {values.mean():.4f}" for name, values in found.items()]
    told += [f"{name} {value:.1f} s" for name, value in seconds.items()]
    print("  " + ", ".join(told), flush=True)
    return Row(found, seconds)


def timed(task: Callable[[], Run]) -> tuple[Run, float]:
    """A run and the seconds that it took."""
    start = time.perf_counter()
    run = task()
    return run, time.perf_counter() - start


def late_data(data: Interactions, seed: int, options: argparse.Namespace) -> list[Split]:
    """Splits that each have more training data than the one before, and a test part."""
    if data.times is not None and data.held_out is None and not options.random:
        windows = options.cuts + 1
        return split_rolling(data, windows, start=1 - windows * options.share, seed=seed)
    rng = np.random.default_rng(seed)
    if data.held_out is None:
        data = replace(data, held_out=rng.random(len(data)) < TEST)
    assert data.held_out is not None
    late = ~data.held_out & (rng.random(len(data)) < options.share)
    return [split_interactions(data.where(~late), seed=seed), split_interactions(data, seed=seed)]


def trained_again(old: Run, whole: Split) -> Run:
    """All data with the settings of the first run and its number of epochs."""
    config = {name: dict(section) for name, section in old.config.items()}
    config["data"] = {"data": "none"}
    config["train"] |= {"epochs": max(old.metrics["best_epoch"], 1)}
    linear = config["model"].get("linear")
    if isinstance(linear, dict) and linear.get("items") is not None:
        config["model"]["linear"] = {**linear, "items": whole.n_items}
    config.pop("split")
    nothing = HeldOut(whole.train[:0], whole.train[:0], np.empty(0, np.int64), np.empty(0))
    return fit_and_test(resolve(config), replace(whole, test=nothing), progress=True)


def quality(run: Run, split: Split) -> npt.NDArray[np.float64]:
    """NDCG@20 of the test users of a split whose rows and columns have another order."""
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
    same = replace(split, train=run.interactions, test=moved, user_ids=run.user_ids, valid=None)
    same = replace(same, item_ids=run.item_ids, titles=None, genres=None)
    return evaluate(run.model, same, metrics=[METRIC]).per_user[METRIC]


if __name__ == "__main__":
    main()
