"""NDCG with no weights, with ratings as weights and with recency; and the effect of dislikes.

All ratings are kept as interactions. For every split a half-life, and EASE's penalty, is chosen on
validation; RLAE and the epochs of the network choose by validation anyway. By time, the splits cut
at five different moments; unseen users are drawn with five seeds. Each row is compared with the
one without weights by a paired t-test over the five splits. For dislikes, a user's ratings of at
most 2 are given as dislikes, and all models are fitted to ratings of at least 3.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Verdicts, parser

import numpy as np
import scipy.sparse as sp
import torch
from scipy.stats import ttest_rel

from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.splitters import split_users
from itemfold.data.splitting.time_splits import split_by_time
from itemfold.evaluation.evaluator import Evaluator
from itemfold.losses import item_log
from itemfold.models import EASE, RLAE, LightGCN, Model
from itemfold.training.fit import train

METRIC = "ndcg@20"
HALF_LIVES = ("1y", "3y", "10y")
WEIGHTINGS: dict[str, dict[str, Any]] = {
    "no weights": {},
    "rating, log": {"weight": "rating"},
    "rating": {"weight": "rating", "weight_transform": "none"},
    **{f"half-life {h}": {"half_life": h} for h in HALF_LIVES},
}
L2 = (100.0, 300.0, 1000.0)
DISLIKES = (0.0, 0.25, 0.5, 1.0, 2.0)
NETWORK = {"n_negatives": 200, "batch": 512, "epochs": 80, "eval_every": 10, "patience": 30}
Fit = Callable[[Split], tuple[float, float]]  # validation and test


def figures(split: Split, model: Model, **settings: Any) -> tuple[float, float]:
    """The metric on validation and test."""
    metrics = train(split, model, device="cpu", **settings).metrics
    return metrics["valid"][METRIC], metrics["test"][METRIC]


MODELS: dict[str, Fit] = {
    "ease": lambda split: max(figures(split, EASE(l2=l2)) for l2 in L2),  # best on validation
    "rlae": lambda split: figures(split, RLAE()),
    "lightgcn, item-log": lambda split: figures(
        split, LightGCN(), loss=item_log(tau=1.5), **NETWORK
    ),
}


def splits(data: Interactions, protocol: str, count: int) -> Iterator[Split]:
    """Five splits: by time at several cuts, or of users by several seeds."""
    for n in range(count):
        if protocol == "time":
            yield split_by_time(data, test=0.1 + 0.05 * n, valid=0.15)
        else:
            yield split_users(data, seed=n, valid=0.2, test=0.2)


def table(options: Any, protocol: str, count: int) -> list[dict[str, Any]]:
    """One row for each model and weighting."""
    rows: list[dict[str, Any]] = []
    for name, fit in MODELS.items():
        found = {}
        for weighting, settings in WEIGHTINGS.items():
            root = {"data_root": options.data_root, "min_rating": 0, "k_core": 10}
            data = load(options.data, **root, **settings)
            parts = list(splits(data, protocol, count))
            users = [len(split.test) for split in parts]
            found[weighting] = np.array([fit(split) for split in parts])
            print(protocol, name, weighting, found[weighting].round(4).tolist(), flush=True)
        recent = np.stack([found.pop(f"half-life {h}") for h in HALF_LIVES])  # [h, splits, 2]
        best = recent[..., 0].argmax(0)
        found["half-life, chosen"] = recent[best, np.arange(count)]
        taken = [HALF_LIVES[h] for h in best]
        for weighting, values in found.items():
            rows.append(
                {
                    "protocol": protocol,
                    "model": name,
                    "weights": weighting,
                    "valid": values[:, 0].tolist(),
                    "test": values[:, 1].tolist(),
                    "p": float(ttest_rel(values[:, 1], found["no weights"][:, 1]).pvalue),
                    "half_lives": taken if "chosen" in weighting else [],
                    "users": users,
                }
            )
    return rows


def shown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table of a page."""
    names = ("split", "test users", "model", "weights", "validation", "test", "p")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        valid, test = np.array(row["valid"]), np.array(row["test"])
        error = f"{test.mean():.4f} ± {test.std(ddof=1):.4f}" if len(test) > 1 else f"{test[0]:.4f}"
        p = "" if row["weights"] == "no weights" else f"{row['p']:.3f}"
        chosen = f" ({', '.join(row['half_lives'])})" if row["half_lives"] else ""
        kind, users = row["weights"] + chosen, f"{min(row['users'])}–{max(row['users'])}"
        cells = (row["protocol"], users, row["model"], kind, f"{valid.mean():.4f}", error, p)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_dislikes(held: HeldOut, split: Split, rated: Interactions, size: float) -> HeldOut:
    """The histories with low ratings as dislikes; with size 0 these items are only left out."""
    assert rated.ratings is not None
    low = rated.ratings <= 2
    ones = np.ones(int(low.sum()), np.float32)
    matrix = sp.csr_array((ones, (rated.users[low], rated.items[low])), rated.csr().shape)
    columns = rated.item_ids.index(split.item_ids.ids)
    disliked = sp.csr_array(matrix[rated.user_ids.index(held.ids)][:, columns])
    signed = sp.csr_array(held.history - max(size, 1e-12) * disliked).astype(np.float32)
    signed.sort_indices()
    return replace(held, history=signed)


def dislikes(options: Any, count: int) -> str:
    """The metric of unseen users by what a dislike counts."""
    rated = load(options.data, data_root=options.data_root, min_rating=0)
    data = load(options.data, data_root=options.data_root, min_rating=3.5, k_core=5)
    lines = ["| model | part | " + " | ".join(map(str, DISLIKES)) + " |"]
    lines.append("|---" * (2 + len(DISLIKES)) + "|")
    models = {"ease": EASE(l2=200.0), "rlae": RLAE(l2=50.0, item_power=0.2, user_power=0.3,
              dropout=0.5, relax=0.1), "lightgcn, item-log": LightGCN()}  # fmt: skip
    for name, model in models.items():
        values: dict[str, list[list[float]]] = {"validation": [], "test": []}
        for split in splits(data, "users", count):
            settings = {"loss": item_log(tau=1.5), **NETWORK} if "log" in name else {}
            trained = train(split, model, device="cpu", **settings).model
            for part, held in (("validation", split.valid), ("test", split.test)):
                assert held is not None
                signed = (with_dislikes(held, split, rated, size) for size in DISLIKES)
                row = [Evaluator(h, "cpu").metrics(trained, METRIC)[METRIC] for h in signed]
                values[part].append(row)
        for part, found in values.items():
            means = " | ".join(f"{value:.4f}" for value in np.mean(found, axis=0))
            lines.append(f"| {name} | {part} | {means} |")
    return "\n".join(lines)


def main() -> None:
    arguments = parser(__doc__, "ml-latest-small")
    arguments.add_argument("--out", type=Path, help="a JSON file of all figures")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    count = 2 if options.quick else 5
    print(steered := dislikes(options, count))
    rows = [row for protocol in ("time", "users") for row in table(options, protocol, count)]
    print(shown(rows))
    print(steered)
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1))
    by_time = {row["weights"]: np.mean(row["test"]) for row in rows[:4]}
    gain = float(by_time["half-life, chosen"] / by_time["no weights"])
    Verdicts().last("recency_ndcg_ratio", gain, 1.0, at_least=True)


if __name__ == "__main__":
    main()
