"""One run of a suite: train, write the small result file, keep the values of single users.

``python -m itemrec.experiments.suites.worker`` is a worker that does so for one job after another.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from itemrec.data.interactions import Interactions
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.evaluation.evaluate import evaluate
from itemrec.experiments.build import make_data, make_split, run_config
from itemrec.experiments.suites.processes import Answer, Job, serve
from itemrec.extensions import load_extensions
from itemrec.files import atomic
from itemrec.training.run import Run

_loaded: dict[str, Interactions] = {}  # the data set of the last job


def identity(content: Any) -> str:
    """A short name for settings: the start of the SHA-256 of their JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def perform(job: Job) -> Answer:
    """Do a job; the answer has its figures, or the error that it met."""
    try:
        return _perform(job)
    except ItemrecError as error:
        shutil.rmtree(job["unfinished"], ignore_errors=True)
        return {"error": str(error)}


def _perform(job: Job) -> Answer:
    started = time.perf_counter()
    run = _train(job)
    _judge_further(run, job)
    total = time.perf_counter() - started
    keep_values(Path(job["per_user"]), run.per_user, job["columns"], job["id"])
    result = {
        "suite": job["suite"],
        "row": job["row"],
        "data": job["entry"],
        "seed": job["seed"],
        "id": job["id"],
        **{key: run.metrics[key] for key in ("dataset", "protocol", "model", "loss", "negatives")},
        **{key: run.metrics[key] for key in ("best_epoch", "epochs", "refit")},
        "seconds": {**run.metrics["seconds"], "total": round(total, 3)},
        "judged": run.metrics["users"]["judged"],
        "valid": run.metrics["valid"],
        "test": run.metrics["test"],
        "config": job["config"],
        "hardware": hardware(job["device"], job["jobs"]),
    }
    write_json(Path(job["result"]), result)
    shutil.rmtree(job["unfinished"], ignore_errors=True)
    del run
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return {"seconds": total, "test": result["test"]}


def _train(job: Job) -> Run:
    """Train, from where an interrupted run stopped if there was one."""
    config = _with_root(job)
    config["train"]["device"] = job["device"]
    data = load_data(config)
    folder = Path(job["unfinished"])
    if folder.exists():
        try:
            return run_config(config, folder, data=data, resume=True, progress=job["progress"])
        except ItemrecError:  # of an older version, or damaged: from the start
            shutil.rmtree(folder)
    return run_config(config, folder, data=data, progress=job["progress"])


def _judge_further(run: Run, job: Job) -> None:
    """Add the columns that a run is not judged by anyway, such as those of the whole list."""
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
    """The settings of a job, with where its data lies on this machine."""
    config = {name: dict(section) for name, section in job["config"].items()}
    if job["data_root"] is not None:
        config["data"]["data_root"] = job["data_root"]
    return config


def load_data(config: dict[str, dict[str, Any]]) -> Interactions:
    """The data of a configuration; the last one loaded is at hand."""
    key = json.dumps(config["data"], sort_keys=True)
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = make_data(config)
    return _loaded[key]


def keep_values(
    path: Path, per_user: dict[str, npt.NDArray[Any]], columns: list[str], run: str
) -> None:
    """Write the values of single users for paired tests: float32, and which run they belong to."""
    values = {name: per_user[name].astype(np.float32) for name in columns if name in per_user}
    users = per_user["user"]
    if users.dtype.kind in "iu" and len(users) and abs(users).max() < 2**31:
        users = users.astype(np.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, user=users, run=np.array(run), **values)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as draft:
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        draft.write_text(text + "\n", encoding="utf-8")


def hardware(device: str, jobs: int) -> dict[str, Any]:
    """What a run was made on; times are of so many runs side by side."""
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
    load_extensions()
    serve(perform)
