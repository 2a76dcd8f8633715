"""Jobs in this process or in worker processes; a job that fails or dies fails alone.

Every worker is a process pool of one: a pool breaks as a whole when one of its processes dies. A
worker performs many jobs, so that Python, torch and a data set are loaded only once.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from itemfold.errors import ItemfoldError
from itemfold.extensions import load_extensions
from itemfold.threads import set_by_user, tune_threads, usable_cpus

J = TypeVar("J")
Perform = Callable[[J], dict[str, Any]]

DIED = "the worker process crashed or was killed; if memory ran out, use fewer --jobs"


@dataclass(frozen=True)
class JobResult:
    """What a job returned, or the message of the error that ended it."""

    content: dict[str, Any]
    error: str = ""
    unexpected: bool = False  # not an ItemfoldError: the GPU context may be unusable


def run_jobs(
    perform: Perform[J],
    jobs: Sequence[J],
    count: int,
    *,
    stop: Callable[[], bool],
    on_start: Callable[[J], None],
) -> Generator[tuple[J, JobResult], None, None]:
    """Yield each job with its result as it ends; jobs start in order until ``stop()`` is true.

    With a ``count`` of 1 they run in this process, otherwise in that many workers, which need a
    ``perform`` that can be imported. Closing the generator kills the workers.
    """
    if count > 1:
        yield from _run_in_workers(perform, jobs, count, stop, on_start)
        return
    for job in jobs:
        if stop():
            return
        on_start(job)
        yield job, _attempt(perform, job)


def _attempt(perform: Perform[J], job: J) -> JobResult:
    try:
        return JobResult(perform(job))
    except ItemfoldError as error:
        return JobResult({}, str(error))
    except Exception as error:
        traceback.print_exc()
        return JobResult({}, f"{type(error).__name__}: {error}", unexpected=True)


def _run_in_workers(
    perform: Perform[J],
    jobs: Sequence[J],
    count: int,
    stop: Callable[[], bool],
    on_start: Callable[[J], None],
) -> Iterator[tuple[J, JobResult]]:
    threads = 0 if set_by_user("OMP_NUM_THREADS") else max(1, usable_cpus() // count)
    waiting, idle = deque(jobs), list[_Worker]()
    running: dict[Future[JobResult], tuple[J, _Worker]] = {}
    try:
        while True:
            while waiting and len(running) < count and not stop():
                job, worker = waiting.popleft(), idle.pop() if idle else _Worker(threads)
                on_start(job)
                try:
                    future = worker.pool.submit(_attempt, perform, job)
                except BrokenProcessPool:  # it died after its last job
                    worker = _Worker(threads)
                    future = worker.pool.submit(_attempt, perform, job)
                running[future] = job, worker
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, worker = running.pop(future)
                try:
                    result = future.result()
                except BrokenProcessPool:
                    result = JobResult({}, DIED, unexpected=True)
                if result.unexpected:
                    worker.close()
                else:
                    idle.append(worker)
                yield job, result
    finally:
        for worker in [*idle, *(worker for _, worker in running.values())]:
            worker.close()


class _Worker:
    """A process that performs one job at a time, until it is closed or this process ends."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")
        lifeline, self.lifeline = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(1, context, _prepare_worker, (lifeline, threads))

    def close(self) -> None:
        """End the process, also in the middle of a job."""
        self.lifeline.close()
        self.pool.shutdown(cancel_futures=True)


def _prepare_worker(lifeline: Connection, threads: int) -> None:
    """Set up a worker process; this must not load torch, which reads OMP_NUM_THREADS."""

    def exit_with_parent() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()  # returns when the other end is closed
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends its workers
    os.dup2(2, 1)  # stdout is for the tables
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    tune_threads()  # before torch is loaded
    load_extensions()
