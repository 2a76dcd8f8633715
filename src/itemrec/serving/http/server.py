"""Running the service; the socket is opened first, so that a taken port is reported at once."""

from __future__ import annotations

import socket
from pathlib import Path

import torch
import uvicorn

from itemrec.errors import ItemrecError
from itemrec.serving.http.app import create_app
from itemrec.serving.recommender import Recommender

SHUTDOWN_SECONDS = 10  # time that requests in progress get when the service stops


def serve(
    run: str | Path, *, host: str = "127.0.0.1", port: int = 8000, device: str = "cpu"
) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM; requests in progress are completed."""
    with listen(host, port) as listener:
        torch.set_num_threads(1)  # a request is one product: other cores are for other requests
        app = create_app(Recommender.load(run, device))
        listener.listen(1024)
        bound_port = listener.getsockname()[1]
        address = f"[{host}]" if ":" in host else host
        print(f"itemrec is serving at http://{address}:{bound_port} (stop with Ctrl-C)", flush=True)
        settings = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        uvicorn.Server(settings).run(sockets=[listener])


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
