"""A run that two suites have in common is made once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from itemrec.evaluation.metrics import CATALOGUE_METRICS, parse_metric
from itemrec.experiments.suites.paired_tests import read_values
from itemrec.experiments.suites.processes import Job
from itemrec.experiments.suites.worker import write_json


def reuse_results(jobs: Iterable[Job], results: Path, per_user: Path) -> list[Job]:
    """Copy the results of other suites that have the very settings of a job; the jobs left to do.

    A result is taken with its figures, times and hardware if it has every column of the job, and
    the values of single users are at hand.
    """
    known: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path in sorted(results.glob("*/*/*-*.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            known.setdefault(stored["id"], []).append((path, stored))
        except (OSError, ValueError, KeyError):
            continue  # a damaged file is nothing to copy

    def taken(job: Job) -> bool:
        return any(_copy(job, path, it, results, per_user) for path, it in known.get(job["id"], ()))

    return [job for job in jobs if not taken(job)]


def _copy(job: Job, path: Path, stored: dict[str, Any], results: Path, per_user: Path) -> bool:
    columns = [parse_metric(name) for name in job["columns"]]
    single = {metric.key for metric in columns if metric.name not in CATALOGUE_METRICS}
    source = (per_user / path.relative_to(results)).with_suffix(".npz")
    values = read_values(source)
    if values is None or values.run != job["id"] or not single <= set(values.metrics):
        return False
    if not {metric.key for metric in columns} <= set(stored["test"]):
        return False
    target = Path(job["per_user"])
    if target != source:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    own = {"suite": job["suite"], "row": job["row"]}
    made = stored.get("made_by", f"{stored['suite']}/{stored['row']}")
    write_json(Path(job["result"]), {**stored, **own, "made_by": made})
    return True
