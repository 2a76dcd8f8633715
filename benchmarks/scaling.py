"""Seconds and memory of an epoch per million interactions, from 1 to 30 million of them.

Users and items grow with the interactions at constant density, from 25,000 × 10,000 at 1 million,
and so does the batch: an epoch always has 16 steps, as on Yelp2018 with batches of 2,048. Every
step passes messages over the whole graph, so an epoch is linear in interactions if a step is. The
figures are the worst cost per million at 3 to 30 million, as a multiple of that at 1 million.

With --constant-degree, users and items grow in proportion to the interactions instead, and so do
the vectors: 9 MB at 1 million, 270 MB at 30 million, which no longer fit into a cache. The figure
is then the cost per million at the largest size. Peak memory is compared with the formula of
docs/explanation/scale.md, and --store writes the results for that page, with the formula
extrapolated to a billion interactions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import Training, Verdicts, forget_peak, hardware, parser, resident

import numpy as np
import torch

from itemfold.data.named.synthetic import synthetic
from itemfold.files import write_text
from itemfold.graph.graph import LARGE
from itemfold.losses import item_ndcg
from itemfold.ops.blocked_sum import block_count
from itemfold.settings.schema import TrainConfig

STEPS = 16  # per epoch
DIM, LAYERS, POSITIVES, NEGATIVES = 64, 3, 5, 200
LARGEST_BATCH = 1 << 20  # users of a step: about 13 GB on a CPU
PLOT = Path(__file__).with_name("scaling.svg")
PROJECTED = (  # users, items, interactions
    (1_000_000, 400_000, 40_000_000),
    (2_500_000, 1_000_000, 100_000_000),
    (25_000_000, 10_000_000, 1_000_000_000),
    (100_000_000, 1_000_000, 1_000_000_000),
    (100_000_000, 10_000_000, 1_000_000_000),
)


def main() -> None:
    options = arguments()
    if options.interactions:
        power = 1.0 if options.constant_degree else 0.5
        print(json.dumps(measure(options.interactions, power, options.threads, options.quick)))
        return
    print(hardware(options.threads))
    unit = 50_000 if options.quick else 1_000_000
    sizes = [round(float(size) * unit) for size in options.millions.split(",")]
    # a machine's speed drifts: the first and the last size are measured several times, in turn
    rows = [in_process(sizes[0], options)]
    for size in [*sizes[1:], *sizes[-1:] * (0 if options.quick else 2)]:
        rows += [in_process(size, options), in_process(sizes[0], options)]
    found = [middle(rows, size) for size in sizes]
    if not options.constant_degree:
        draw(found, options.plot)
    if options.store:
        text = json.dumps(page(found, hardware(options.threads)), indent=1)
        write_text(options.store, text + "\n")
    verdict(found, options.constant_degree)


def arguments() -> argparse.Namespace:
    """The options, of which ``interactions`` is for the script's own processes."""
    out = parser(__doc__)
    out.add_argument("--interactions", type=int, help="measure only this size and print JSON")
    out.add_argument("--millions", default="1,3,10,30", help="sizes, ascending")
    out.add_argument("--constant-degree", action="store_true", help="40 items for each user")
    out.add_argument("--plot", type=Path, default=PLOT, help="file of the plot")
    out.add_argument("--store", type=Path, help="JSON file for docs/explanation/scale.md")
    options = out.parse_args()
    if len(options.millions.split(",")) < 2:
        out.error(f"'--millions' must list at least two sizes, got {options.millions}")
    return options


