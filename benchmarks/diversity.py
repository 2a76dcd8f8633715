"""The cost of diversity: its slider is chosen on half of the users and measured on the others.

On each of five splits a model is trained and its test users are halved. The slider is set to the
value at which the NDCG@20 of one half has lost 2 %, and the lists of the other half are measured at
this value against the plain ones; then the halves change places. So the slider is chosen for the
model that is measured (what a value does depends on its vectors), but not on the users that are
reported. With `--out`, the figures are written to a file that docs/how-to/reranking.md shows.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.splitters import split_interactions
from itemfold.evaluation.tradeoff import Sweeper
from itemfold.files import write_text
from itemfold.models import MODELS
from itemfold.reranking.steering import BY_MODEL, Steering
from itemfold.training.fit import train

LOSS, GAIN = 0.02, 0.1  # largest loss of NDCG, least gain of diversity
K = 20


def halves(data: Interactions, seed: int, options: Any) -> list[Sweeper]:
    """Two halves of the test users of a split, with the scores of a model."""
    split = split_interactions(data, seed=seed)
    settings = {"device": options.device, "seed": seed, "budget": options.budget}
    if options.quick:
        settings |= {"epochs": 4, "eval_every": 2, "patience": 2}
    run = train(split, MODELS[options.model](), progress=True, **settings)
    order = np.random.default_rng(seed).permutation(len(split.test))
    parts = (split.test.take(np.sort(order[n::2])) for n in range(2))
    return [Sweeper(run, replace(split, test=part), k=K) for part in parts]


def chosen(part: Sweeper, base: Steering) -> float:
    """The slider at which the NDCG of these users has lost as much as allowed."""
    points = list(part.sweep("diversity", base))
    found = part.gathered("diversity", points).at_loss(LOSS, "diversity")
    return math.floor(100 * found[0]) / 100 if found else 1.0


def changes(part: Sweeper, base: Steering, slider: float) -> dict[str, float]:
    """Relative changes of the metrics of test users against the plain lists."""
    plain, steered = (p.metrics for p in part.sweep("diversity", base, (0.0, slider)))
    return {key: steered[key] / plain[key] - 1 for key in plain if plain[key]}


def measure(data: Interactions, seed: int, options: Any) -> list[dict[str, Any]]:
    """The figures of both halves of a split, for each way to compare items."""
    parts, out = halves(data, seed, options), []
    for by in (BY_MODEL, "genre") if data.genres is not None else (BY_MODEL,):
        base = Steering(diversity_by=by)
        for half, (first, second) in enumerate((parts, parts[::-1])):
            slider = chosen(first, base)
            found = changes(second, base, slider)
            told = {"model": options.model, "by": by, "seed": seed, "half": half, "slider": slider}
            out.append({**told, "users": len(second.evaluator.held), "change": found})
            print(
                f"{options.model}, by {by}, seed {seed}, half {half}: slider {slider:g}, NDCG "
                f"{found[f'ndcg@{K}']:+.1%}, {target(by)} {found[target(by)]:+.1%}",
                flush=True,
            )
    return out


def target(by: str) -> str:
    """The metric that a slider is meant to raise."""
    return f"{'' if by == BY_MODEL else 'genre_'}diversity@{K}"


def main() -> None:
    arguments = parser(__doc__, "ml-latest-small")
    arguments.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments.add_argument("--model", default="hybrid", help="a model by name")
    arguments.add_argument("--seeds", default="20,21,22,23,24", help="of splits and training")
    arguments.add_argument("--budget", type=float, help="seconds of a training; default: no limit")
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
    """Mean changes of NDCG and of the slider's metric; printed with deviations over splits."""
    seeds, means, told = sorted({row["seed"] for row in rows}), [], []
    for key in (f"ndcg@{K}", target(by)):
        values = [
            np.mean([row["change"][key] for row in rows if (row["by"], row["seed"]) == (by, seed)])
            for seed in seeds
        ]
        means.append(float(np.mean(values)))
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        told.append(f"{key} {means[-1]:+.1%} ± {deviation:.1%}")
    print(f"by {by}, {len(seeds)} splits: {', '.join(told)}")
    return means[0], means[1]


if __name__ == "__main__":
    main()
