"""implicit and LightFM on given matrices; frontier.py runs this in a separate environment.

`choose NAME FOLDER TRIALS THREADS` prints the best settings of a few on the validation part.
`fit NAME FOLDER SETTINGS THREADS` fits to training and validation data and writes the 20 best items
of every test user to `FOLDER/lists.npy`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

K = 20
BATCH = 1000  # users scored at a time
SPACES = {
    "implicit ALS": {
        "factors": [32, 64, 128, 256],
        "alpha": [1.0, 3.0, 10.0, 30.0],
        "regularization": [0.01, 0.1, 1.0, 10.0],
        "iterations": [5, 10, 15, 20],
    },
    "implicit BPR": {
        "factors": [32, 64, 128],
        "learning_rate": [0.01, 0.05, 0.1],
        "regularization": [0.001, 0.01, 0.1],
        "iterations": [50, 100, 200],
    },
    "implicit cosine": {"K": [20, 50, 100, 200, 500]},
    "implicit BM25": {
        "K": [20, 50, 100, 200, 500],
        "K1": [0.2, 0.5, 1.2, 2.0],
        "B": [0.1, 0.5, 0.9],
    },
    "LightFM WARP": {
        "no_components": [32, 64, 128],
        "learning_rate": [0.02, 0.05, 0.1],
        "max_sampled": [10, 30],
        "epochs": [10, 20, 40],
    },
}


def main() -> None:
    task, name, folder, value, threads = sys.argv[1:]
    root, count = Path(folder), int(threads)
    if task == "choose":
        train, target, users = (load(root, part) for part in ("train", "valid", "valid_users"))
        best: tuple[float, dict] = (-1.0, {})
        for settings in draw(SPACES[name], int(value)):
            lists = recommend(name, settings, train, users, count)
            best = max(best, (ndcg(lists, target), settings), key=lambda pair: pair[0])
        print(json.dumps(best[1]))
        return
    lists = recommend(name, json.loads(value), load(root, "whole"), load(root, "test_users"), count)
    np.save(root / "lists.npy", lists)


def load(root: Path, part: str):
    """A matrix, or the users of its rows."""
    if part.endswith("users"):
        return np.load(root / f"{part}.npy")
    return sp.csr_matrix(sp.load_npz(root / f"{part}.npz")).astype(np.float32)


def draw(space: dict, count: int) -> list[dict]:
    """Different settings, drawn with a fixed seed."""
    random, out = np.random.default_rng(0), []
    for _ in range(20 * count):
        one = {name: values[random.integers(len(values))] for name, values in space.items()}
        if one not in out:
            out.append(one)
        if len(out) == count:
            break
    return out


def recommend(name: str, settings: dict, train, users, threads: int) -> np.ndarray:
    """The best items of each user that are not in the training data, [users, K]."""
    if name == "LightFM WARP":
        return warp(dict(settings), train, users, threads)
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from implicit.nearest_neighbours import BM25Recommender, CosineRecommender

    kinds = {
        "implicit ALS": AlternatingLeastSquares,
        "implicit BPR": BayesianPersonalizedRanking,
        "implicit cosine": CosineRecommender,
        "implicit BM25": BM25Recommender,
    }
    seeded = {"random_state": 0, "use_gpu": False} if "factors" in settings else {}
    model = kinds[name](**settings, **seeded, num_threads=threads)
    model.fit(train, show_progress=False)
    return model.recommend(users, train[users], N=K)[0]


def warp(settings: dict, train, users, threads: int) -> np.ndarray:
    """LightFM without features."""
    from lightfm import LightFM

    epochs = settings.pop("epochs")
    model = LightFM(loss="warp", random_state=0, **settings)
    model.fit(train, epochs=epochs, num_threads=threads)
    item_bias, items = model.get_item_representations()
    _, vectors = model.get_user_representations()
    out = []
    for start in range(0, len(users), BATCH):
        some = users[start : start + BATCH]
        scores = vectors[some] @ items.T + item_bias
        scores[train[some].nonzero()] = -np.inf
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        out.append(np.take_along_axis(best, order, 1))
    return np.concatenate(out)


def ndcg(lists: np.ndarray, target) -> float:
    """Mean NDCG@K over users with targets."""
    discount = 1 / np.log2(np.arange(2, K + 2))
    rows = np.repeat(np.arange(len(lists)), lists.shape[1])
    hits = np.asarray(target[rows, lists.ravel()] > 0).reshape(lists.shape)
    n = np.diff(target.indptr)
    ideal = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(n, K)]
    return float(((hits * discount[: lists.shape[1]]).sum(1)[n > 0] / ideal[n > 0]).mean())


if __name__ == "__main__":
    main()
