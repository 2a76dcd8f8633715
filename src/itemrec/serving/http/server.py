"""Running the service; the socket is opened first, so that a taken port is reported at once."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import uvicorn

from itemrec.errors import ItemrecError
from itemrec.serving.http.access_log import set_up_logging
from itemrec.serving.http.app import create_app
from itemrec.serving.http.connection import Connection, most_connections
from itemrec.serving.http.runs import Runs, check_split, run_folders
from itemrec.serving.http.settings import ServiceSettings, check_exposed
from itemrec.threads import usable_cpus
from itemrec.validation import positive_integer

BACKLOG = 1024  # connections that the system keeps until they are taken
TAKEN = 16  # connections that are taken at a time: fewer than there are spare files
SHUTDOWN_SECONDS = 10  # time that requests in progress get when the service stops
LINGER_SECONDS = 1.0  # time in which clients are told to close, once with and once without new ones
MAX_WORKERS = 4  # unless more are asked for: each has the runs in memory


def serve(
    runs: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "cpu",
    split: Mapping[str, float] | None = None,
    workers: int | None = None,
    insecure: bool = False,
    settings: ServiceSettings | None = None,
    when_ready: Callable[[str], object] | None = None,
) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM; requests in progress are completed.

    Args:
        runs: Run folders, or NAME=FOLDER; the first answers unless a request names another.
        host: Address to listen at.
        port: Port to listen at; 0: any free one.
        device: "cpu", "cuda" or "auto".
        split: Share of the traffic for each name of a run.
        workers: Processes that answer; default: one for each CPU, four at most.
        insecure: Listen at an address that other machines reach, without a key.
        settings: Keys, limits and the like.
        when_ready: Called with the address once requests are answered.

    Raises:
        ItemrecError: A run cannot be loaded, the address is taken, or a setting is wrong.
    """
    folders, settings = run_folders(runs), settings or ServiceSettings()
    shares = check_split(split or {}, list(folders))
    check_exposed(host, settings, insecure=insecure)
    cpus = usable_cpus()
    usual = min(cpus, MAX_WORKERS) if hasattr(socket, "send_fds") else 1
    n_workers = usual if workers is None else positive_integer("workers", workers)
    settings = replace(
        settings,
        threads=max(1, cpus // n_workers),
        allowed_hosts=(*settings.allowed_hosts, host),
    )
    with listen(host, port) as listener:
        bound_port = listener.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound_port}"

        def ready() -> None:
            print(f"itemrec is serving at {address} (stop with Ctrl-C)", flush=True)
            if when_ready is not None:
                when_ready(address)

        job = Job(folders, shares, device, settings)
        if n_workers == 1:
            job.run(listener, None, ready)
        else:
            from itemrec.serving.http.workers import supervise

            supervise(job, listener, n_workers, ready)


class Job:
    """What one worker does: load the runs, then answer at a socket. It can be sent to a process."""

    backlog = BACKLOG

    def __init__(
        self,
        folders: Mapping[str, Path],
        split: Mapping[str, float],
        device: str,
        settings: ServiceSettings,
    ) -> None:
        self.folders, self.split = dict(folders), dict(split)
        self.device, self.settings = device, settings

    def run(
        self,
        source: socket.socket,
        buckets: MutableSequence[float] | None,
        ready: Callable[[], None],
        *,
        is_channel: bool = False,
    ) -> None:
        """Answer until a signal comes.

        Args:
            source: A socket to listen at, or a channel by which connections are handed over.
            buckets: Numbers for the rate limit that workers share.
            ready: Called when requests are answered.
            is_channel: Which of the two the source is.
        """
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what it would load is being loaded
        set_up_logging()
        sys.setswitchinterval(0.0005)  # scoring must not wait for a busy event loop
        torch.set_num_threads(1)  # a request is one product: other cores are for other requests
        loaded = {name: self.settings.load(f, self.device) for name, f in self.folders.items()}
        app = create_app(
            Runs(loaded, self.split),
            self.settings,
            folders=self.folders,
            device=self.device,
            buckets=buckets,
        )
        app.state.most_connections = most_connections()
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            backlog=TAKEN,
        )
        server = Server(config, app.state, ready, channel=source if is_channel else None)
        server.run(sockets=[] if is_channel else [source])


class Server(uvicorn.Server):
    """A server that tells its clients to close before it does, and loads runs again on SIGHUP."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: Any,
        ready: Callable[[], None],
        channel: socket.socket | None,
    ) -> None:
        super().__init__(config)
        self.state, self.ready, self.channel = state, ready, channel
        self._arriving: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self.state.reloader.now)
        if self.channel is not None:
            self.channel.setblocking(False)
            loop.add_reader(self.channel, self._take, self.channel)
        for listener in sockets or []:
            listener.listen(BACKLOG)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what comes in for a moment, then what was accepted, with the word to close."""
        self.state.life.is_ending = True
        connections = self.server_state.connections
        if self.channel is not None:  # until the supervisor closes it
            await self._wait_while(lambda: self.channel is not None)
        else:
            await self._wait_while(lambda: bool(connections))
            for server in self.servers:
                server.close()
        await self._wait_while(lambda: bool(connections or self._arriving))
        await super().shutdown(sockets)

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LINGER_SECONDS
        while condition() and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)

    def _take(self, channel: socket.socket) -> None:
        """Take some of the connections that the supervisor has accepted."""
        for _ in range(TAKEN):
            try:
                word, handles, _, _ = socket.recv_fds(channel, 1, 1)
            except BlockingIOError:
                return
            except OSError:
                word, handles = b"", []
            if not word:  # there is no supervisor any more, or it ends
                asyncio.get_running_loop().remove_reader(channel)
                channel.close()
                self.channel, self.should_exit = None, True
                return
            if handles:  # else there are too many open files, and the connection is lost
                self._arrive(socket.socket(fileno=handles[0]))

    def _arrive(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _protocol(self) -> Connection:
        return Connection(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to this address; port 0 takes a free one."""
    if not 0 <= port < 2**16:
        raise ItemrecError(f"'port' must be between 0 and 65535, got {port}")
    sock = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(
            family, kind, protocol
        )  # asyncio sets TCP_NODELAY only if TCP is named
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:  # the latter for an invalid host name
        if sock is not None:
            sock.close()
        why = getattr(error, "strerror", None) or "not a valid host name"
        raise ItemrecError(
            f"cannot listen at {host}:{port} ({why}): choose another --host or --port"
        ) from error
    return sock
