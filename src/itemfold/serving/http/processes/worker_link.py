"""The two ends of the link between a worker process and its supervisor."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from itemfold.serving.http.processes.reloader import Reloader
from itemfold.serving.http.processes.versions import Order

BEAT_S = 0.5  # between two signs of life
LATE_S = 3.0  # without one, a worker gets no new connections while others can take them


@dataclass
class WorkerLink:
    """The worker's end: it receives connections and orders, and sends reports and heartbeats.

    Attributes:
        channel: Passes accepted connections.
        control: Passes orders to load runs, and reports.
        beat: The time of the last sign of life, in memory that both processes share.
    """

    channel: socket.socket
    control: Connection
    beat: Any  # a shared c_double

    def report(self, *content: object) -> None:
        """Send a report, which also counts as a heartbeat."""
        self.beat.value = time.monotonic()
        with suppress(OSError):  # the supervisor has died
            self.control.send(content)

    async def serve(self, reloader: Reloader) -> None:
        """Send heartbeats and follow orders until cancelled."""
        orders: asyncio.Queue[Order] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        loop.add_reader(self.control.fileno(), self._receive, orders)
        loading = asyncio.create_task(self._load(reloader, orders))
        try:
            while True:
                self.beat.value = time.monotonic()
                await asyncio.sleep(BEAT_S)
        finally:
            loop.remove_reader(self.control.fileno())
            loading.cancel()

    def _receive(self, orders: asyncio.Queue[Order]) -> None:
        try:
            orders.put_nowait(self.control.recv())
        except (EOFError, OSError):  # the supervisor has died
            asyncio.get_running_loop().remove_reader(self.control.fileno())

    async def _load(self, reloader: Reloader, orders: asyncio.Queue[Order]) -> None:
        while True:
            name, folder = await orders.get()
            self.report("loaded", await reloader.load(name, folder))


@dataclass(eq=False)
class Worker:
    """The supervisor's end.

    Attributes:
        folders: The folder from which it has loaded each run.
        is_ready: Whether the worker answers requests.
        problem: Why the worker could not start, or "".
        loaded: The result of the last order to load a run, None until it is known.
    """

    process: SpawnProcess
    channel: socket.socket
    control: Connection
    beat: Any
    folders: dict[str, Path]
    is_ready: bool = False
    problem: str = ""
    loaded: str | None = None

    def read_reports(self) -> None:
        """Read what the worker has reported."""
        try:
            while self.control.poll():
                kind, content = self.control.recv()
                if kind == "loaded":
                    self.loaded = content
                else:
                    self.is_ready, self.problem = kind == "ready", content
        except (EOFError, OSError):
            if not self.is_ready and not self.problem:
                self.problem = "a worker ended before it was ready"

    @property
    def silence(self) -> float:
        """Seconds since the last heartbeat."""
        return time.monotonic() - float(self.beat.value)

    def order(self, name: str, folder: Path) -> None:
        """Order the worker to load a run."""
        self.loaded = None
        with suppress(OSError):  # the worker has ended
            self.control.send((name, folder))

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
        self.control.close()
