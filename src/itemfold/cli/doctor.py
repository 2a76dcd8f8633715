"""Checks of the installation: versions, devices, kernels and data."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import scipy.sparse as sp
import torch
from rich.table import Table
from rich.text import Text

from itemfold.data.datasets import DATASETS
from itemfold.data.named.find_dataset import cache_folder, dataset_parents
from itemfold.environment import EXTRAS, UNSUPPORTED
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import propagate
from itemfold.threads import usable_cpus

REQUIRED = ("torch", "numpy", "scipy", "safetensors", "tomli-w", "typer", "rich")
OPTIONAL = {
    "polars": "reading files",
    "matplotlib": "reports",
    "pandas": "pandas frames",
    "duckdb": "itemfold prepare",
    **{name: f"itemfold {extra}" for extra, names in EXTRAS.items() for name in names},
    "usearch": "itemfold export --to usearch",
    "faiss-cpu": "itemfold export --to faiss",
    "onnx": "itemfold export --to onnx",
    "onnxruntime": "itemfold export --to onnx",
    "mlflow-skinny": "itemfold train --track mlflow",
    "tensorboard": "itemfold train --track tensorboard",
}


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    name: str
    state: str  # ok; missing: optional; wrong: a required part does not work
    detail: str


def checks() -> list[Check]:
    """All checks; none needs a network."""
    out = [Check("python", "ok", f"{platform.python_version()} on {platform.machine()}")]
    out += [_package(name, required=True) for name in REQUIRED]
    out += [_package(name, required=False, use=use) for name, use in OPTIONAL.items()]
    cores = f"{usable_cpus()} of {os.cpu_count()} cores may be used"
    out.append(Check("cpu", "ok", f"{cores}, {torch.get_num_threads()} torch threads"))
    gpu = Check("gpu", "missing", f"{_why_no_gpu()}; everything runs on the CPU")
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        gpu = Check("gpu", "ok", f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB")
    out += [gpu, kernel("cpu"), *([kernel("cuda")] if torch.cuda.is_available() else [])]
    return out + [_dataset(name) for name in DATASETS]


def _why_no_gpu() -> str:
    """What torch finds instead of a CUDA GPU."""
    for name, found in (("mps", torch.backends.mps), ("xpu", torch.xpu)):
        if found.is_available():
            return f"not used: {UNSUPPORTED[name]}"
    return "torch finds none"


def doctor_table(found: Sequence[Check]) -> Table:
    """The checks on a terminal."""
    colours = {"ok": "green", "missing": "yellow", "wrong": "bold red"}
    table = Table.grid(padding=(0, 2))
    for check in found:
        state = Text(check.state, style=colours[check.state])
        table.add_row(check.name, state, Text(check.detail))
    return table


def kernel(device: str) -> Check:
    """Whether the fast propagation agrees with scipy on a small graph."""
    rng = np.random.default_rng(0)
    train = sp.csr_array((rng.random((7, 5)) < 0.5).astype(np.float32))
    x = rng.standard_normal((12, 8)).astype(np.float32)
    whole = np.zeros((12, 12), dtype=np.float32)
    whole[:7, 7:] = train.toarray()
    whole[7:, :7] = train.toarray().T
    degree = whole.sum(axis=1)
    root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)[:, None]
    expected = root * (sp.csr_array(whole) @ (root * x))
    name = f"propagation on {device}"
    try:
        found = propagate(Graph.from_csr(train, device), torch.from_numpy(x).to(device))
    except RuntimeError as error:
        return Check(name, "wrong", str(error).splitlines()[0])
    gap = float(np.abs(found.cpu().numpy() - expected).max())
    detail = f"largest difference from scipy {gap:.1e}"
    return Check(name, "ok" if gap < 1e-5 else "wrong", detail)


def _package(name: str, *, required: bool, use: str = "") -> Check:
    try:
        found = version(name)
    except PackageNotFoundError:
        module = importlib.util.find_spec(name.replace("-", "_"))
        if module is not None:
            return Check(name, "ok", "unknown version")
        why = f"needed for {use}" if use else "required"
        return Check(name, "wrong" if required else "missing", f"{why}: pip install {name}")
    return Check(name, "ok", found)


def _dataset(name: str) -> Check:
    entry = DATASETS[name]
    if entry.make is not None:
        return Check(f"data {name}", "ok", "generated, needs no file")
    for folder in (parent / name for parent in dataset_parents()):
        if folder.is_dir() if entry.by_users else (folder / entry.main_file).is_file():
            return Check(f"data {name}", "ok", str(folder))
    if entry.by_users:
        how, files = "not downloaded;", f"the files from {entry.home}"
    else:
        how = "downloaded on first use, or" if entry.files[0].urls else "not downloaded:"
        files = entry.main_file
    return Check(f"data {name}", "missing", f"{how} put {files} into {cache_folder() / name}")
