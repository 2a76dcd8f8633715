"""Several processes answer at one socket; one that ends is replaced."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any

from itemrec.errors import ItemrecError
from itemrec.extensions import load_extensions
from itemrec.serving.http.access_log import log, set_up_logging
from itemrec.serving.http.telemetry import SHARED

if TYPE_CHECKING:
    from itemrec.serving.http.server import Job

CONTEXT = multiprocessing.get_context("spawn")  # a process that has loaded torch should not fork
PATIENCE = 20.0  # seconds for workers to end before they are killed
PAUSE = 1.0  # seconds before a worker that ended is replaced
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def supervise(job: Job, listener: socket.socket, n_workers: int, ready: Callable[[], None]) -> None:
    """Let workers do a job at a socket until a signal ends them all."""
    set_up_logging()
    with tempfile.TemporaryDirectory(prefix="itemrec-metrics-") as folder:
        os.environ[SHARED] = folder
        try:
            _Supervisor(job, listener, n_workers).run(ready)
        finally:
            del os.environ[SHARED]


class _Supervisor:
    """The workers, and the signals for them."""

    def __init__(self, job: Job, listener: socket.socket, n_workers: int) -> None:
        self.job, self.listener = job, listener
        n_keys = len(job.settings.api_keys)
        self.buckets = CONTEXT.Array("d", 2 * n_keys) if n_keys else None
        self.workers: dict[int, SpawnProcess] = {}
        self.n_workers, self.ending = n_workers, 0

    def run(self, ready: Callable[[], None]) -> None:
        """Start, watch, and end."""
        with self._signals():
            try:
                reports = [self._start() for _ in range(self.n_workers)]
                if self._await(reports):
                    ready()
                    self._watch()
            finally:
                self._end()
        if self.ending:  # end as the signal asks for
            signal.raise_signal(self.ending)

    def _start(self) -> Connection:
        """Start a worker; it reports once, when it answers or why it does not."""
        report, theirs = CONTEXT.Pipe(duplex=False)
        arguments = (self.job, self.listener, self.buckets, theirs)
        worker = CONTEXT.Process(target=_work, args=arguments, daemon=True)
        worker.start()
        theirs.close()
        assert worker.pid is not None
        self.workers[worker.pid] = worker
        return report

    def _await(self, reports: list[Connection]) -> bool:
        """Wait until all workers answer; False if a signal came before."""
        for report in reports:
            while not report.poll(0.2):
                if self.ending:
                    return False
            try:
                problem = report.recv()
            except EOFError:
                problem = "a worker ended before it was ready"
            if problem and not self.ending:
                raise ItemrecError(problem)
        return not self.ending

    def _watch(self) -> None:
        while not self.ending:
            wait([worker.sentinel for worker in self.workers.values()], timeout=0.2)
            for pid, worker in list(self.workers.items()):
                if worker.is_alive() or self.ending:
                    continue
                log(logging.ERROR, f"a worker ended with code {worker.exitcode} and is replaced")
                _forget(pid)
                del self.workers[pid]
                time.sleep(PAUSE)
                self._start()

    def _end(self) -> None:
        for worker in self.workers.values():
            if worker.is_alive():
                worker.terminate()
        deadline = time.monotonic() + PATIENCE
        for worker in self.workers.values():
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                worker.kill()
                worker.join()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _: Any) -> None:
            if number in (signal.SIGINT, signal.SIGTERM):
                self.ending = self.ending or number
                return
            for pid, worker in self.workers.items():
                if worker.is_alive():
                    os.kill(pid, number)

        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _work(
    job: Job,
    listener: socket.socket,
    buckets: MutableSequence[float] | None,
    report: Connection,
) -> None:
    """The life of a worker."""
    said = False

    def ready() -> None:
        nonlocal said
        if not said:
            said = True
            report.send("")

    try:
        load_extensions()
        job.run(listener, buckets, ready)
    except (ItemrecError, OSError) as error:
        if said:
            raise
        report.send(str(error))
    except KeyboardInterrupt:  # Ctrl-C: the server has ended in order
        pass


def _forget(pid: int) -> None:
    """Leave the gauges of a process that has ended out of the metrics."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
