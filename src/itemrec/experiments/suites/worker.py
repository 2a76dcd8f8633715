"""One run of a suite: train, evaluate, store per-user values, return the figures.

``python -m itemrec.experiments.suites.worker`` is a worker that performs one job after another.
"""

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

from itemrec.data.interactions import Interactions
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.evaluation.evaluate import evaluate
from itemrec.experiments.build import make_data, make_split, run_config
from itemrec.experiments.config import left_open
from itemrec.experiments.suites.processes import Answer, Job, serve
from itemrec.experiments.suites.values import keep_values
from itemrec.extensions import load_extensions
from itemrec.threads import tune_threads
from itemrec.training.run import Run

_loaded: dict[str, Interactions] = {}  # the data set of the last job


def perform(job: Job) -> Answer:
    """Perform a job; the answer has its figures, or the error that occurred."""
    try:
        return _perform(job)
    except ItemrecError as error:
        shutil.rmtree(job["unfinished"], ignore_errors=True)
        return {"error": str(error)}


def _perform(job: Job) -> Answer:
    started = time.perf_counter()
    run = _train(job)
    _evaluate_further(run, job)
    total = time.perf_counter() - started
    keep_values(Path(job["per_user"]), run.per_user, job["id"])
    figures = {
        "id": job["id"],
        **{key: run.metrics[key] for key in ("dataset", "protocol", "model", "loss", "negatives")},
        **{key: run.metrics[key] for key in ("best_epoch", "epochs", "refit")},
        "seconds": {**run.metrics["seconds"], "total": round(total, 3)},
        "judged": run.metrics["users"]["judged"],
        "valid": run.metrics["valid"],
        "test": run.metrics["test"],
        **{key: run.metrics[key] for key in ("chosen", "parts", "notes") if run.metrics.get(key)},
        "config": job["config"],
        "hardware": hardware(job["device"], job["jobs"]),
    }
    del run
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {"run": figures}


def _train(job: Job) -> Run:
    """Train, continuing an interrupted run if there is one."""
    config = left_open(_with_root(job))
    config.setdefault("train", {})["device"] = job["device"]
    data = load_data(config)
    folder = Path(job["unfinished"])
    if folder.exists():
        try:
            return run_config(config, folder, data=data, resume=True, progress=job["progress"])
        except ItemrecError:  # from an older version, or damaged: start again
            shutil.rmtree(folder)
    return run_config(config, folder, data=data, progress=job["progress"])


def _evaluate_further(run: Run, job: Job) -> None:
    """Compute the columns that training does not, such as those of the whole list."""
    known = run.metrics["test"]
    missing = [name for name in job["columns"] if name not in known]
    if missing:
        started = time.perf_counter()
        split = make_split(job["config"], load_data(_with_root(job)))
        split = split.refit() if run.metrics["refit"] else split
        before = run.metrics["seconds"]["evaluate"]
        found = evaluate(run, split, metrics=[*known, *missing])
        run.add_evaluation(found, before + time.perf_counter() - started)


def _with_root(job: Job) -> dict[str, dict[str, Any]]:
    """The settings of a job, with the location of its data on this machine."""
    config = {name: dict(section) for name, section in job["config"].items()}
    if job["data_root"] is not None:
        config["data"]["data_root"] = job["data_root"]
    return config


def load_data(config: dict[str, dict[str, Any]]) -> Interactions:
    """The data of a configuration; the last data set is cached."""
    key = json.dumps(config["data"], sort_keys=True)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = make_data(config)
    return _loaded[key]


def hardware(device: str, jobs: int) -> dict[str, Any]:
    """The hardware of a run; ``jobs`` runs shared it, which affects times."""
    picked = pick_device(device)
    on_gpu = picked.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(picked) if on_gpu else "CPU",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "jobs": jobs,
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


if __name__ == "__main__":
    tune_threads()  # what torch reads when it is loaded is in the environment of the command
    load_extensions()
    serve(perform)
