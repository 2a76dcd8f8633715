"""One run of a suite: train, evaluate, store per-user values, return the figures."""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from itemfold.data.interactions import Interactions
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.evaluation.metrics import HEADLINES, METRICS
from itemfold.experiments.build import make_data, run_config
from itemfold.experiments.suites.jobs import SuiteJob
from itemfold.experiments.suites.user_values import values_path, write_values
from itemfold.settings.schema import Config
from itemfold.training.interrupt import raise_if_stopped
from itemfold.training.run import Run

# stored for every run besides the columns of its suite, so that another suite can use it
ALWAYS = [f"{name}@20" for name in dict.fromkeys([*METRICS, *HEADLINES])]

_loaded: dict[str, Interactions] = {}  # the data set of the last job


def perform_job(job: SuiteJob) -> dict[str, Any]:
    """Make a run and return its line for the store."""
    started = time.perf_counter()
    try:
        run = raise_if_stopped(_train(job))
    except ItemfoldError:
        shutil.rmtree(job.unfinished, ignore_errors=True)
        raise
    total = time.perf_counter() - started
    write_values(values_path(job.options.values, job.id), run.per_user, job.id)
    figures = {
        "id": job.id,
        **{key: run.metrics[key] for key in ("dataset", "protocol", "model", "loss", "negatives")},
        **{key: run.metrics[key] for key in ("best_epoch", "epochs", "refit")},
        "seconds": {**run.metrics["seconds"], "total": round(total, 3)},
        "judged": run.metrics["users"]["judged"],
        "valid": run.metrics["valid"],
        "test": run.metrics["test"],
        **{key: run.metrics[key] for key in ("chosen", "parts", "notes") if run.metrics.get(key)},
        "config": job.config,
        "hardware": hardware(job.options.device, job.options.jobs),
    }
    del run
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return figures


def _train(job: SuiteJob) -> Run:
    """Train, or resume an interrupted run."""
    config = job.local_request
    config.setdefault("train", {})["device"] = job.options.device
    make = partial(
        run_config,
        config,
        job.unfinished,
        data=load_data(config),
        progress=job.options.jobs == 1,  # runs in parallel share one bar
        metrics=list(dict.fromkeys([*job.suite.columns, *ALWAYS])),
    )
    if job.unfinished.exists():
        try:
            return make(resume=True)
        except ItemfoldError:  # from an older version, or damaged: start again
            shutil.rmtree(job.unfinished)
    return make()


def load_data(config: Config) -> Interactions:
    """The data of a configuration; the last data set is cached."""
    key = json.dumps(config["data"], sort_keys=True)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = make_data(config)
    return _loaded[key]


def hardware(device: str, workers: int) -> dict[str, Any]:
    """The hardware of a run; ``workers`` runs shared it, which affects times."""
    picked = pick_device(device)
    return {
        "device": torch.cuda.get_device_name(picked) if picked.type == "cuda" else "CPU",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "jobs": workers,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
