"""Perform jobs one by one in this process, or in parallel by workers."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence

from itemrec.experiments.suites.processes import Answer, Job, perform_all
from itemrec.experiments.suites.worker import perform
from itemrec.threads import usable_cpus

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
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
    yield from perform_all(
        todo, "itemrec.experiments.suites.worker", count, environment=environment, stop=late
    )
