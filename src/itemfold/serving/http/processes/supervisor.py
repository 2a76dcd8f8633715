"""Worker processes and their supervisor, which distributes connections and replaces workers.

If all workers accepted from one socket, the first to wake up would take most connections. Workers
load what the supervisor has accepted, so that one replaced after a failed reload has the old run.
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
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_double
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.extensions import load_extensions
from itemfold.serving.http.monitoring.log import log, set_up_logging
from itemfold.serving.http.monitoring.telemetry import MULTIPROCESS_DIR
from itemfold.serving.http.processes.staggered import StaggeredReload
from itemfold.serving.http.processes.versions import POLL_S, Versions
from itemfold.serving.http.processes.worker import BACKLOG, WorkerTask
from itemfold.serving.http.processes.worker_link import LATE_S, Worker, WorkerLink

CONTEXT = multiprocessing.get_context("spawn")  # a process that has loaded torch should not fork
DRAIN_S = 0.5  # connections are still accepted after the signal to stop
EXIT_TIMEOUT_S = 20.0  # then workers are killed
RESTART_DELAY_S, MAX_RESTART_DELAY_S = 1.0, 60.0  # before a dead worker is replaced
DEALT_AT_ONCE = 256  # connections, before workers are looked after
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")


def supervise(
    task: WorkerTask,
    listeners: Sequence[socket.socket],
    n_workers: int,
    ready: Callable[[], None],
) -> None:
    """Serve sockets with several workers until a signal stops them all."""
    if not hasattr(socket, "send_fds"):
        raise ItemfoldError(f"'workers' must be 1 on this system, got {n_workers}")
    set_up_logging()
    with tempfile.TemporaryDirectory(prefix="itemfold-metrics-") as folder:
        os.environ[MULTIPROCESS_DIR] = folder
        supervisor = _Supervisor(task, listeners, n_workers)
        try:
            supervisor.run(ready)
        finally:
            del os.environ[MULTIPROCESS_DIR]
    number = supervisor.stop_signal
    del supervisor  # with the lock of its buckets, which a signal would leave behind
    if number:  # exit with the status of the signal
        signal.raise_signal(number)


class _Supervisor:
    """Starts workers, distributes connections, replaces workers and runs, and handles signals."""

    def __init__(
        self, task: WorkerTask, listeners: Sequence[socket.socket], n_workers: int
    ) -> None:
        self.task, self.listeners, self.n_workers = task, listeners, n_workers
        n_keys = task.settings.max_keys
        self.buckets = CONTEXT.Array("d", 2 * n_keys) if n_keys else None
        self.versions = Versions(task.folders, task.settings.item_files)
        self.reload = StaggeredReload(self.versions)
        self.workers: list[Worker] = []
        self.accepted: socket.socket | None = None  # a connection that no worker has taken yet
        self.stop_signal, self.start_at, self.poll_at, self.failures = 0, 0.0, 0.0, 0
        self.reload_all = self.roll_back = False

    def run(self, ready: Callable[[], None]) -> None:
        """Start the workers, distribute connections until a signal arrives, then stop."""
        with self._signals():
            try:
                self.workers = [self._start() for _ in range(self.n_workers)]
                if self._await_all():
                    for listener in self.listeners:
                        listener.setblocking(False)
                        listener.listen(BACKLOG)
                    ready()
                    while not self.stop_signal:
                        self._deal()
                        self._look_after()
                        self._load_runs()
            finally:
                self._stop()

    # --- workers ---------------------------------------------------------------------------------

    def _start(self) -> Worker:
        """Start a worker, which loads the accepted runs and reports when it is ready."""
        control, their_control = CONTEXT.Pipe()
        channel, their_channel = socket.socketpair()
        beat = CONTEXT.Value(c_double, time.monotonic(), lock=False)  # its last heartbeat
        task = replace(self.task, folders=dict(self.versions.accepted))
        link = WorkerLink(their_channel, their_control, beat)
        arguments = (task, link, self.buckets)
        process = CONTEXT.Process(target=_run_worker, args=arguments, daemon=True)
        process.start()
        their_control.close()
        their_channel.close()
        channel.setblocking(False)
        return Worker(process, channel, control, beat, task.folders)

    def _await_all(self) -> bool:
        """Wait until all workers are ready; False if a signal arrives first."""
        while not all(worker.is_ready for worker in self.workers):
            wait([worker.control for worker in self.workers if not worker.is_ready], timeout=0.2)
            for worker in self.workers:
                worker.read_reports()
                if worker.problem and not self.stop_signal:
                    raise ItemfoldError(worker.problem)
            if self.stop_signal:
                return False
        return True

    def _look_after(self) -> None:
        """Read reports, kill hanging workers, and replace those that have exited."""
        for worker in list(self.workers):
            was_ready = worker.is_ready
            worker.read_reports()
            if worker.is_ready and not was_ready:
                self.failures = 0
            if worker.is_ready and worker.silence > self.task.settings.limits.watchdog_s:
                log(logging.ERROR, f"a worker gave no sign of life for {worker.silence:.0f} s")
                worker.process.kill()
                worker.process.join()
            if not worker.process.is_alive():
                self._remove(worker)
        if len(self.workers) < self.n_workers and time.monotonic() >= self.start_at:
            self.workers.append(self._start())

    def _remove(self, worker: Worker) -> None:
        """Remove a worker that has exited; its replacement starts after a delay."""
        from prometheus_client.multiprocess import mark_process_dead

        worker.read_reports()
        code = worker.process.exitcode
        delay = min(MAX_RESTART_DELAY_S, RESTART_DELAY_S * 2**self.failures)
        self.failures += not worker.is_ready
        log(
            logging.ERROR,
            f"a worker ended with code {code} and is replaced",
            reason=worker.problem,
            delay_s=delay,
        )
        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]
        worker.close()
        self.workers.remove(worker)
        self.start_at = time.monotonic() + delay

    def _load_runs(self) -> None:
        """Pass new versions of runs on to the workers."""
        if self.roll_back:
            self.roll_back = False
            self.reload.add(self.versions.rollback())
        now = time.monotonic()
        if self.reload_all or now >= self.poll_at:
            at_once, self.reload_all, self.poll_at = self.reload_all, False, now + POLL_S
            self.reload.add(self.versions.poll(at_once=at_once))
        self.reload.step(self.workers)

    # --- connections -----------------------------------------------------------------------------

    def _deal(self) -> None:
        """Wait briefly for connections and give each to the next worker in turn."""
        self._wait()
        for _ in range(DEALT_AT_ONCE):
            if not any(worker.is_ready for worker in self.workers):
                return
            if self.accepted is None and not self._accept():
                return
            assert self.accepted is not None
            if not self._give(self.accepted):
                return  # keep it; the next connection waits for it
            self.accepted.close()
            self.accepted = None

    def _accept(self) -> bool:
        """Accept a connection; return False if there is none, or too many files are open."""
        for listener in self.listeners:
            with suppress(OSError):
                self.accepted, _ = listener.accept()
                return True
        return False

    def _wait(self) -> None:
        """Wait at most 0.1 s for a connection and a worker that can take it."""
        ready = [worker for worker in self.workers if worker.is_ready]
        if not ready:
            wait([worker.control for worker in self.workers], timeout=0.1)
        elif self.accepted is None:
            wait(self.listeners, timeout=0.1)
        else:
            select.select([], [worker.channel for worker in ready], [], 0.1)

    def _give(self, connection: socket.socket) -> bool:
        """Give a connection to the first worker that takes it; return whether one does."""
        ready = [worker for worker in self.workers if worker.is_ready]
        for worker in sorted(ready, key=lambda worker: worker.silence > LATE_S):
            if worker.give(connection):
                self.workers.remove(worker)
                self.workers.append(worker)  # the others are first next time
                return True
        return False

    # --- the end ---------------------------------------------------------------------------------

    def _stop(self) -> None:
        """Stop the workers: distribute the last connections, then wait for the processes."""
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.terminate()
        last = time.monotonic() + DRAIN_S
        while any(worker.is_ready for worker in self.workers) and time.monotonic() < last:
            self._deal()
        for listener in self.listeners:
            listener.close()
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
            elif number == signal.SIGHUP:
                self.reload_all = True
            else:
                self.roll_back = True

        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_worker(task: WorkerTask, link: WorkerLink, buckets: MutableSequence[float] | None) -> None:
    """The main function of a worker process."""
    with suppress(KeyboardInterrupt):  # after Ctrl-C the server has stopped in order
        try:
            load_extensions()
            task.run(link, buckets, lambda: link.report("ready", ""))
        except (ItemfoldError, OSError) as error:
            link.report("failed", str(error))
            raise SystemExit(1) from error
