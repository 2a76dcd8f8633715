"""Seconds to evaluate many users of few items with all metrics, for models that train at once.

Every item of such data has thousands of users, the worst case of `diversity` for models without
item vectors, which compares items by their users.
"""

from __future__ import annotations

import time

from common import Verdicts, begin, parser

from itemfold.evaluation.evaluate import evaluate
from itemfold.models import MODELS
from itemfold.training.fit import train

DATA = "synthetic:users=25000,items=100,interactions=600000"
MODEL_NAMES = ("ease", "rlae", "popularity")
BOUND = 5.0  # seconds on two cores


def main() -> None:
    options = parser(__doc__, DATA).parse_args()
    split = begin(options)
    worst = 0.0
    for name in MODEL_NAMES:
        run = train(split, MODELS[name]())
        start = time.perf_counter()
        found = evaluate(run, split)
        seconds = time.perf_counter() - start
        worst = max(worst, seconds)
        trained = run.metrics["seconds"]["train"]
        print(
            f"{name}: {trained:.2f} s of training, {seconds:.2f} s for {len(found.metrics)} metrics"
        )
    Verdicts().last("all_metrics_seconds", worst, BOUND)


if __name__ == "__main__":
    main()
