"""HTTP connections with a limit on their number and a time limit for headers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from itemfold.serving.http.telemetry import Telemetry
from itemfold.serving.http.work_queue import RETRY_SECONDS, WorkQueue, busy

HEADER_SECONDS = 10.0  # time limit of the request line and the headers
BUSY_DELAY_SECONDS = 0.1  # before a 503: some clients retry at once
SPARE_FILES = 64  # open files that are not connections


def _service_unavailable(sentence: str, *headers: str) -> bytes:
    """A complete response with status 503."""
    body = json.dumps({"error": sentence}, separators=(",", ":"))
    lines = ["HTTP/1.1 503 Service Unavailable", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", f"Retry-After: {RETRY_SECONDS}", *headers, "", body]
    return "\r\n".join(lines).encode()


BUSY = _service_unavailable(busy().detail)
TOO_MANY = _service_unavailable("too many connections: try again later", "Connection: close")


def is_whole_post(data: bytes) -> bool:
    """Whether these bytes are one complete request for recommendations.

    >>> is_whole_post(b"POST /v1/recommend HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
    True
    >>> is_whole_post(b"POST /v1/recommend HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\n{}")
    False
    """
    if not data.startswith((b"POST /recommend", b"POST /v1/recommend")):
        return False
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return length is not None and int(length[1]) == len(body)


class LimitedConnection(H11Protocol):
    """A uvicorn connection with a header timeout and a limit on the number of connections.

    While the queue is full, requests for recommendations get a 503 here, at a fraction of what
    the application would take for it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app: Any = self.config.app
        self.queue: WorkQueue = app.state.queue
        self.telemetry: Telemetry = app.state.telemetry
        self.max_connections: int = app.state.max_connections
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or answer 503 if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(TOO_MANY)
            transport.close()
        else:
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self.queue.is_full and self._is_idle() and is_whole_post(data):
            self._stop_timer()
            self._unset_keepalive_if_required()
            self.flow.pause_reading()
            self.loop.call_later(BUSY_DELAY_SECONDS, self._send_busy)
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # the headers are complete
            self._stop_timer()
        elif self._is_idle() and self._header_timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _send_busy(self) -> None:
        self.telemetry.answers.labels("refused", 503).inc()
        if not self.transport.is_closing():
            self.transport.write(BUSY)
            self.flow.resume_reading()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def connection_limit() -> int:
    """Connections per worker: as many as the limit on open files allows, 4096 at most."""
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
