"""Iterations of implicit's ALS and BPR, timed; peers.py runs this in a separate environment."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking

ITERATIONS = 3


def main() -> None:
    train = sp.csr_matrix(sp.load_npz(Path(sys.argv[1]) / "train.npz"))
    settings = {"factors": 64, "num_threads": int(sys.argv[2]), "random_state": 0}
    spent = {}
    for name, model in (
        ("implicit ALS", AlternatingLeastSquares(iterations=ITERATIONS, use_gpu=False, **settings)),
        ("implicit BPR", BayesianPersonalizedRanking(iterations=ITERATIONS, use_gpu=False,
                                                     **settings)),
    ):  # fmt: skip
        start = time.perf_counter()
        model.fit(train, show_progress=False)
        spent[name] = (time.perf_counter() - start) / ITERATIONS
    print(json.dumps(spent))


if __name__ == "__main__":
    main()
