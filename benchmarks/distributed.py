"""Training steps of two processes with one thread each against one process with one thread.

The steps are those of the default model's network with the settings that it chooses for such data,
on synthetic interactions at the density of `scaling.py`. Both sides are started once, several
processes by `torchrun`, and take turns of a few seconds while the other side waits, so that other
load on the machine affects both alike.

speed-up: seconds of a step, median of the ratios of neighbouring turns · memory: bytes of
embeddings, gradients, Adam's moments and the average of the weights in a rank · bytes: sent by a
rank in a step, as the loopback device counts them, against the formula
8·(k − 1)/k·(B·(1 + P)·d/k + 2·(users + items)) for k ranks: vectors of a batch's users and
positives and their gradients, and the lengths of cosines and their gradients. Other traffic on the
device is included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any

from common import Verdicts, forget_peak, hardware, parser, resident, split_of

import numpy as np
import scipy.sparse as sp
import torch

from itemfold import ranks
from itemfold.data.named.synthetic import synthetic
from itemfold.settings.resolve import resolve
from itemfold.training.across_ranks import join_ranks, sharded
from itemfold.training.learner import Learner
from itemfold.training.strategies.candidates import candidates

WARM = 3  # steps that are not timed: the first ones allocate


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("data", nargs="?", help="not used: the data is always synthetic")
    arguments.add_argument("--interactions", type=int, default=10_000_000)
    arguments.add_argument("--processes", type=int, default=2)
    arguments.add_argument(
        "--rounds", type=int, default=12, help="times that each side has its turn"
    )
    arguments.add_argument("--steps", type=int, default=3, help="steps of each turn")
    arguments.add_argument("--matrix", type=Path, help="be one of the sides, on this file")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    if options.matrix is not None:
        take_turns(sp.csr_array(sp.load_npz(options.matrix)), options.steps)
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
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "train.npz"
        train = synthetic(**sizes, interactions=options.interactions).csr()
        sp.save_npz(matrix, train, compressed=False)
        print(f"{train.shape[0]} users, {train.shape[1]} items, {train.nnz} interactions")
        del train
        with Side(1, matrix, options) as one, Side(options.processes, matrix, options) as many:
            for _ in range(options.rounds):
                one.turn()
                many.turn()
    one.show(options.threads)
    many.show(options.threads)
    ratios = one.all("seconds") / many.all("seconds")
    print(f"ratios of neighbouring turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    sent = float(np.median(many.all("bytes")))
    verdicts = Verdicts()
    verdicts.also("distributed_memory", many.about["tables"] / one.about["tables"], 0.55)
    verdicts.also("distributed_bytes_error", abs(sent / many.about["formula"] - 1), 0.1)
    verdicts.last("distributed_speedup", float(np.median(ratios)), 1.6, at_least=True)


class Side:
    """One or more processes that train together when it is their turn."""

    def __init__(self, count: int, matrix: Path, options: Any) -> None:
        start = [sys.executable]
        if count > 1:
            start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        command = [*start, __file__, "--matrix", str(matrix), "--steps", str(options.steps)]
        command += ["--threads", str(options.threads)]
        threads = {"OMP_NUM_THREADS": str(options.threads)}
        self.process = subprocess.Popen(
            command,
            text=True,
            env={**os.environ, **threads},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.count, self.about, self.turns = count, self.heard(), list[dict[str, float]]()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()  # no more turns

    def heard(self) -> dict[str, float]:
        """The next line from the first process."""
        assert self.process.stdout is not None
        said: dict[str, float] = json.loads(self.process.stdout.readline())
        return said

    def turn(self) -> None:
        """Take some steps."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.turns.append(self.heard())

    def all(self, name: str) -> np.ndarray:
        """One figure for every turn."""
        return np.array([turn[name] for turn in self.turns])

    def show(self, threads: int) -> None:
        """Print the medians."""
        low, middle, high = np.quantile(self.all("seconds"), [0.25, 0.5, 0.75])
        cpu, sent, counted = (np.median(self.all(x)) for x in ("cpu", "bytes", "counted"))
        print(
            f"{self.count} × {threads} thread: {middle:.3f} s a step (quartiles {low:.3f} and "
            f"{high:.3f}; {cpu:.3f} s of CPU in a process), "
            f"{self.about['tables'] / 2**20:.1f} MB of tables, peak "
            f"{self.about['peak'] / 2**20:.0f} MB above the interactions, "
            f"{sent / 2**20:.2f} MB sent by a process in a step (counted by it: "
            f"{counted / 2**20:.2f})",
            flush=True,
        )


def take_turns(train: sp.csr_array, steps: int) -> None:
    """Take some steps for each line that is read, and report their seconds."""
    forget_peak()
    before = resident("VmRSS")
    learner = network(train)
    epoch = learner.batches.epoch(learner.generator)
    keys, vectors = cycle(epoch), 2 * epoch.shape[1]  # users, and one positive each
    for _ in range(WARM):
        learner.step(next(keys))
    width = learner.model.settings["dim"] / ranks.size()
    others = (ranks.size() - 1) / ranks.size()
    say(
        {
            "tables": float(table_bytes(learner)),
            "peak": float(resident("VmHWM") - before),
            "formula": 8.0 * others * (vectors * width + 2 * sum(train.shape)),
        }
    )
    while ranks.from_first(sys.stdin.readline):
        spent, cpu, counted, sent = [], [], ranks.exchanged_bytes(), loopback_bytes()
        for _ in range(steps):
            begin, used = time.perf_counter(), time.process_time()
            learner.step(next(keys))
            spent.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - used)
        say(
            {
                "seconds": float(np.median(spent)),
                "cpu": float(np.median(cpu)),
                "bytes": (loopback_bytes() - sent) / steps / ranks.size(),
                "counted": (ranks.exchanged_bytes() - counted) / steps,
            }
        )


def say(figures: dict[str, float]) -> None:
    """Send a line from the first process to the benchmark."""
    if ranks.is_first():
        print(json.dumps(figures), flush=True)


def loopback_bytes() -> int:
    """Bytes that this machine has sent to itself."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[8])
    raise SystemExit("/proc/net/dev has no loopback device")


def network(train: sp.csr_array) -> Learner:
    """The default model's network, with the settings that it chooses for this data."""
    split, settings = split_of(train), resolve({"train": {"device": "cpu"}})
    settings = settings.choose(candidates(settings, split)[0].settings, "chosen from the data")
    model = settings.make_model()
    join_ranks(model, settings.make_sampler(), "cpu")
    return Learner(sharded(model).network, settings, split)


def table_bytes(learner: Learner) -> int:
    """Bytes of weights, gradients, Adam's moments and the average of the weights."""
    weights = list(learner.model.parameters())
    tables = [*weights, *(w.grad for w in weights if w.grad is not None), *learner.average.tensors]
    for state in learner.optimizer.state.values():
        tables += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(table.numel() * table.element_size() for table in tables)


if __name__ == "__main__":
    main()
