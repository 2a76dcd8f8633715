"""Seconds and memory of an epoch per million interactions, from 1 to 30 million of them.

Users and items grow with the interactions at constant density, from 25,000 × 10,000 at 1 million,
and so does the batch: an epoch always has 16 steps, as on Yelp2018 with batches of 2,048. Every
step passes messages over the whole graph, so an epoch is linear in interactions if a step is. The
figures are the worst cost per million at 3 to 30 million, as a multiple of that at 1 million.

With --constant-degree, users and items grow in proportion to the interactions instead, and so do
the vectors: 9 MB at 1 million, 270 MB at 30 million, which no longer fit into a cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from common import Training, Verdicts, forget_peak, hardware, parser, resident

import numpy as np
import torch

from itemrec.data.synthetic import synthetic
from itemrec.losses import item_ndcg
from itemrec.training.config import TrainConfig

MILLIONS = (1, 3, 10, 30)
STEPS = 16  # per epoch
PLOT = Path(__file__).with_name("scaling.svg")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--interactions", type=int, help="measure only this size and print JSON")
    arguments.add_argument("--constant-degree", action="store_true", help="40 items for each user")
    arguments.add_argument("--plot", type=Path, default=PLOT, help="file of the plot")
    options = arguments.parse_args()
    if options.interactions:
        power = 1.0 if options.constant_degree else 0.5
        print(json.dumps(measure(options.interactions, power, options.threads, options.quick)))
        return
    print(hardware(options.threads))
    unit = 50_000 if options.quick else 1_000_000
    found = []
    for count in MILLIONS:
        command = [sys.executable, __file__, "--interactions", str(count * unit)]
        command += ["--threads", str(options.threads), *(["--quick"] if options.quick else [])]
        command += ["--constant-degree"] if options.constant_degree else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        found.append(row)
        millions = row["interactions"] / 1e6
        print(
            f"{millions:6.2f} million, {row['nodes']} nodes: {row['seconds']:7.2f} s per epoch "
            f"({row['seconds'] / millions:.3f} per million), {row['memory'] / 2**20:6.0f} MB "
            f"({row['memory'] / 2**20 / millions:.0f} per million)"
        )
    draw(found, options.plot)
    seconds = [row["seconds"] / row["interactions"] for row in found]
    memory = [row["memory"] / row["interactions"] for row in found]
    verdicts = Verdicts()
    verdicts.also("scaling_memory", max(memory[1:]) / memory[0], 1.3)
    verdicts.last("scaling_seconds", max(seconds[1:]) / seconds[0], 1.3)


def measure(interactions: int, power: float, threads: int, quick: bool) -> dict[str, float]:
    """Seconds (median step × steps) and peak bytes of an epoch, including the interactions."""
    torch.set_num_threads(threads)
    steps(prepare(20_000, 1.0), 2)  # libraries and threads that any training needs do not count
    start = resident("VmRSS")
    training = prepare(interactions, power)
    seconds = float(np.median(steps(training, 3 if quick else 7)[1:])) * STEPS
    memory = resident("VmHWM") - start
    graph = training.graph
    edges, nodes = len(graph.col) // 2, graph.n_nodes
    return {"interactions": edges, "nodes": nodes, "seconds": seconds, "memory": memory}


def prepare(interactions: int, power: float) -> Training:
    growth = (interactions / 1e6) ** power
    users, items = round(25_000 * growth), round(10_000 * growth)
    train = synthetic(users=users, items=items, interactions=interactions).csr()
    forget_peak()  # memory used to generate the data does not count
    config = TrainConfig(batch=-(-users // STEPS), n_negatives=200)
    return Training(train, item_ndcg(tau=1.0), config)


def steps(training: Training, count: int) -> list[float]:
    """Seconds of the first steps of an epoch."""
    spent = []
    for keys in training.keys()[:count]:
        begin = time.perf_counter()
        training.step(keys)
        spent.append(time.perf_counter() - begin)
    return spent


def draw(found: list[dict[str, float]], path: Path) -> None:
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
