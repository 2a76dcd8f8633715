"""What choosing in time costs: the default model trained with both kinds of validation parts.

The same interactions, tested on the same later period; all is chosen on the latest quarter of what
came before it, or on a random tenth of each user's interactions. Seconds are those of `train`.
"""

from __future__ import annotations

from functools import partial

from common import Verdicts, hardware, interleaved, parser

import torch

from itemfold.data.datasets import load
from itemfold.data.splitting.time_splits import split_by_time
from itemfold.training.fit import train

SMALL = "synthetic:users=300,items=200,interactions=6000"


def main() -> None:
    """Print the seconds of both and their ratio."""
    options = parser(__doc__, "synthetic:users=8000,items=4000,interactions=200000")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    train(split_by_time(load(SMALL)), epochs=2)  # what is slow once
    data = load(given.data, data_root=given.data_root)
    print(f"{data.name}: {len(data):,} interactions; {hardware(given.threads)}", flush=True)
    splits = {
        "at random": split_by_time(data, valid=0.1, valid_by="random"),
        "in time": split_by_time(data),
    }
    few = {"epochs": 2} if given.quick else {}
    tasks = {name: partial(train, split, **few) for name, split in splits.items()}
    seconds = interleaved(tasks, given.rounds, warm_up=0)
    print(", ".join(f"{name} {spent:.1f} s" for name, spent in seconds.items()))
    Verdicts().last("time_over_random", seconds["in time"] / seconds["at random"], 1.5)


if __name__ == "__main__":
    main()
