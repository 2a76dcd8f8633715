"""One run of a suite: train, evaluate, store per-user values, return the figures."""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from itemfold.data.interactions import Interactions
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluate import evaluate
from itemfold.experiments.build import make_data, make_split, run_config
from itemfold.experiments.suites.jobs import SuiteJob
from itemfold.experiments.suites.user_values import values_path, write_values
from itemfold.settings.schema import Config
from itemfold.training.interrupt import unless_stopped
from itemfold.training.run import Run

_loaded: dict[str, Interactions] = {}  # the data set of the last job


def perform_job(job: SuiteJob) -> dict[str, Any]:
    """Make a run and return what the store keeps of it."""
    started = time.perf_counter()
    try:
        run = unless_stopped(_train(job))
        _evaluate_missing_columns(run, job)
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
    """Train, continuing an interrupted run if there is one."""
    config = job.local_request
    config.setdefault("train", {})["device"] = job.options.device
    data, folder = load_data(config), job.unfinished
    progress = job.options.jobs == 1  # runs in parallel share one bar
    if folder.exists():
        try:
            return run_config(config, folder, data=data, resume=True, progress=progress)
        except ItemfoldError:  # from an older version, or damaged: start again
            shutil.rmtree(folder)
    return run_config(config, folder, data=data, progress=progress)


def _evaluate_missing_columns(run: Run, job: SuiteJob) -> None:
    """Compute the columns that training does not, such as metrics of the whole list."""
    known = run.metrics["test"]
    missing = [name for name in job.suite.columns if name not in known]
    if missing:
        started = time.perf_counter()
        split = make_split(run.config, load_data(job.local_config))
        split = split.refit() if run.metrics["refit"] else split
        before = run.metrics["seconds"]["evaluate"]
        found = evaluate(run, split, metrics=[*known, *missing])
        run.add_evaluation(found, before + time.perf_counter() - started)


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
