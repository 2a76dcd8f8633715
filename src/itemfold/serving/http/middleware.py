"""ASGI middleware: metrics and logs of every request, load shedding, and limits on bodies."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import uuid
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from itemfold.serving.http.access import KEY_CLASS, is_keyless
from itemfold.serving.http.access_log import log
from itemfold.serving.http.api_keys import NO_KEY
from itemfold.serving.http.errors import BODIES, error_response, route_path
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.telemetry import Telemetry
from itemfold.serving.http.work_queue import CLIENT_GONE, PLACE, WorkQueue, busy

if TYPE_CHECKING:  # its packages may be missing
    from itemfold.serving.http.tracing import Tracing

RUN_FINGERPRINT = "X-Run-Fingerprint"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
UNQUEUED = ("/about", "/metrics", "/stats", "/openapi.json")  # answered even if the queue is full
UNREAD = "unread_body"  # in the scope of a request whose body would take long to read
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class RequestObserver:
    """Count, time, log and trace every request, and give it an id.

    HEAD is handled as GET without a body. An unexpected exception becomes status 500. Once
    `stopping` is set, responses ask clients to close their connections. A place in the queue that
    a request did not use is given back.
    """

    def __init__(
        self,
        app: ASGIApp,
        telemetry: Telemetry,
        stopping: threading.Event,
        queue: WorkQueue,
        *,
        access_log: bool,
        tracing: Tracing | None = None,
    ) -> None:
        self.app, self.telemetry, self.queue = app, telemetry, queue
        self.stopping, self.access_log, self.tracing = stopping, access_log, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self.stopping)
        self.telemetry.in_flight.inc()
        try:
            await self.app(exchange.scope, receive, exchange.send)
        except asyncio.CancelledError:  # the grace period of a shutdown is over
            await exchange.fail(503, "the service is stopping")
        except Exception as error:
            log(logging.ERROR, "unexpected error", error=error, request_id=exchange.request_id)
            await exchange.fail(500, "unexpected error; see the log of the service")
        finally:
            self.telemetry.in_flight.dec()
            if exchange.scope.pop(PLACE, False):
                self.queue.leave()
            self._record(exchange)

    def _record(self, exchange: _Exchange) -> None:
        scope, path = exchange.scope, route_path(exchange.scope)
        total, upload = time.perf_counter() - exchange.started, scope.get("upload_seconds", 0.0)
        seconds, key = max(0.0, total - upload), scope.get(KEY_CLASS, NO_KEY)
        self.telemetry.answers.labels(path, exchange.status, key).inc()
        self.telemetry.seconds.labels(path).observe(seconds)
        self.telemetry.upload_seconds.labels(path).observe(upload)
        if not self.access_log and self.tracing is None:
            return
        fields = {
            "request_id": exchange.request_id,
            "method": exchange.method,
            "path": path,
            "status": exchange.status,
            "key": key,
            "ms": round(1e3 * seconds, 2),
            "upload_ms": round(1e3 * upload, 2),
            "bytes": exchange.size,
            **scope.get("log", {}),
        }
        if self.access_log:
            log(logging.INFO, "request", **fields)
        if self.tracing is not None:
            self.tracing.record(Headers(raw=scope["headers"]), total, fields)


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, send: Send, stopping: threading.Event) -> None:
        self.started, self.status, self.size, self.has_begun = time.perf_counter(), 500, 0, False
        self.method = scope["method"]
        given = Headers(scope=scope).get("x-request-id", "")
        self.request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        self.scope: MutableMapping[str, Any] = scope
        if self.method == "HEAD":
            self.scope = {**scope, "method": "GET"}
        self._send, self._stopping = send, stopping

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.request_id
            for name, value in SAFE_HEADERS.items():
                headers.setdefault(name, value)
            if found := self.scope.get("log", {}).get("run_fingerprint"):
                headers[RUN_FINGERPRINT] = found
            if self._stopping.is_set() or self.scope.get(UNREAD):
                headers["Connection"] = "close"
        elif message["type"] == "http.response.body":
            if self.method == "HEAD":
                message = {**message, "body": b""}
            self.size += len(message.get("body", b""))
        await self._send(message)

    async def fail(self, status: int, text: str) -> None:
        """Send an error, unless a response has begun."""

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        if not self.has_begun:
            await error_response(status, text)(dict(self.scope), receive, self.send)


class LoadShedding:
    """Answer 503 before a body is read, if the queue is full and the request has no place in it."""

    def __init__(self, app: ASGIApp, queue: WorkQueue) -> None:
        self.app, self.queue = app, queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        app = self.app
        if scope["type"] == "http" and PLACE not in scope and self.queue.is_full:
            path = scope["path"]
            if not is_keyless(path) and path.removeprefix("/v1") not in UNQUEUED:
                app = error_response(503, busy().detail, busy().headers)
        await app(scope, receive, send)


class BodyLimit:
    """Read each body before its request is handled: 413 if it is too large, 408 if too slow.

    Only the paths that need a body get one. The time of the upload goes into
    ``scope["upload_seconds"]``.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] != "POST" or scope["path"].removeprefix("/v1") not in BODIES:
            await self.app(scope, _replay(b"", receive), send)
            return
        started, close, most = time.perf_counter(), {"Connection": "close"}, self.limits.max_body
        too_large = error_response(413, f"a request body must have at most {most:,} bytes", close)
        if _announced(scope) > most:
            await too_large(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(_read_body(receive, most), self.limits.body_s)
        except TimeoutError:
            text = f"a request body must arrive within {self.limits.body_s:g} s"
            await error_response(408, text, close)(scope, receive, send)
            return
        finally:
            scope["upload_seconds"] = time.perf_counter() - started
        if body is None:
            await error_response(CLIENT_GONE, "client disconnected")(scope, receive, send)
        elif len(body) > most:
            await too_large(scope, receive, send)
        else:
            await self.app(scope, _replay(body, receive), send)


def _announced(scope: Scope) -> int:
    """The length of the body by its header, 0 if there is none."""
    length = Headers(scope=scope).get("content-length", "")
    return int(length) if re.fullmatch("[0-9]{1,18}", length) else 0


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """The body, cut off soon after `most` bytes; None if the client disconnects."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= most:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A channel that yields the body first, then what the client sends next."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
