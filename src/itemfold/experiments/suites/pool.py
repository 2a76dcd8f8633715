"""Jobs in this process or in worker processes; a failing job does not affect others.

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
from typing import Any, Self, TypeVar

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
    unexpected: bool = False  # a bug or a crash: the GPU context may be unusable


def _attempt(perform: Perform[J], job: J) -> JobResult:
    try:
        return JobResult(perform(job))
    except ItemfoldError as error:
        return JobResult({}, str(error))
    except OSError as error:  # such as a full disk
        return JobResult({}, f"{error.filename or 'a file'}: {error.strerror or error}")
    except Exception as error:
        traceback.print_exc()
        return JobResult({}, f"{type(error).__name__}: {error}", unexpected=True)


class Pool:
    """Performs jobs in ``count`` worker processes, or in this process if ``count`` is 1.

    Workers start on demand and are reused until the pool is closed.
    They need a ``perform`` that can be imported.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.idle: list[_Worker] = []
        # the user's choice, or a share of the cores
        chosen = set_by_user("OMP_NUM_THREADS")
        self.threads = 0 if chosen else max(1, usable_cpus() // count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        while self.idle:
            self.idle.pop().close()

    def run(
        self,
        perform: Perform[J],
        jobs: Sequence[J],
        *,
        stop: Callable[[], bool],
        on_start: Callable[[J], None],
    ) -> Generator[tuple[J, JobResult], None, None]:
        """Yield each job with its result; jobs start in order until ``stop()`` is true.

        Closing the generator kills the workers of the jobs that have not ended.
        """
        if self.count > 1:
            yield from self._in_workers(perform, jobs, stop, on_start)
            return
        for job in jobs:
            if stop():
                return
            on_start(job)
            yield job, _attempt(perform, job)

    def _in_workers(
        self,
        perform: Perform[J],
        jobs: Sequence[J],
        stop: Callable[[], bool],
        on_start: Callable[[J], None],
    ) -> Iterator[tuple[J, JobResult]]:
        waiting = deque(jobs)
        running: dict[Future[JobResult], tuple[J, _Worker]] = {}
        try:
            while True:
                while waiting and len(running) < self.count and not stop():
                    job = waiting.popleft()
                    on_start(job)
                    future, worker = self._submit(perform, job)
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
                        self.idle.append(worker)
                    yield job, result
        finally:
            for _, worker in running.values():
                worker.close()

    def _submit(self, perform: Perform[J], job: J) -> tuple[Future[JobResult], _Worker]:
        """Submit a job to a worker; a worker that has died is replaced."""
        while self.idle:
            worker = self.idle.pop()
            with suppress(BrokenProcessPool):
                return worker.pool.submit(_attempt, perform, job), worker
            worker.close()
        worker = _Worker(self.threads)
        return worker.pool.submit(_attempt, perform, job), worker


class _Worker:
    """A process that performs one job at a time, until it is closed or this process ends."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")
        lifeline, self.lifeline = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(1, context, _prepare_worker, (lifeline, threads))

    def close(self) -> None:
        """Kill the process, even during a job."""
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
