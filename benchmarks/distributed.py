"""Training steps of two processes with one thread each against one process with one thread.

The steps are those of the default model's network with the settings that it chooses for such data,
on synthetic interactions at the density of `scaling.py`. Both sides take turns, each several times
and each time in fresh processes, started by `torchrun` if there are several.

speed-up: median seconds of a step · memory: bytes of embeddings, gradients, Adam's moments and the
average of the weights in a rank · bytes: sent by a rank in a step, as the loopback device counts
them, against the formula 8·(k − 1)/k·(B·(1 + P)·d/k + 2·(users + items)) for k ranks: vectors of a
batch's users and positives and their gradients, and the lengths of cosines and their gradients.
Other traffic on the device counts, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Verdicts, forget_peak, hardware, parser, resident, split_of

import numpy as np
import scipy.sparse as sp
import torch

from itemrec import ranks
from itemrec.data.synthetic import synthetic
from itemrec.models.hybrid import Hybrid
from itemrec.training.across_ranks import join_ranks
from itemrec.training.config import resolve_training
from itemrec.training.hybrid import candidates, with_settings
from itemrec.training.learner import Learner
from itemrec.training.plan import Plan, default_parts

WARM = 3  # steps that are not timed: the first ones allocate


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("data", nargs="?", help="not used: the data is always synthetic")
    arguments.add_argument("--interactions", type=int, default=10_000_000)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument(
        "--rounds", type=int, default=3, help="times that each side has its turn"
    )
    arguments.add_argument("--steps", type=int, default=7, help="steps that are timed in each turn")
    arguments.add_argument("--matrix", type=Path, help="measure on this file and print JSON")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    if options.matrix is not None:
        found = measure(sp.csr_array(sp.load_npz(options.matrix)), options.steps)
        if ranks.is_first():
            print(json.dumps(found))
        return
    if options.quick:
        options.rounds, options.steps = 1, 1
        options.interactions = min(options.interactions, 20_000)
    compare(options)


def compare(options: Any) -> None:
    """Let both sides take turns, and print the ratios."""
    print(f"{hardware(options.threads)}; load average {os.getloadavg()[0]:.1f}")
    growth = (options.interactions / 1e6) ** 0.5
    sizes = {"users": round(25_000 * growth), "items": round(10_000 * growth)}
    rows: dict[int, list[dict[str, float]]] = {1: [], options.processes: []}
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "train.npz"
        train = synthetic(**sizes, interactions=options.interactions).csr()
        sp.save_npz(matrix, train, compressed=False)
        print(f"{train.shape[0]} users, {train.shape[1]} items, {train.nnz} interactions")
        del train
        for turn in range(options.rounds):
            for processes in rows if turn % 2 == 0 else reversed(rows):
                row = in_processes(processes, matrix, options)
                rows[processes].append(row)
                print(
                    f"{processes} × {options.threads} thread: {row['seconds']:.3f} s a step "
                    f"({row['cpu']:.3f} s of CPU in a process), "
                    f"{row['tables'] / 2**20:.1f} MB of tables, peak "
                    f"{row['peak'] / 2**20:.0f} MB above the interactions, "
                    f"{row['bytes'] / 2**20:.2f} MB sent by a process in a step (counted by it: "
                    f"{row['counted'] / 2**20:.2f})",
                    flush=True,
                )
    one, many = rows.values()
    seconds = [float(np.median([row["seconds"] for row in side])) for side in (one, many)]
    verdicts = Verdicts()
    verdicts.also("distributed_memory", many[0]["tables"] / one[0]["tables"], 0.55)
    verdicts.also("distributed_bytes_error", abs(many[0]["bytes"] / many[0]["formula"] - 1), 0.1)
    verdicts.last("distributed_speedup", seconds[0] / seconds[1], 1.6, at_least=True)


def in_processes(count: int, matrix: Path, options: Any) -> dict[str, float]:
    """What the first of ``count`` processes measures."""
    start = [sys.executable]
    if count > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [*start, __file__, "--matrix", str(matrix), "--steps", str(options.steps)]
    command += ["--threads", str(options.threads)]
    threads = {"OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
    )
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(train: sp.csr_array, steps: int) -> dict[str, float]:
    """Median seconds of a step, bytes of the tables, peak memory, and bytes exchanged."""
    forget_peak()
    before = resident("VmRSS")
    learner = network(train)
    keys = learner.batches.epoch(learner.generator)
    for at in range(WARM):
        learner.step(keys[at % len(keys)])
    spent, cpu, counted, sent = [], [], ranks.exchanged_bytes(), loopback_bytes()
    for at in range(WARM, WARM + steps):
        begin, used = time.perf_counter(), time.process_time()
        learner.step(keys[at % len(keys)])
        spent.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    width = learner.model.settings["dim"] / ranks.size()
    vectors = 2 * keys.shape[1]  # users, and one positive each
    others = (ranks.size() - 1) / ranks.size()
    return {
        "seconds": float(np.median(spent)),
        "cpu": float(np.median(cpu)),
        "tables": float(table_bytes(learner)),
        "peak": float(resident("VmHWM") - before),
        "bytes": (loopback_bytes() - sent) / steps / ranks.size(),
        "counted": (ranks.exchanged_bytes() - counted) / steps,
        "formula": 8.0 * others * (vectors * width + 2 * sum(train.shape)),
    }


def loopback_bytes() -> int:
    """Bytes that this machine has sent to itself."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[8])
    raise SystemExit("/proc/net/dev has no loopback device")


def network(train: sp.csr_array) -> Learner:
    """The default model's network, with the settings that it chooses for this data."""
    split, model = split_of(train), Hybrid()
    loss, sampler = default_parts(model)
    config = resolve_training(model, loss, {"device": "cpu"})
    plan = Plan(split, model, loss, sampler, config)
    plan = with_settings(plan, candidates(plan, split)[0].settings)
    model.make_network()
    join_ranks(model.gnn, plan.sampler, "cpu")
    return Learner(replace(plan, model=model.gnn), split)


def table_bytes(learner: Learner) -> int:
    """Bytes of weights, gradients, Adam's moments and the average of the weights."""
    weights = list(learner.model.parameters())
    tables = [*weights, *(w.grad for w in weights if w.grad is not None), *learner.average.tensors]
    for state in learner.optimizer.state.values():
        tables += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(table.numel() * table.element_size() for table in tables)


if __name__ == "__main__":
    main()
