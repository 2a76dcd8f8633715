"""Full ranking of every test user over the catalogue against dense scores and a full sort."""

from __future__ import annotations

import time

from common import Verdicts, begin, forget_peak, parser, resident

import numpy as np
import torch

from itemfold.data.splitting.split import Split
from itemfold.evaluation.evaluate import evaluate
from itemfold.graph.graph import Graph
from itemfold.models.lightgcn import LightGCN

METRICS = ("recall@20", "ndcg@20")
SAMPLE = 512  # users on which the baseline is timed


def main() -> None:
    options = parser(__doc__, "yelp2018").parse_args()
    split = begin(options)
    model = LightGCN(64, 3)
    model.setup(split.train, inductive=False, generator=torch.Generator().manual_seed(0))
    model.cache_embeddings(Graph.from_csr(split.train))
    users = len(split.test.users)
    print(f"{users} test users × {split.n_items} items, top 20")

    sample = np.sort(np.random.default_rng(0).choice(users, min(SAMPLE, users), replace=False))
    plain_values(model, split, sample[:64])  # first use loads libraries
    evaluate_all(model, split)
    ours, plain, peaks = [], [], []
    for _ in range(1 if options.quick else 3):
        forget_peak()
        before, start = resident("VmRSS"), time.perf_counter()
        found = evaluate_all(model, split)
        ours.append(time.perf_counter() - start)
        peaks.append(resident("VmHWM") - before)
        start = time.perf_counter()
        expected = plain_values(model, split, sample)
        plain.append((time.perf_counter() - start) * users / len(sample))
    for metric in METRICS:
        gap = np.abs(found.per_user[metric][sample] - expected[metric]).max()
        print(f"{metric}: largest difference from the baseline {gap:.1e} on {len(sample)} users")
    seconds = float(np.median(ours))
    print(f"  ours {seconds:7.2f} s, {max(peaks) / 2**20:.0f} MB peak memory above the model")
    print(f" plain {np.median(plain):7.2f} s, timed on {len(sample)} users and scaled")
    verdicts = Verdicts()
    verdicts.also("evaluate_memory_mb", max(peaks) / 2**20, 600)
    verdicts.last("evaluate_speedup", float(np.median(plain)) / seconds, 4.0, at_least=True)


def evaluate_all(model: LightGCN, split: Split):
    return evaluate(model, split, metrics=METRICS)


def plain_values(model: LightGCN, split: Split, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Recall and NDCG at 20 from a dense block of scores, sorted in full."""
    held = split.test
    users = torch.from_numpy(held.users[rows])
    scores = model.user_vectors[users] @ model.item_vectors.T
    scores[torch.from_numpy(held.history[rows].toarray() > 0)] = -torch.inf
    ranked = torch.sort(scores, dim=1, descending=True).indices[:, :20]
    target = torch.from_numpy(held.target[rows].toarray() > 0)
    hits = target.gather(1, ranked).numpy().astype(np.float64)
    size = target.sum(1).numpy()
    discount = 1 / np.log2(np.arange(20) + 2)
    ideal = np.cumsum(discount)[np.minimum(size, 20) - 1]
    return {"recall@20": hits.sum(1) / size, "ndcg@20": (hits * discount).sum(1) / ideal}


if __name__ == "__main__":
    main()
