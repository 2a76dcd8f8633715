"""Closed forms on a CPU: settings, inverse, Gram matrix and scores against numpy and scipy.

`trials`: the settings of RLAE compared as `itemfold train` does, against all validation users and
the 4,096 most popular items with dense products, and whether both choose alike. `gram`, `scores`:
the Gram matrix and the scores of stored weights against scipy's products. `ease`: a fit against
numpy's inverse. `sparse`: NDCG@20 of the sparse form on the test part by seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from common import Verdicts, begin, interleaved, parser

import numpy as np
import scipy.sparse as sp
import torch

from itemfold.data.datasets import load
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.evaluator import Evaluator, with_targets
from itemfold.evaluation.metrics import parse_metric
from itemfold.models import EASE, RLAE
from itemfold.models.base import Model
from itemfold.models.item_item import gram_matrix
from itemfold.models.ridge_problem import RidgeProblem
from itemfold.models.rlae import TRIED, TYPICAL
from itemfold.ops.segment import dense_rows
from itemfold.settings.schema import TrainConfig
from itemfold.training.fitted import Context
from itemfold.training.strategies.closed_form import choose_settings

PARTS = ("gram", "scores", "ease", "trials", "sparse")
NDCG = parse_metric("ndcg@20")
L2 = 200.0
PLAIN_ITEMS = 4096
NEIGHBOURS = (50, 100, 200)


def main() -> None:
    out = parser(__doc__, "ml-1m")
    out.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS[:-1]))
    out.add_argument("--neighbours", nargs="+", type=int, default=NEIGHBOURS)
    options = out.parse_args()
    split, verdicts = begin(options), Verdicts()
    rounds = 1 if options.quick else 3
    if "sparse" in options.parts:
        for k in options.neighbours:
            _sparse(split, k)
    if "gram" in options.parts:
        tasks = {"ours": lambda: gram_matrix(split.train), "scipy": lambda: _plain_gram(split)}
        verdicts.also("gram_speedup", _ratio("Gram matrix", tasks, rounds), 1, at_least=True)
    if "scores" in options.parts:
        _scores(split, rounds, verdicts)
    if "ease" in options.parts:
        _ease(split, rounds, verdicts)
    if "trials" in options.parts:
        held_out = split_interactions(load(options.data, data_root=options.data_root))
        _trials(held_out, verdicts)


def _ratio(text: str, tasks: dict[str, Callable[[], object]], rounds: int) -> float:
    """How many times as long the second task takes as the first."""
    first, second = interleaved(tasks, rounds).items()
    print(f"{text}: {first[0]} {first[1]:.3f} s, {second[0]} {second[1]:.3f} s")
    return second[1] / first[1]


def _plain_gram(split: Split) -> np.ndarray:
    train = split.train.astype(np.float32)
    return sp.csr_array(train.T @ train).toarray()


def _fitted(model: EASE | RLAE, train: sp.csr_array) -> EASE | RLAE:
    model.setup(train, inductive=False, generator=torch.Generator().manual_seed(0))
    model.solve(train)
    return model


def _scores(split: Split, rounds: int, verdicts: Verdicts) -> None:
    model = _fitted(RLAE(**TYPICAL), split.train)
    history, users = split.test.history[:2048], split.test.users[:2048]
    matrix = model._matrix()

    def plain() -> np.ndarray:
        return (history.astype(np.float32) @ matrix).toarray()

    gap = np.abs(model.scores(history, users).numpy() - plain()).max()
    print(f"scores: largest difference from scipy {gap:.1e}")
    tasks = {"ours": lambda: model.scores(history, users), "scipy": plain}
    verdicts.also("scores_speedup", _ratio("scores", tasks, rounds), 1, at_least=True)


def _ease(split: Split, rounds: int, verdicts: Verdicts) -> None:
    def plain() -> np.ndarray:
        gram = _plain_gram(split)
        gram[np.diag_indices_from(gram)] += L2
        inverse = np.linalg.inv(gram)
        weights = inverse / -np.diag(inverse)
        np.fill_diagonal(weights, 0)
        return weights

    def ours() -> np.ndarray:
        model = _fitted(EASE(l2=L2), split.train)
        assert isinstance(model, EASE)
        return model.weights.numpy()

    expected = plain()
    gap = np.abs(ours() - expected).max() / np.abs(expected).max()
    print(f"EASE: largest difference from numpy, relative to the largest weight, {gap:.1e}")
    tasks = {"ours": ours, "numpy": plain}
    verdicts.also("ease_speedup", _ratio("EASE", tasks, rounds), 1, at_least=True)


def _trials(split: Split, verdicts: Verdicts) -> None:
    assert split.valid is not None
    start, config = time.perf_counter(), TrainConfig(device="cpu")
    chosen, _ = choose_settings(RLAE(), split, split.valid, config, Context(None, False))
    ours, start = time.perf_counter() - start, time.perf_counter()
    values = _plain_trials(split)
    plain = time.perf_counter() - start
    means = values.mean(1)
    loss = 1 - means[TRIED.index(chosen)] / means.max()
    print(f"{len(TRIED)} settings: ours {ours:.2f} s, all users and more items {plain:.2f} s")
    print(f"chosen {chosen}; best {TRIED[int(means.argmax())]}")
    verdicts.also("trials_loss", float(loss), 0.01)
    verdicts.last("trials_speedup", plain / ours, 2, at_least=True)


def _plain_trials(split: Split) -> np.ndarray:
    """The metric of all validation users for all settings, ``[settings, users]``."""
    held, train = with_targets(split.valid), split.train
    degree = np.bincount(train.indices, minlength=split.n_items)
    items = np.sort(np.argsort(-degree, kind="stable")[:PLAIN_ITEMS])
    part, at = sp.csr_array(train[:, items]), torch.from_numpy(items)
    evaluator = Evaluator(held, "cpu")

    class Plain(Model):
        """Dense rows times dense weights."""

        def scores(self, history: sp.csr_array, users: np.ndarray) -> torch.Tensor:
            seen = dense_rows(history, torch.device("cpu"))
            scores = torch.full_like(seen, -torch.inf)
            return scores.index_copy_(1, at, seen[:, at] @ self.weights)

    values, plain = [], Plain()
    for option in TRIED:
        model = RLAE(**option)
        model.setup(train, inductive=False, generator=torch.Generator())
        problem = RidgeProblem(part, option["user_power"], torch.device("cpu"))
        ridge = model.ridge_of(problem)
        inverse = problem.inverse(ridge, lambda steps, text: steps)
        plain.weights = model._weights(inverse, ridge, part)
        values.append(evaluator.values(plain, [NDCG])[0][NDCG.key])
    return np.array(values)


def _sparse(split: Split, k: int) -> None:
    start = time.perf_counter()
    model = _fitted(RLAE(**TYPICAL, form="sparse", neighbours=k), split.train)
    fitted = time.perf_counter()
    found = evaluate(model, split, metrics=[NDCG.key])
    value = float(np.mean(found.per_user[NDCG.key]))
    print(
        f"{k} neighbours: fitted in {fitted - start:.1f} s, evaluated in "
        f"{time.perf_counter() - fitted:.1f} s, NDCG@20 {value:.4f}"
    )


if __name__ == "__main__":
    main()
