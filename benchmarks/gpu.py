"""On one GPU: seconds per epoch, seconds of training to a test NDCG@20 of .054, all negatives.

The test users only serve as a stop-watch here: nothing is selected on them.
"""

from __future__ import annotations

import argparse
import sys
import time

from common import Training, Verdicts, begin, hardware, parser

import numpy as np
import torch

from itemfold.data.splitting.split import Split
from itemfold.evaluation.evaluator import Evaluator
from itemfold.losses import item_ndcg
from itemfold.sampling.full_catalogue import All
from itemfold.settings.schema import TrainConfig

GOAL = 0.054  # test NDCG@20
EVERY, MOST = 10, 1500  # epochs between evaluations, and in total
LOSS = item_ndcg(tau=1.5)
CONFIG = TrainConfig(lr=0.01, l2=1e-4, positives=5, n_negatives=200, ema_decay=0.99)


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--full-catalogue", action="store_true", help="all items as negatives")
    arguments.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        print("gpu.py needs a CUDA device, and torch sees none here", file=sys.stderr)
        raise SystemExit(2)
    split = begin(options)
    print(hardware(gpu=True))
    if options.full_catalogue:
        full_catalogue(split, options.device, 2 if options.quick else 30)
    else:
        sampled(split, options.device, options.quick)


def sampled(split: Split, device: str, quick: bool) -> None:
    training = Training(split.train, LOSS, CONFIG, device=device)
    evaluator = Evaluator(split.test, device)
    spent: list[float] = []
    reached, value = None, 0.0
    most = 4 if quick else MOST
    while len(spent) < most and (reached is None or len(spent) < 30):
        start = time.perf_counter()
        training.epoch()  # fetching the mean loss waits for the device
        spent.append(time.perf_counter() - start)
        if reached is None and len(spent) % (2 if quick else EVERY) == 0:
            with training.average.applied():
                training.model.cache_embeddings(training.graph)
                value = evaluator.metrics(training.model, "ndcg@20")["ndcg@20"]
            reached = sum(spent) if value > GOAL else None
    seconds = float(np.median(spent))
    what = "first passes" if reached else "has not passed"
    print(f"{seconds:.4f} s per epoch, median of {len(spent)}")
    print(f"test NDCG@20 {what} {GOAL}: {value:.4f} after {sum(spent):.1f} s of training")
    verdicts = Verdicts()
    verdicts.also("gpu_seconds_to_goal", float("inf") if reached is None else reached, 20.0)
    verdicts.last("gpu_epoch_seconds", seconds, 0.03)


def full_catalogue(split: Split, device: str, epochs: int) -> None:
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    training = Training(split.train, LOSS, CONFIG, negatives=All(), device=device)
    spent = []
    for _ in range(epochs + 2):
        start = time.perf_counter()
        training.epoch()
        spent.append(time.perf_counter() - start)
    memory = torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0
    seconds = float(np.median(spent[2:]))
    print(f"{seconds:.4f} s per epoch with all {split.n_items} items as negatives, {memory:.2f} GB")
    verdicts = Verdicts()
    verdicts.also("gpu_full_memory_gb", memory, 4.0)
    verdicts.last("gpu_full_epoch_seconds", seconds, 0.15)


if __name__ == "__main__":
    main()
