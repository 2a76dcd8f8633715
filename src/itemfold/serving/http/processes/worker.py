"""A worker process of the service: load the runs, then serve requests."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn

from itemfold.serving.http.app import create_app
from itemfold.serving.http.monitoring.log import set_up_logging
from itemfold.serving.http.processes.worker_link import WorkerLink
from itemfold.serving.http.protocol.connection import LimitedConnection
from itemfold.serving.http.protocol.connection_pool import ConnectionPool, connection_limit
from itemfold.serving.http.runs import ServedRuns
from itemfold.serving.http.settings import ServiceSettings

BACKLOG = 4096  # connections that the system queues: beyond it, clients wait for seconds
GC_THRESHOLDS = (10_000, 10, 20)  # the usual (700, 10, 10) suit small programs
ACCEPT_BATCH = 16  # connections accepted at a time: fewer than there are spare files
DRAIN_STEP_S = 1.0  # longest wait for new connections to end, and then for open ones to close


def exempt_from_collection() -> None:
    """Exempt all loaded objects from garbage collection, and make collections rarer.

    A full collection of them takes 0.2 s. A replaced run is freed nevertheless, because it contains
    no reference cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


@dataclass(frozen=True)
class WorkerTask:
    """The task of one process: load the runs, then serve requests. It can be pickled."""

    folders: dict[str, Path]
    split: dict[str, float]
    device: str
    settings: ServiceSettings

    def run(
        self,
        source: Sequence[socket.socket] | WorkerLink,
        buckets: MutableSequence[float] | None,
        ready: Callable[[], None],
    ) -> None:
        """Serve requests until a signal arrives.

        Args:
            source: Sockets to listen on, or the link to a supervisor.
            buckets: Token buckets of the rate limit that workers share.
            ready: Called when requests are answered.
        """
        for name in ("SIGHUP", "SIGUSR1"):  # ignored until loaded: there is nothing to reload yet
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        set_up_logging()
        sys.setswitchinterval(0.0005)  # scoring must not wait for a busy event loop
        torch.set_num_threads(1)  # a request is one product: other cores serve other requests
        loaded = {name: self.settings.load(f, self.device) for name, f in self.folders.items()}
        app = create_app(
            ServedRuns(loaded, self.split),
            self.settings,
            folders={} if isinstance(source, WorkerLink) else self.folders,
            device=self.device,
            buckets=buckets,
        )
        exempt_from_collection()
        limits = self.settings.limits
        app.state.connections = ConnectionPool(limits, connection_limit(limits.max_connections))
        config = uvicorn.Config(
            app,
            http=LimitedConnection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=limits.shutdown_s,  # type: ignore[arg-type]
            backlog=ACCEPT_BATCH,
        )
        link = source if isinstance(source, WorkerLink) else None
        server = DrainingServer(config, app.state, ready, link)
        server.run(sockets=[] if isinstance(source, WorkerLink) else list(source))


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains connections before it stops, and replaces runs on signals."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: Any,
        ready: Callable[[], None],
        link: WorkerLink | None,
    ) -> None:
        super().__init__(config)
        self.state, self.ready, self.link = state, ready, link
        self.channel = None if link is None else link.channel
        self._linked: asyncio.Task[None] | None = None
        self._arriving: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving requests."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        reloader = self.state.reloader
        if self.link is not None:
            self.link.channel.setblocking(False)
            loop.add_reader(self.link.channel, self._receive, self.link.channel)
            self._linked = loop.create_task(self.link.serve(reloader))
        elif hasattr(signal, "SIGHUP"):  # workers are told by their supervisor
            loop.add_signal_handler(signal.SIGHUP, reloader.reload_all)
            loop.add_signal_handler(signal.SIGUSR1, reloader.roll_back)
        for listener in sockets or []:
            listener.listen(BACKLOG)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain connections, then stop; responses ask clients to close."""
        self.state.stopping.set()
        connections = self.server_state.connections
        if self.channel is not None:  # until the supervisor closes it
            await self._wait_while(lambda: self.channel is not None)
        else:
            await self._wait_while(lambda: bool(connections))
            for server in self.servers:
                server.close()
        await self._wait_while(lambda: bool(connections or self._arriving))
        if self._linked is not None:
            self._linked.cancel()
        await super().shutdown(sockets)

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + DRAIN_STEP_S
        while condition() and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)

    def _receive(self, channel: socket.socket) -> None:
        """Receive a batch of the connections that the supervisor has accepted."""
        for _ in range(ACCEPT_BATCH):
            try:
                content, handles, _, _ = socket.recv_fds(channel, 1, 1)
            except BlockingIOError:
                return
            except OSError:
                content, handles = b"", []
            if not content:  # the supervisor stops, or has died
                asyncio.get_running_loop().remove_reader(channel)
                channel.close()
                self.channel, self.should_exit = None, True
                return
            if handles:  # otherwise too many files are open, and the connection is lost
                self._open(socket.socket(fileno=handles[0]))

    def _open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        protocol = partial(
            LimitedConnection,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(protocol, connection))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)
