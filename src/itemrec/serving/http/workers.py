"""Several processes answer; this one takes the connections, deals them out and replaces the dead.

If all processes took connections from one socket, the first to wake up would take most of them.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
FAREWELL = 0.5  # seconds in which connections are still taken when the service ends
PATIENCE = 20.0  # seconds for workers to end before they are killed
PAUSE = 1.0  # seconds before a worker that ended is replaced
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def supervise(job: Job, listener: socket.socket, n_workers: int, ready: Callable[[], None]) -> None:
    """Let workers do a job at a socket until a signal ends them all."""
    if not hasattr(socket, "send_fds"):
        raise ItemrecError(f"'workers' must be 1 on this system, got {n_workers}")
    set_up_logging()
    with tempfile.TemporaryDirectory(prefix="itemrec-metrics-") as folder:
        os.environ[SHARED] = folder
        try:
            _Supervisor(job, listener, n_workers).run(ready)
        finally:
            del os.environ[SHARED]


@dataclass
class _Worker:
    """A process, the pipe by which it reports, and the socket by which it gets connections."""

    process: SpawnProcess
    report: Connection
    channel: socket.socket
    is_ready: bool = False

    def check(self) -> str:
        """Note whether the worker is ready; returns why it never will be."""
        if self.is_ready or not self.report.poll():
            return ""
        try:
            problem = str(self.report.recv())
        except EOFError:
            problem = "a worker ended before it was ready"
        self.is_ready = not problem
        return problem

    def give(self, connection: socket.socket) -> bool:
        """Hand a connection over; returns whether that was possible."""
        try:
            socket.send_fds(self.channel, [b"c"], [connection.fileno()])
        except OSError:  # it has ended, or takes none at the moment
            return False
        return True


class _Supervisor:
    """The workers, and the signals for them."""

    def __init__(self, job: Job, listener: socket.socket, n_workers: int) -> None:
        self.job, self.listener = job, listener
        n_keys = len(job.settings.api_keys)
        self.buckets = CONTEXT.Array("d", 2 * n_keys) if n_keys else None
        self.workers: list[_Worker] = []
        self.accepted: socket.socket | None = None  # a connection that no worker could take yet
        self.n_workers, self.ending, self.start_at = n_workers, 0, 0.0

    def run(self, ready: Callable[[], None]) -> None:
        """Start, watch, and end."""
        with self._signals():
            try:
                self.workers = [self._start() for _ in range(self.n_workers)]
                if self._await_all():
                    self.listener.setblocking(False)
                    self.listener.listen(self.job.backlog)
                    ready()
                    while not self.ending:
                        self._deal()
                        self._replace()
            finally:
                self._end()
        if self.ending:  # end as the signal asks for
            signal.raise_signal(self.ending)

    def _start(self) -> _Worker:
        """Start a worker; it reports once, when it answers or why it does not."""
        report, their_report = CONTEXT.Pipe(duplex=False)
        channel, their_channel = socket.socketpair()
        arguments = (self.job, their_channel, self.buckets, their_report)
        process = CONTEXT.Process(target=_work, args=arguments, daemon=True)
        process.start()
        their_report.close()
        their_channel.close()
        channel.setblocking(False)
        return _Worker(process, report, channel)

    def _await_all(self) -> bool:
        """Wait until all workers answer; False if a signal came before."""
        while not all(worker.is_ready for worker in self.workers):
            wait([worker.report for worker in self.workers if not worker.is_ready], timeout=0.2)
            for worker in self.workers:
                problem = worker.check()
                if problem and not self.ending:
                    raise ItemrecError(problem)
            if self.ending:
                return False
        return True

    def _deal(self) -> None:
        """Wait a moment for connections and give each to the worker whose turn it is."""
        self._wait()
        while any(worker.is_ready for worker in self.workers):
            if self.accepted is None:
                try:
                    self.accepted, _ = self.listener.accept()
                except OSError:  # no more, or too many open files
                    return
            if not self._give(self.accepted):
                return  # it is the next one's turn when this one is given away
            self.accepted.close()
            self.accepted = None

    def _wait(self) -> None:
        """Wait until there is a connection and a worker for it, but not for long."""
        ready = [worker for worker in self.workers if worker.is_ready]
        if not ready:
            wait([worker.report for worker in self.workers], timeout=0.1)
        elif self.accepted is None:
            wait([self.listener], timeout=0.1)
        else:
            select.select([], [worker.channel for worker in ready], [], 0.1)

    def _give(self, connection: socket.socket) -> bool:
        """Hand a connection to the first worker that takes it; returns whether there is one."""
        for worker in self.workers:
            if worker.is_ready and worker.give(connection):
                self.workers.remove(worker)
                self.workers.append(worker)  # the others are first next time
                return True
        return False

    def _replace(self) -> None:
        """Start a worker for each that has ended, after a pause."""
        for worker in list(self.workers):
            problem = worker.check()
            if worker.process.is_alive():
                continue
            code = worker.process.exitcode
            log(logging.ERROR, f"a worker ended with code {code} and is replaced", reason=problem)
            _forget(worker.process.pid)
            self._close(worker)
            self.workers.remove(worker)
            self.start_at = time.monotonic() + PAUSE
        if len(self.workers) < self.n_workers and time.monotonic() >= self.start_at:
            self.workers.append(self._start())

    def _end(self) -> None:
        """Tell the workers to end, hand over what still comes in for a moment, then wait."""
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.terminate()
        last = time.monotonic() + FAREWELL
        while any(worker.is_ready for worker in self.workers) and time.monotonic() < last:
            self._deal()
        self.listener.close()
        if self.accepted is not None:
            self.accepted.close()
        deadline = time.monotonic() + PATIENCE
        for worker in self.workers:
            worker.channel.close()  # there are no further connections
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            self._close(worker)

    def _close(self, worker: _Worker) -> None:
        worker.channel.close()
        worker.report.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _: Any) -> None:
            if number in (signal.SIGINT, signal.SIGTERM):
                self.ending = self.ending or number
                return
            for worker in self.workers:
                if worker.process.pid and worker.process.is_alive():
                    os.kill(worker.process.pid, number)

        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _work(
    job: Job,
    channel: socket.socket,
    buckets: MutableSequence[float] | None,
    report: Connection,
) -> None:
    """The life of a worker."""
    with suppress(KeyboardInterrupt):  # after Ctrl-C the server has ended in order
        try:
            load_extensions()
            job.run(channel, buckets, lambda: report.send(""), is_channel=True)
        except (ItemrecError, OSError) as error:
            with suppress(OSError):
                report.send(str(error))
            raise SystemExit(1) from error


def _forget(pid: int | None) -> None:
    """Leave the gauges of a process that has ended out of the metrics."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
