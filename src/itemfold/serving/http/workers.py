"""Worker processes and their supervisor, which deals out connections and replaces dead workers.

If all workers accepted from one socket, the first to wake up would take most connections.
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
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.extensions import load_extensions
from itemfold.serving.http.access_log import log, set_up_logging
from itemfold.serving.http.server import BACKLOG, WorkerTask
from itemfold.serving.http.telemetry import MULTIPROCESS_DIR

CONTEXT = multiprocessing.get_context("spawn")  # a process that has loaded torch should not fork
DRAIN_S = 0.5  # connections are still accepted after the signal to stop
EXIT_TIMEOUT_S = 20.0  # then workers are killed
RESTART_DELAY_S = 1.0  # before a dead worker is replaced
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def supervise(
    task: WorkerTask, listener: socket.socket, n_workers: int, ready: Callable[[], None]
) -> None:
    """Serve a socket with several workers until a signal stops them all."""
    if not hasattr(socket, "send_fds"):
        raise ItemfoldError(f"'workers' must be 1 on this system, got {n_workers}")
    set_up_logging()
    with tempfile.TemporaryDirectory(prefix="itemfold-metrics-") as folder:
        os.environ[MULTIPROCESS_DIR] = folder
        try:
            _Supervisor(task, listener, n_workers).run(ready)
        finally:
            del os.environ[MULTIPROCESS_DIR]


@dataclass
class _Worker:
    """A process, the pipe for its report, and the channel for its connections."""

    process: SpawnProcess
    report: Connection
    channel: socket.socket
    is_ready: bool = False

    def check(self) -> str:
        """Update `is_ready`; return why the worker failed to start, or ""."""
        if self.is_ready or not self.report.poll():
            return ""
        try:
            problem = str(self.report.recv())
        except EOFError:
            problem = "a worker ended before it was ready"
        self.is_ready = not problem
        return problem

    def give(self, connection: socket.socket) -> bool:
        """Pass a connection on; return whether the worker takes it."""
        try:
            socket.send_fds(self.channel, [b"c"], [connection.fileno()])
        except OSError:  # the worker has ended, or its channel is full
            return False
        return True

    def close(self) -> None:
        """Close the channel and the pipe."""
        self.channel.close()
        self.report.close()


class _Supervisor:
    """Starts workers, deals out connections, and forwards signals."""

    def __init__(self, task: WorkerTask, listener: socket.socket, n_workers: int) -> None:
        self.task, self.listener = task, listener
        n_keys = task.settings.max_keys
        self.buckets = CONTEXT.Array("d", 2 * n_keys) if n_keys else None
        self.workers: list[_Worker] = []
        self.accepted: socket.socket | None = None  # a connection that no worker has taken yet
        self.n_workers, self.stop_signal, self.start_at = n_workers, 0, 0.0

    def run(self, ready: Callable[[], None]) -> None:
        """Start the workers, deal out connections until a signal arrives, then stop."""
        with self._signals():
            try:
                self.workers = [self._start() for _ in range(self.n_workers)]
                if self._await_all():
                    self.listener.setblocking(False)
                    self.listener.listen(BACKLOG)
                    ready()
                    while not self.stop_signal:
                        self._deal()
                        self._replace()
            finally:
                self._stop()
        if self.stop_signal:  # exit with the status of the signal
            signal.raise_signal(self.stop_signal)

    def _start(self) -> _Worker:
        """Start a worker; it reports once, "" when it is ready or else the error."""
        report, their_report = CONTEXT.Pipe(duplex=False)
        channel, their_channel = socket.socketpair()
        arguments = (self.task, their_channel, self.buckets, their_report)
        process = CONTEXT.Process(target=_run_worker, args=arguments, daemon=True)
        process.start()
        their_report.close()
        their_channel.close()
        channel.setblocking(False)
        return _Worker(process, report, channel)

    def _await_all(self) -> bool:
        """Wait until all workers are ready; False if a signal arrives first."""
        while not all(worker.is_ready for worker in self.workers):
            wait([worker.report for worker in self.workers if not worker.is_ready], timeout=0.2)
            for worker in self.workers:
                problem = worker.check()
                if problem and not self.stop_signal:
                    raise ItemfoldError(problem)
            if self.stop_signal:
                return False
        return True

    def _deal(self) -> None:
        """Wait briefly for connections and give each to the next worker in turn."""
        self._wait()
        while any(worker.is_ready for worker in self.workers):
            if self.accepted is None:
                try:
                    self.accepted, _ = self.listener.accept()
                except OSError:  # no more, or too many open files
                    return
            if not self._give(self.accepted):
                return  # keep it; the next connection waits for it
            self.accepted.close()
            self.accepted = None

    def _wait(self) -> None:
        """Wait at most 0.1 s for a connection and a worker that can take it."""
        ready = [worker for worker in self.workers if worker.is_ready]
        if not ready:
            wait([worker.report for worker in self.workers], timeout=0.1)
        elif self.accepted is None:
            wait([self.listener], timeout=0.1)
        else:
            select.select([], [worker.channel for worker in ready], [], 0.1)

    def _give(self, connection: socket.socket) -> bool:
        """Give a connection to the first worker that takes it; return whether one does."""
        for worker in self.workers:
            if worker.is_ready and worker.give(connection):
                self.workers.remove(worker)
                self.workers.append(worker)  # the others are first next time
                return True
        return False

    def _replace(self) -> None:
        """Replace workers that have ended, after a delay."""
        from prometheus_client.multiprocess import mark_process_dead

        for worker in list(self.workers):
            problem = worker.check()
            if worker.process.is_alive():
                continue
            code = worker.process.exitcode
            log(logging.ERROR, f"a worker ended with code {code} and is replaced", reason=problem)
            mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
            worker.close()
            self.workers.remove(worker)
            self.start_at = time.monotonic() + RESTART_DELAY_S
        if len(self.workers) < self.n_workers and time.monotonic() >= self.start_at:
            self.workers.append(self._start())

    def _stop(self) -> None:
        """Stop the workers: deal out the last connections, then wait for the processes."""
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.terminate()
        last = time.monotonic() + DRAIN_S
        while any(worker.is_ready for worker in self.workers) and time.monotonic() < last:
            self._deal()
        self.listener.close()
        if self.accepted is not None:
            self.accepted.close()
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        for worker in self.workers:
            worker.channel.close()  # tells the worker that no more connections follow
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _: Any) -> None:
            if number in (signal.SIGINT, signal.SIGTERM):
                self.stop_signal = self.stop_signal or number
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


def _run_worker(
    task: WorkerTask,
    channel: socket.socket,
    buckets: MutableSequence[float] | None,
    report: Connection,
) -> None:
    """The main function of a worker process."""
    with suppress(KeyboardInterrupt):  # after Ctrl-C the server has stopped in order
        try:
            load_extensions()
            task.run(channel, buckets, lambda: report.send(""), is_channel=True)
        except (ItemfoldError, OSError) as error:
            with suppress(OSError):
                report.send(str(error))
            raise SystemExit(1) from error
