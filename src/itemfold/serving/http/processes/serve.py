"""Start the service. The socket is opened first, so that a port in use is reported early."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from itemfold.errors import ItemfoldError
from itemfold.serving.http.processes.supervisor import supervise
from itemfold.serving.http.processes.worker import WorkerTask
from itemfold.serving.http.runs import check_split, run_folders
from itemfold.serving.http.settings import ServiceSettings, check_exposed
from itemfold.threads import usable_cpus
from itemfold.validation import positive_integer

MAX_WORKERS = 4  # default limit: each worker has the runs in memory


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
        runs: Run folders, or NAME=FOLDER; the first is the default of requests.
        host: Address to listen on.
        port: Port to listen on; 0: any free port.
        device: "cpu", "cuda" or "auto".
        split: Traffic weight of each run name.
        workers: Worker processes; default: one per CPU, four at most.
        insecure: Listen on a public address without an API key.
        settings: API keys, limits and other settings.
        when_ready: Called with the URL once the service answers.

    Raises:
        ItemfoldError: A run cannot be loaded, the address is taken, or a setting is invalid.
    """
    folders, settings = run_folders(runs), settings or ServiceSettings()
    weights = check_split(split or {}, list(folders))
    check_exposed(host, settings, insecure=insecure)
    cpus = usable_cpus()
    usual = min(cpus, MAX_WORKERS) if hasattr(socket, "send_fds") else 1
    n_workers = usual if workers is None else positive_integer("workers", workers)
    settings = replace(
        settings,
        threads=max(1, cpus // n_workers),
        allowed_hosts=(*settings.allowed_hosts, host),
    )
    with ExitStack() as stack:
        listeners = [stack.enter_context(listen(host, port))]
        url = _url(host, listeners[0])
        if settings.metrics_port is not None:
            listeners.append(stack.enter_context(listen(host, settings.metrics_port)))
            settings = replace(settings, metrics_port=listeners[1].getsockname()[1])

        def ready() -> None:
            print(f"itemfold is serving at {url} (stop with Ctrl-C)", flush=True)
            for listener in listeners[1:]:
                print(f"metrics are at {_url(host, listener)}/metrics", flush=True)
            if when_ready is not None:
                when_ready(url)

        task = WorkerTask(folders, weights, device, settings)
        if n_workers == 1:
            task.run(listeners, None, ready)
        else:
            supervise(task, listeners, n_workers, ready)


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to this address; port 0 takes a free one."""
    if not 0 <= port < 2**16:
        raise ItemfoldError(f"'port' must be between 0 and 65535, got {port}")
    sock = None
    try:
        # TCP is named because asyncio sets TCP_NODELAY only then
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:  # the latter for an invalid host name
        if sock is not None:
            sock.close()
        why = getattr(error, "strerror", None) or "not a valid host name"
        raise ItemfoldError(
            f"cannot listen on {host}:{port} ({why}): choose another --host or --port"
        ) from error
    return sock
