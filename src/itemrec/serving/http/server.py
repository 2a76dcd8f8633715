"""Running the service; the socket is opened first, so that a taken port is reported at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
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
from itemrec.serving.recommender import Recommender
from itemrec.threads import usable_cpus
from itemrec.validation import positive_integer

BACKLOG = 1024  # connections that the system keeps until one of the workers takes them
SHUTDOWN_SECONDS = 10  # time that requests in progress get when the service stops
LINGER_SECONDS = 1.0  # time in which clients are told to close before that
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
    n_workers = min(cpus, MAX_WORKERS) if workers is None else positive_integer("workers", workers)
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
        listener: socket.socket,
        buckets: MutableSequence[float] | None,
        ready: Callable[[], None],
    ) -> None:
        """Answer until a signal comes."""
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what it would load is being loaded
        set_up_logging()
        torch.set_num_threads(1)  # a request is one product: other cores are for other requests
        loaded = {name: Recommender.load(f, self.device) for name, f in self.folders.items()}
        app = create_app(
            Runs(loaded, self.split),
            self.settings,
            folders=self.folders,
            device=self.device,
            buckets=buckets,
        )
        Connection.most = most_connections()
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            # asyncio takes as many connections at a time: one, so that all workers get some
            backlog=1,
        )
        Server(config, app.state, ready).run(sockets=[listener])


class Server(uvicorn.Server):
    """A server that tells its clients to close before it does, and loads runs again on SIGHUP."""

    def __init__(self, config: uvicorn.Config, state: Any, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.state, self.ready = state, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self.state.reloader.now)
        parent = multiprocessing.parent_process()
        if parent is not None:  # a worker ends with its supervisor
            loop.add_reader(parent.sentinel, self._orphaned, parent.sentinel)
        for listener in sockets or []:
            listener.listen(BACKLOG)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer for a moment what comes in, with the word to close; then end."""
        self.state.life.is_ending = True
        rounds = round(LINGER_SECONDS / 0.1)
        while rounds and self.server_state.connections and not self.force_exit:
            await asyncio.sleep(0.1)
            rounds -= 1
        await super().shutdown(sockets)

    def _orphaned(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.should_exit = True


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
