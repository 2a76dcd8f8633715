"""The runs of a suite as jobs: JSON that a worker can perform without knowing the suite."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from itemrec.errors import ItemrecError
from itemrec.evaluation.metrics import parse_metric
from itemrec.experiments.config import changes
from itemrec.experiments.suites.options import Options
from itemrec.experiments.suites.processes import Answer, Job, perform_all
from itemrec.experiments.suites.store import RowKey, Store, append, identity, row_line
from itemrec.experiments.suites.suite import Cell, Suite
from itemrec.experiments.suites.values import values_path
from itemrec.experiments.suites.worker import load_data, perform
from itemrec.threads import set_by_user, usable_cpus


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


# --- runs that several suites share are made once ------------------------------------------------


def reuse_runs(jobs: Sequence[Job], store: Store) -> list[Job]:
    """Let rows refer to stored runs with exactly their settings; returns the remaining jobs.

    A run is reused if it has every column of the job. Paired tests also need its per-user values;
    where these are not at hand, a row has its figures but no test.
    """
    reused = [job for job in jobs if _reusable(job, store)]
    for suite in {job["suite"] for job in reused}:
        own = [job for job in reused if job["suite"] == suite]
        rows = [row_line(job["entry"], job["row"], job["seed"], job["id"]) for job in own]
        append(store.folder, suite, *rows)
    return [job for job in jobs if job not in reused]


def _reusable(job: Job, store: Store) -> bool:
    run = store.run(job["suite"], job["id"])
    columns = {parse_metric(name).key for name in job["columns"]}
    return run is not None and columns <= set(run["test"])


# --- one by one in this process, or in parallel by workers --------------------------------------

Step = tuple[str, Job, Answer]


def perform_jobs(todo: Sequence[Job], count: int, late: Callable[[], bool]) -> Iterator[Step]:
    """Yield ("start" | "end", job, answer) for each job; none starts once ``late()`` is true."""
    return _one_by_one(todo, late) if count == 1 else _side_by_side(todo, count, late)


def _one_by_one(todo: Sequence[Job], late: Callable[[], bool]) -> Iterator[Step]:
    for job in todo:
        if late():
            return
        yield "start", job, {}
        try:
            answer = perform(job)
        except Exception as error:  # only this job fails, as in a worker
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        yield "end", job, answer


def _side_by_side(todo: Sequence[Job], count: int, late: Callable[[], bool]) -> Iterator[Step]:
    threads = str(max(1, usable_cpus() // count))
    environment = {} if set_by_user("OMP_NUM_THREADS") else {"OMP_NUM_THREADS": threads}
    yield from perform_all(
        todo, "itemrec.experiments.suites.worker", count, environment=environment, stop=late
    )
