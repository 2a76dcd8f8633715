"""The runs of a suite as jobs: JSON that a worker can perform without knowing the suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from itemrec.errors import ItemrecError
from itemrec.experiments.config import changes
from itemrec.experiments.suites.options import Options
from itemrec.experiments.suites.processes import Job
from itemrec.experiments.suites.store import RowKey, Store, identity
from itemrec.experiments.suites.suite import Cell, Suite
from itemrec.experiments.suites.values import values_path
from itemrec.experiments.suites.worker import load_data


def make_jobs(suite: Suite, cells: Sequence[Cell], options: Options) -> list[Job]:
    """A job for each seed of each cell."""
    root = options.data_root
    shared = {
        "suite": suite.name,
        "columns": list(suite.columns),
        "device": options.device,
        "jobs": options.jobs,
        "progress": options.jobs == 1,
        "data_root": None if root is None else str(Path(root).expanduser().resolve()),
    }
    return [job for cell in cells for job in _of_cell(cell, options, shared)]


def _of_cell(cell: Cell, options: Options, shared: dict[str, Any]) -> Iterator[Job]:
    for seed in range(options.seeds or cell.seeds):
        config = cell.seeded(seed)
        run = identity(config)
        started = identity([config, shared["device"], shared["data_root"]])
        yield {
            **shared,
            "row": cell.row,
            "entry": cell.entry.key,
            "seed": seed,
            "id": run,
            "config": config,
            "per_user": str(values_path(options.values, run)),
            "unfinished": str(options.values / "unfinished" / started),
        }


def row_key(job: Job) -> RowKey:
    """The row and seed that a job is for."""
    return job["entry"], job["row"], job["seed"]


def name_of(job: Job) -> str:
    """A readable name of a run."""
    return f"{job['entry']} {job['row']} seed {job['seed']}"


def is_done(job: Job, store: Store) -> bool:
    """Whether the result is stored with every column and with the settings of the suite."""
    stored = store.result(job["suite"], row_key(job))
    if stored is None or not set(job["columns"]) <= set(stored["test"]):
        return False
    return not changes(stored["config"], job["config"])


def with_data(jobs: Sequence[Job], console: Console) -> tuple[list[Job], dict[str, str]]:
    """The jobs whose data is available, and the reason for each data set that is not."""
    reasons: dict[str, str] = {}
    for job in {job["config"]["data"]["data"]: job for job in jobs}.values():
        config = {"data": dict(job["config"]["data"])}
        if job["data_root"] is not None:
            config["data"]["data_root"] = job["data_root"]
        try:
            load_data(config)
        except ItemrecError as error:
            reasons[config["data"]["data"]] = str(error)
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
    absent = {
        job["entry"]: reasons[job["config"]["data"]["data"]]
        for job in jobs
        if job["config"]["data"]["data"] in reasons
    }
    return [job for job in jobs if job["entry"] not in absent], absent
