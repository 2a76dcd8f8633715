"""Connections: a bounded number of them, each of which must say what it wants in time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from itemrec.serving.http.work_queue import RETRY_SECONDS

HEADER_SECONDS = 10.0  # that a client may take to send the first line and the headers
SPARE_FILES = 64  # open files that are not connections


class Connection(H11Protocol):
    """A connection of uvicorn's with a time limit for the headers and a limit on their number."""

    most = 0  # connections at once; set before the server starts

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or say that there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_too_many())
            transport.close()
        else:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; its headers must be complete in time."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the headers are complete
            self._stop_timer()
        elif self._is_idle() and self._header_timer is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def most_connections() -> int:
    """Connections of one worker: what the system's limit on open files allows, 4096 at most."""
    try:
        import resource
    except ImportError:  # not available on this system
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:  # the usual soft limit is low
        wanted = 4096 + SPARE_FILES
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(8, min(4096, soft - SPARE_FILES))


def _too_many() -> bytes:
    body = json.dumps({"error": "too many connections: try again later"}).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Retry-After: {RETRY_SECONDS}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
