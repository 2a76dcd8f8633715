"""What diversity costs, its slider chosen on validation and confirmed on test, on five splits.

On each split a model is trained without its validation part, the slider is set to the largest value
that loses at most 2 % of NDCG@20 there, and the lists of the test users are measured at this value
against the plain ones. So neither the slider nor a split was chosen by what is reported. With
`--out`, the figures are written to a file that docs/steering.md shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.splitters import split_interactions
from itemrec.evaluation.tradeoff import Sweeper
from itemrec.files import write_text
from itemrec.models import MODELS
from itemrec.reranking.steering import BY_MODEL, Steering
from itemrec.training.loop import train

LOSS, GAIN = 0.02, 0.1  # largest loss of NDCG, least gain of diversity
STEPS = np.round(np.arange(0.02, 1.0, 0.02), 2)  # values of the slider


def measure(data: Interactions, seed: int, options: Any) -> list[dict[str, Any]]:
    """The chosen value and its figures on the test users, for each way to compare items."""
    split = split_interactions(data, seed=seed)
    settings: dict[str, Any] = {"device": options.device, "seed": seed, "refit": False}
    if options.quick:
        settings |= {"epochs": 4, "eval_every": 2, "patience": 2}
    run = train(split, MODELS[options.model](), progress=True, **settings)
    assert split.valid is not None
    valid = Sweeper(run, replace(split, test=split.valid))
    test = Sweeper(run, split)
    out = []
    for by in (BY_MODEL, "genre") if data.genres is not None else (BY_MODEL,):
        base = Steering(diversity_by=by)
        chosen = largest(valid, base)
        plain, steered = (point.metrics for point in test.sweep("diversity", base, (0.0, chosen)))
        change = {key: steered[key] / plain[key] - 1 for key in plain if plain[key]}
        network = run.metrics.get("chosen", {}).get("train", {}).get("similarity", "")
        told = {"model": options.model, "by": by, "seed": seed, "slider": chosen}
        out.append({**told, "users": len(split.test), "network": network, "change": change})
        print(
            f"{options.model}, by {by}, seed {seed}: slider {chosen:g}, NDCG "
            f"{change['ndcg@20']:+.1%}, {target(by)} {change[target(by)]:+.1%}",
            flush=True,
        )
    return out


def largest(sweeper: Sweeper, base: Steering) -> float:
    """The largest value before NDCG@20 has lost too much."""
    plain, best = next(sweeper.sweep("diversity", base, (0.0,))).metrics["ndcg@20"], 0.0
    for point in sweeper.sweep("diversity", base, STEPS.tolist()):
        if point.metrics["ndcg@20"] < (1 - LOSS) * plain:
            break
        best = point.value
    return best


def target(by: str) -> str:
    """The metric that a slider is meant to raise."""
    return "diversity@20" if by == BY_MODEL else "genre_diversity@20"


def main() -> None:
    arguments = parser(__doc__, "ml-latest-small")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument("--model", default="hybrid", help="a model by name")
    arguments.add_argument("--seeds", default="10,11,12,13,14", help="of splits and training")
    arguments.add_argument("--out", type=Path, help="file of figures; other models in it stay")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    data = load(options.data, data_root=options.data_root)
    print(f"{data}; {hardware(options.threads, options.device != 'cpu')}")
    seeds = [int(seed) for seed in ("0" if options.quick else options.seeds).split(",")]
    rows = [row for seed in seeds for row in measure(data, seed, options)]
    if options.out is not None:
        known = json.loads(options.out.read_text()) if options.out.is_file() else []
        kept = [row for row in known if row["model"] != options.model]
        lines = ",\n ".join(json.dumps(row) for row in [*kept, *rows])
        write_text(options.out, f"[\n {lines}\n]\n")
    found = {by: spread(rows, by) for by in dict.fromkeys(row["by"] for row in rows)}
    loss, gain = found[BY_MODEL]
    verdicts = Verdicts()
    verdicts.also(f"{options.model}_diversity_loss", -loss, LOSS)
    verdicts.last(f"{options.model}_diversity_gain", gain, GAIN, at_least=True)


def spread(rows: list[dict[str, Any]], by: str) -> tuple[float, float]:
    """Mean changes of NDCG and of what the slider raises; printed with their deviations."""
    changes = [row["change"] for row in rows if row["by"] == by]
    means, told = [], []
    for key in ("ndcg@20", target(by)):
        values = [change[key] for change in changes]
        means.append(float(np.mean(values)))
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        told.append(f"{key} {means[-1]:+.1%} ± {deviation:.1%}")
    print(f"by {by}, {len(changes)} splits: {', '.join(told)}")
    return means[0], means[1]


if __name__ == "__main__":
    main()
