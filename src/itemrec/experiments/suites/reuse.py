"""A run that several suites share is made once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from itemrec.evaluation.metrics import CATALOGUE_METRICS, parse_metric
from itemrec.experiments.suites.processes import Job
from itemrec.experiments.suites.store import Store, append, row_line
from itemrec.experiments.suites.values import read_values, values_path


def reuse_runs(jobs: Sequence[Job], store: Store, values: Path) -> list[Job]:
    """Let rows refer to stored runs with exactly their settings; returns the remaining jobs.

    A run is reused if it has every column of the job and its per-user values, which paired tests
    need, are available.
    """
    reused = [job for job in jobs if _reusable(job, store, values)]
    for suite in {job["suite"] for job in reused}:
        own = [job for job in reused if job["suite"] == suite]
        rows = [row_line(job["entry"], job["row"], job["seed"], job["id"]) for job in own]
        append(store.folder, suite, *rows)
    return [job for job in jobs if job not in reused]


def _reusable(job: Job, store: Store, values: Path) -> bool:
    run = store.run(job["suite"], job["id"])
    columns = [parse_metric(name) for name in job["columns"]]
    if run is None or not {metric.key for metric in columns} <= set(run["test"]):
        return False
    kept = read_values(values_path(values, job["id"]))
    of_users = {metric.key for metric in columns if metric.name not in CATALOGUE_METRICS}
    return kept is not None and kept.run == job["id"] and of_users <= set(kept.metrics)
