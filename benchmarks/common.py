"""What the benchmarks share: options, clocks, memory, the product's own step, and verdicts."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import itemrec  # isort: skip  # noqa: F401  (before torch: it says how torch's threads wait)
import numpy as np
import torch
from torch import Tensor

from itemrec.averaging import Average
from itemrec.batches import Batches
from itemrec.capture import captured
from itemrec.datasets import load
from itemrec.graph import Graph
from itemrec.held_out import Split
from itemrec.models.lightgcn import LightGCN
from itemrec.negatives import Sampler, Uniform
from itemrec.objective import objective
from itemrec.split import split_interactions
from itemrec.train import TrainConfig


def parser(text: str | None, data: str | None = None) -> argparse.ArgumentParser:
    """The options of every benchmark; ``data`` is the default data set, None where none is read."""
    out = argparse.ArgumentParser(description=text)
    if data is not None:
        out.add_argument("data", nargs="?", default=data, help="built-in name or path")
        out.add_argument("--data-root", help="where data sets lie (else ITEMREC_DATA)")
    out.add_argument("--threads", type=int, default=2)
    out.add_argument("--quick", action="store_true", help="few repetitions: does it run at all")
    return out


def begin(options: argparse.Namespace) -> Split:
    """Set threads, load the data, and say what is measured on; the whole training file is used."""
    torch.set_num_threads(options.threads)
    split = split_interactions(load(options.data, data_root=options.data_root), valid=0.0)
    n_users, n_items = split.train.shape
    print(f"{options.data}: {n_users} users, {n_items} items, {split.train.nnz} training edges")
    print(f"{hardware(options.threads)}; load average {os.getloadavg()[0]:.1f}")
    return split


def hardware(threads: int | None = None, gpu: bool = False) -> str:
    """One line about the machine."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    used = f", {threads} threads" if threads else ""
    card = f", {torch.cuda.get_device_name(0)}" if gpu and torch.cuda.is_available() else ""
    return f"{model}, {os.cpu_count()} cores{used}{card}, torch {torch.__version__}"


# --- clocks and memory ---------------------------------------------------------------------------


def interleaved(
    tasks: Mapping[str, Callable[[], Any]], rounds: int, warm_up: int = 1
) -> dict[str, float]:
    """Median seconds of each task; they take turns, so that a busy moment meets them all."""
    spent: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(warm_up + rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn >= warm_up:
                spent[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in spent.items()}


def resident(field: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """From here on the peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")


# --- verdicts ------------------------------------------------------------------------------------


class Verdicts:
    """Figures with their bounds; the last line tells whether all of a script's bounds hold."""

    def __init__(self) -> None:
        self.good = True

    def also(self, name: str, value: float, bound: float, *, at_least: bool = False) -> None:
        """A figure beside the main one."""
        good = value >= bound if at_least else value <= bound
        self.good = self.good and good
        print(f"also {name} {value:.4g} {bound:g} {'pass' if good else 'short'}")

    def last(self, name: str, value: float, bound: float, *, at_least: bool = False) -> None:
        """The main figure: short where any of the others is."""
        good = (value >= bound if at_least else value <= bound) and self.good
        print(f"{name} {value:.4g} {bound:g} {'pass' if good else 'short'}")


# --- the product ---------------------------------------------------------------------------------


class Training:
    """LightGCN trained as `itemrec.train` does it, a step or an epoch at a time."""

    def __init__(
        self,
        train: Any,
        loss: Callable[..., Tensor],
        config: TrainConfig,
        *,
        negatives: Sampler | None = None,
        device: str = "cpu",
        dim: int = 64,
        layers: int = 3,
    ) -> None:
        self.model = LightGCN(dim, layers)
        weights = torch.Generator().manual_seed(config.seed)
        self.model.setup(train, inductive=False, generator=weights)
        self.model.to(device)
        self.graph = Graph.from_csr(train, device)
        generator = torch.Generator(device).manual_seed(config.seed)
        sampler = negatives if negatives is not None else Uniform()
        sampler.prepare(train, device)
        self.batches = Batches(self.graph, config.by, config.batch, config.positives)
        on_gpu = device != "cpu"
        optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.lr, fused=True, capturable=on_gpu
        )
        self.average = Average(self.model, config.average)
        self.generator = generator

        def step(keys: Tensor) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            batch = self.batches.draw(keys, generator)
            value = objective(self.model, self.graph, batch, loss, sampler, config, generator)
            value.backward()
            optimizer.step()
            self.average.update()
            return value.detach()

        self.step = step
        if on_gpu:
            keys = self.batches.epoch(torch.Generator(device))[0]
            self.step = captured(step, keys, optimizer, generator, self.average.tensors)

    def keys(self) -> Tensor:
        """The batches of an epoch, a row each."""
        return self.batches.epoch(self.generator)

    def epoch(self) -> float:
        """One pass over the training users; its mean loss."""
        return float(torch.stack([self.step(keys) for keys in self.keys()]).mean())
