"""The default model within a budget: seconds, test NDCG@20, size of the run folder, and serving.

Training is what `itemfold train DATA --budget …` does, with linear part, choice of settings and
refit. Serving compares the time for one unseen user with that of the hybrid's network alone; both
take turns, one thread each.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from common import Verdicts, hardware, interleaved, parser

import numpy as np
import torch
from fold_in import histories

from itemfold.data.datasets import load
from itemfold.data.splitting.splitters import split_interactions
from itemfold.models.hybrid import Hybrid
from itemfold.serving.recommender import Recommender
from itemfold.training.fit import train
from itemfold.training.run import Run

GOAL = 0.063  # NDCG@20 on yelp2018
SECONDS = {"cpu": 1800.0, "cuda": 60.0}
MEGABYTES = 150


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument("--budget", type=float, help="seconds (default: 30 min, GPU 60 s)")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{hardware(options.threads, options.device != 'cpu')}; load {os.getloadavg()[0]:.1f}")
    budget = options.budget or (20.0 if options.quick else SECONDS[options.device])
    split = split_interactions(load(options.data, data_root=options.data_root))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = train(split, out=folder, device=options.device, budget=budget, progress=True)
        spent = time.perf_counter() - start
        sizes = {p.name: p.stat().st_size for p in Path(folder).iterdir() if p.name != "state.pt"}
        run = Run.load(folder)
    assert isinstance(run.model, Hybrid)
    test, size = run.metrics["test"]["ndcg@20"], sum(sizes.values()) / 1e6
    print(f"{spent:.0f} s for NDCG@20 {test:.4f} on test, {run.metrics['best_epoch']} epochs")
    for name, part in run.metrics["parts"].items():
        print(f"  {name} alone: {part['ndcg@20']:.4f}")
    verdicts = Verdicts()
    if run.model.gnn is not None:  # validation may choose a sum without it
        hybrid, network = serving(run, split, 20 if options.quick else 300)
        print(f"one unseen user: hybrid {1e3 * hybrid:.2f} ms, network {1e3 * network:.2f} ms")
        verdicts.also("hybrid_over_network", hybrid / network, 2.0)
    verdicts.also("seconds", spent, SECONDS[options.device])
    verdicts.also("run_folder_mb", size, MEGABYTES)
    verdicts.last("ndcg", test, GOAL, at_least=True)


def serving(run: Run, split: object, calls: int) -> tuple[float, float]:
    """Median seconds for one unseen user: the hybrid, and its network as a model of its own."""
    torch.set_num_threads(1)
    assert isinstance(run.model, Hybrid)
    alone = Run(**{**vars(run), "model": run.model.gnn})
    sides = {"hybrid": Recommender(run), "network": Recommender(alone)}
    asked = list(histories(split, calls))  # type: ignore[arg-type]
    turn = {name: iter(asked * 3) for name in sides}
    spent = interleaved(
        {
            name: lambda name=name: sides[name].recommend(history=next(turn[name]), k=20)
            for name in sides
        },
        rounds=calls,
        warm_up=5,
    )
    return float(np.float64(spent["hybrid"])), float(np.float64(spent["network"]))


if __name__ == "__main__":
    main()
