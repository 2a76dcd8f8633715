"""Running the service: a socket of its own, so that a taken port is told before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import torch
import uvicorn

from itemrec.errors import ItemrecError
from itemrec.serving.http.app import create_app
from itemrec.serving.recommender import Recommender

PATIENCE = 10  # seconds that a question under way may still take when the service ends


def serve(
    run: str | Path, *, host: str = "127.0.0.1", port: int = 8000, device: str = "cpu"
) -> None:
    """Answer over HTTP until told to end (Ctrl-C, SIGTERM); questions under way are answered."""
    with listen(host, port) as ear:
        torch.set_num_threads(1)  # a question is one product: cores are for other questions
        app = create_app(Recommender.load(run, device))
        ear.listen(1024)
        taken = ear.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        print(f"itemrec answers at http://{shown}:{taken} (Ctrl-C ends it)", flush=True)
        settings = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        uvicorn.Server(settings).run(sockets=[ear])


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 takes a free one."""
    if not 0 <= port < 2**16:
        raise ItemrecError(f"'port' must be between 0 and 65535, got {port}")
    ear = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        family, kind, protocol, _, address = found[0]
        ear = socket.socket(family, kind, protocol)  # unless TCP is named asyncio waits for Nagle
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind(address)
    except (OSError, UnicodeError) as error:  # the latter for what cannot be a host's name
        if ear is not None:
            ear.close()
        why = getattr(error, "strerror", None) or "this is no host's name"
        raise ItemrecError(
            f"cannot listen at {host}:{port} ({why}): choose another --host or --port"
        ) from error
    return ear
