"""What diversity costs: its slider is chosen on some splits and confirmed on five others.

A model is trained on each split. The slider is set to the value at which the mean NDCG@20 over the
first splits has lost 2 %. The lists of the test users of the other splits are measured at this
value against the plain ones. So neither the slider nor a split was chosen by what is reported. With
`--out`, the figures are written to a file that docs/steering.md shows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from common import Verdicts, hardware, parser

import numpy as np
import torch

from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.splitters import split_interactions
from itemrec.evaluation.tradeoff import Point, Sweeper
from itemrec.files import write_text
from itemrec.models import MODELS
from itemrec.reranking.steering import BY_MODEL, Steering
from itemrec.training.loop import train

LOSS, GAIN = 0.02, 0.1  # largest loss of NDCG, least gain of diversity
K = 20


def sweeper(data: Interactions, seed: int, options: Any) -> Sweeper:
    """The test users of a split with the scores of a model."""
    split = split_interactions(data, seed=seed)
    settings: dict[str, Any] = {"device": options.device, "seed": seed}
    if options.quick:
        settings |= {"epochs": 4, "eval_every": 2, "patience": 2}
    return Sweeper(train(split, MODELS[options.model](), progress=True, **settings), split, k=K)


def chosen(parts: list[Sweeper], base: Steering) -> float:
    """Where the mean NDCG of several splits has lost as much as it may."""
    curves = [list(part.sweep("diversity", base)) for part in parts]
    mean = [
        Point(points[0].value, {key: mean_of(points, key) for key in points[0].metrics})
        for points in zip(*curves, strict=True)
    ]
    found = parts[0].gathered("diversity", mean).at_loss(LOSS, "diversity")
    return math.floor(100 * found[0]) / 100 if found else 1.0


def mean_of(points: tuple[Point, ...], key: str) -> float:
    """The mean of a metric over splits."""
    return float(np.mean([point.metrics[key] for point in points]))


def changes(part: Sweeper, base: Steering, slider: float) -> dict[str, float]:
    """What the slider changes of the plain lists of test users, as shares."""
    plain, steered = (p.metrics for p in part.sweep("diversity", base, (0.0, slider)))
    return {key: steered[key] / plain[key] - 1 for key in plain if plain[key]}


def measure(data: Interactions, options: Any) -> list[dict[str, Any]]:
    """The figures of every split, for each way to compare items."""
    first, others = (
        {seed: sweeper(data, seed, options) for seed in seeds}
        for seeds in (options.choose, options.confirm)
    )
    out = []
    for by in (BY_MODEL, "genre") if data.genres is not None else (BY_MODEL,):
        base = Steering(diversity_by=by)
        slider = chosen(list(first.values()), base)
        for seed, part in others.items():
            found = changes(part, base, slider)
            told = {"model": options.model, "by": by, "seed": seed, "slider": slider}
            out.append({**told, "users": len(part.evaluator.held), "change": found})
            print(
                f"{options.model}, by {by}, seed {seed}: slider {slider:g}, NDCG "
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
    for name, seeds, text in (
        ("--choose", "0,1,2,3,4", "seeds of the splits that the slider is chosen on"),
        ("--confirm", "10,11,12,13,14", "seeds of the splits that are reported"),
    ):
        arguments.add_argument(name, default=seeds, help=text)
    arguments.add_argument("--out", type=Path, help="file of figures; other models in it stay")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    data = load(options.data, data_root=options.data_root)
    print(f"{data}; {hardware(options.threads, options.device != 'cpu')}")
    for name in ("choose", "confirm"):
        listed = [int(seed) for seed in getattr(options, name).split(",")]
        setattr(options, name, listed[:1] if options.quick else listed)
    rows = measure(data, options)
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
    found = [row["change"] for row in rows if row["by"] == by]
    means, told = [], []
    for key in (f"ndcg@{K}", target(by)):
        values = [change[key] for change in found]
        means.append(float(np.mean(values)))
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        told.append(f"{key} {means[-1]:+.1%} ± {deviation:.1%}")
    print(f"by {by}, {len(found)} splits: {', '.join(told)}")
    return means[0], means[1]


if __name__ == "__main__":
    main()