def in_process(size: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size in a process of its own, and print it."""
    command = [sys.executable, __file__, "--interactions", str(size)]
    command += ["--threads", str(options.threads), *(["--quick"] if options.quick else [])]
    command += ["--constant-degree"] if options.constant_degree else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) | {"asked": size}
    millions, formula = row["interactions"] / 1e6, sum(row["formula"].values())
    print(
        f"{millions:6.2f} million, {row['users'] + row['items']} nodes: "
        f"{row['seconds']:7.2f} s per epoch ({row['seconds'] / millions:.3f} per million), "
        f"{row['memory'] / 2**20:6.0f} MB ({row['memory'] / 2**20 / millions:.0f} per million; "
        f"{row['memory'] / formula:.2f} of the formula)",
        flush=True,
    )
    return row


def middle(rows: list[dict[str, Any]], size: int) -> dict[str, Any]:
    """The figures of a size, with the median of its seconds."""
    own = [row for row in rows if row["asked"] == size]
    return own[0] | {"seconds": float(np.median([row["seconds"] for row in own]))}


def verdict(found: list[dict[str, Any]], constant_degree: bool) -> None:
    """Costs per interaction as multiples of those at the first size, with their bounds."""
    seconds = [row["seconds"] / row["interactions"] for row in found]
    memory = [row["memory"] / row["interactions"] for row in found]
    shares = [row["memory"] / sum(row["formula"].values()) for row in found]
    for row, second in zip(found, seconds, strict=True):
        print(f"{row['interactions'] / 1e6:6.2f} million: {second / seconds[0]:.2f} × the first")
    verdicts = Verdicts()
    if constant_degree:
        verdicts.also("growth_memory", max(memory[1:]) / memory[0], 1.3)
        verdicts.also("growth_memory_of_formula", max(shares[1:]), 1.1)
        verdicts.last("growth_seconds", seconds[-1] / seconds[0], 1.5)
    else:
        verdicts.also("scaling_memory", max(memory[1:]) / memory[0], 1.3)
        verdicts.last("scaling_seconds", max(seconds[1:]) / seconds[0], 1.3)


def measure(interactions: int, power: float, threads: int, quick: bool) -> dict[str, Any]:
    """Seconds (median step × steps) and peak bytes of an epoch, including the interactions."""
    torch.set_num_threads(threads)
    steps(prepare(20_000, 1.0), 2)  # libraries and threads that any training needs do not count
    start = resident("VmRSS")
    training = prepare(interactions, power)
    few = 3 if quick else 7
    spent = steps(training, few if interactions > 5_000_000 else STEPS)
    memory = resident("VmHWM") - start
    graph = training.graph
    edges, users, items = len(graph.col) // 2, graph.n_users, graph.n_items
    return {
        "interactions": edges,
        "users": users,
        "items": items,
        "seconds": float(np.median(spent[1:])) * STEPS,
        "memory": memory,
        "formula": formula(users, items, edges, -(-users // STEPS)),
    }


def formula(users: int, items: int, edges: int, batch: int) -> dict[str, int]:
    """Peak bytes of training LightGCN by parts, as in docs/explanation/scale.md."""
    nodes, lists = users + items, batch * (POSITIVES + NEGATIVES)
    table = 4 * nodes * DIM
    blocks = users * block_count(items, users, edges) + items * block_count(users, items, edges)
    return {
        "interactions": 8 * edges + 4 * users,
        # both directions of an edge, and their weights or the same edges by blocks, with where the
        # blocks begin and one entry for each sum between blocks; in a small graph also the edges
        # to users, with items counted from 0
        "graph": 16 * edges + 12 * nodes + 4 * (2 * blocks - nodes if nodes >= LARGE else edges),
        "negatives": 16 * edges + 40 * users,
        "tables": 5 * table,  # weights, gradients, Adam's two moments, average
        "activations": 4 * table,  # vectors, their gradients, messages with space for sums
        "batch": 36 * lists + 4 * batch * POSITIVES * NEGATIVES,
    }


def page(found: list[dict[str, Any]], machine: str) -> dict[str, Any]:
    """What docs/explanation/scale.md shows: the measured sizes, and the formulas beyond them."""
    rows = []
    for users, items, edges in PROJECTED:
        batch = min(-(-users // STEPS), LARGEST_BATCH)
        row = {"users": users, "items": items, "interactions": edges, "batch": batch}
        row["steps"] = -(-users // batch)
        row["gathered"] = 2 * LAYERS * 2 * edges * DIM * 2  # bfloat16, forward and backward
        row["sent"] = 2 * 4 * batch * (POSITIVES + NEGATIVES)  # scores, and their gradients
        rows.append(row | {"formula": formula(users, items, edges, batch)})
    load = round(os.getloadavg()[0], 1)
    return {"hardware": machine, "load": load, "measured": found, "projected": rows}


def prepare(interactions: int, power: float) -> Training:
    growth = (interactions / 1e6) ** power
    users, items = round(25_000 * growth), round(10_000 * growth)
    train = synthetic(users=users, items=items, interactions=interactions).csr()
    forget_peak()  # memory used to generate the data does not count
    config = TrainConfig(batch=-(-users // STEPS), positives=POSITIVES, n_negatives=NEGATIVES)
    return Training(train, item_ndcg(tau=1.0), config, dim=DIM, layers=LAYERS)


def steps(training: Training, count: int) -> list[float]:
    """Seconds of the first steps of an epoch."""
    spent = []
    for keys in training.keys()[:count]:
        begin = time.perf_counter()
        training.step(keys)
        spent.append(time.perf_counter() - begin)
    return spent


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Both curves on logarithmic axes, with a straight line through the first point."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "scaling"  # the same figures give the same file
    from matplotlib import pyplot as plt

    size = np.array([row["interactions"] / 1e6 for row in found])
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for ax, key, scale, label in (
        (axes[0], "seconds", 1.0, "seconds per epoch"),
        (axes[1], "memory", 2.0**30, "peak memory, GB"),
    ):
        value = np.array([row[key] / scale for row in found])
        ax.loglog(size, value[0] / size[0] * size, "--", color="#999", label="linear")
        ax.loglog(size, value, "o-", color="#0a6ebd", label="measured")
        ax.set_xlabel("million interactions")
        ax.set_ylabel(label)
        ax.set_xticks(size, [f"{s:g}" for s in size.round(2)])
        ax.minorticks_off()
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
