"""Shared by the benchmarks: options, clocks, memory, the package's training step, and verdicts."""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import itemfold  # isort: skip

itemfold.tune_threads()  # as a command does, before torch is imported

import numpy as np
import torch
from torch import Tensor

from itemfold.data.datasets import load
from itemfold.data.interactions import IdMap
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.models.lightgcn import LightGCN
from itemfold.sampling import Sampler, Uniform
from itemfold.settings.resolve import Request, resolve
from itemfold.settings.schema import TrainConfig
from itemfold.training.learner import Learner


def parser(text: str | None, data: str | None = None) -> argparse.ArgumentParser:
    """The options of every benchmark; ``data`` is the default data set, None if none is read."""
    out = argparse.ArgumentParser(description=text)
    if data is not None:
        out.add_argument("data", nargs="?", default=data, help="built-in name or path")
        out.add_argument("--data-root", help="folder of the data sets (default: ITEMFOLD_DATA)")
    out.add_argument("--threads", type=int, default=2)
    out.add_argument("--quick", action="store_true", help="few repetitions: only a check")
    return out


def begin(options: argparse.Namespace) -> Split:
    """Set threads, load the data and print the hardware; the whole training file is used."""
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
    """Median seconds of each task; the tasks take turns, so that a busy moment affects them all."""
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
    """Return freed memory to the system, so that its next use counts, and reset the peak."""
    getattr(ctypes.CDLL(None), "malloc_trim", lambda padding: 0)(0)
    Path("/proc/self/clear_refs").write_text("5")


# --- verdicts ------------------------------------------------------------------------------------


class Verdicts:
    """Figures with their bounds; the last line shows whether all bounds of a script hold."""

    def __init__(self) -> None:
        self.good = True

    def also(self, name: str, value: float, bound: float, *, at_least: bool = False) -> None:
        """An additional figure."""
        good = value >= bound if at_least else value <= bound
        self.good = self.good and good
        print(f"also {name} {value:.4g} {bound:g} {'pass' if good else 'short'}")

    def last(self, name: str, value: float, bound: float, *, at_least: bool = False) -> None:
        """The main figure, which is short if any figure is."""
        good = (value >= bound if at_least else value <= bound) and self.good
        print(f"{name} {value:.4g} {bound:g} {'pass' if good else 'short'}")


# --- the package ---------------------------------------------------------------------------------


def split_of(train: Any) -> Split:
    """A split that has nothing but these training interactions."""
    empty = train[:0]
    return Split(
        protocol="transductive",
        train=train,
        valid=None,
        test=HeldOut(empty, empty, np.empty(0, np.int64), np.empty(0)),
        user_ids=IdMap(np.arange(train.shape[0])),
        item_ids=IdMap(np.arange(train.shape[1])),
        titles=None,
        genres=None,
        dataset={},
        settings={},
    )


class Training(Learner):
    """LightGCN trained as by `itemfold.train`, one step or one epoch at a time."""

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
        split = split_of(train)
        sampler = negatives if negatives is not None else Uniform()
        parts = {"model": LightGCN(dim, layers), "loss": loss, "negatives": sampler}
        settings = resolve(Request({**parts, "train": {**asdict(config), "device": device}}))
        super().__init__(settings.make_model(), settings, split)

        self.recorded = self.recorded_step()

    def epoch(self) -> float:  # type: ignore[override]
        """One pass over the training users; returns the mean loss."""
        return super().epoch(self.recorded)

    def keys(self) -> Tensor:
        """The batches of an epoch, one per row."""
        return self.batches.epoch(self.generator)
