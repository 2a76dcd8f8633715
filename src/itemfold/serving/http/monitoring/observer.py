"""Metrics, log lines and spans of every request."""

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

from itemfold.serving.http.access.api_keys import NO_KEY
from itemfold.serving.http.admission.work_queue import WorkQueue
from itemfold.serving.http.api.errors import error_response, route_path
from itemfold.serving.http.monitoring.log import log
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.scope import KEY_CLASS, LOG, PLACE, UNREAD, UPLOAD_S

if TYPE_CHECKING:  # its packages may be missing
    from itemfold.serving.http.monitoring.tracing import Tracing

RUN_FINGERPRINT = "X-Run-Fingerprint"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
SAFE_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class RequestObserver:
    """Count, time, log and trace every request, and assign it an id.

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
        total, upload = time.perf_counter() - exchange.started, scope.get(UPLOAD_S, 0.0)
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
            **scope.get(LOG, {}),
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
            if found := self.scope.get(LOG, {}).get("run_fingerprint"):
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
