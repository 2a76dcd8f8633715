"""What surrounds every request: its id, metrics, a log line, and the end of the service."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from itemrec.serving.http.access_log import log
from itemrec.serving.http.errors import error_response, route_path
from itemrec.serving.http.telemetry import Telemetry

RUN_FINGERPRINT = "X-Run-Fingerprint"
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Life:
    """Whether the service is stopping: it still answers, and tells clients to go elsewhere."""

    def __init__(self) -> None:
        self.is_ending = False


class Observe:
    """An application whose requests are counted, timed and logged.

    It also answers HEAD like GET, without a body, and turns an unexpected error into status 500.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, life: Life, *, access_log: bool) -> None:
        self.app, self.telemetry, self.life, self.access_log = app, telemetry, life, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer and take notes."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, send, self.life)
        self.telemetry.in_flight.inc()
        try:
            await self.app(exchange.scope, receive, exchange.send)
        except asyncio.CancelledError:  # the time to end is over
            await exchange.fail(503, "the service is stopping")
        except Exception as error:
            log(logging.ERROR, "unexpected error", error=error, request_id=exchange.request_id)
            await exchange.fail(500, "an unexpected error, which the log of the service describes")
        finally:
            self.telemetry.in_flight.dec()
            self._note(exchange)

    def _note(self, exchange: Exchange) -> None:
        path, upload = route_path(exchange.scope), exchange.scope.get("upload_seconds", 0.0)
        seconds = max(0.0, time.perf_counter() - exchange.started - upload)
        self.telemetry.answers.labels(path, exchange.status).inc()
        self.telemetry.seconds.labels(path).observe(seconds)
        self.telemetry.upload_seconds.labels(path).observe(upload)
        if self.access_log:
            log(
                logging.INFO,
                "request",
                request_id=exchange.request_id,
                method=exchange.method,
                path=path,
                status=exchange.status,
                ms=round(1e3 * seconds, 2),
                upload_ms=round(1e3 * upload, 2),
                bytes=exchange.size,
                **exchange.scope.get("log", {}),
            )


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send, life: Life) -> None:
        self.started, self.status, self.size, self.has_begun = time.perf_counter(), 500, 0, False
        self.method = scope["method"]
        given = Headers(scope=scope).get("x-request-id", "")
        self.request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        self.scope: MutableMapping[str, Any] = scope
        if self.method == "HEAD":
            self.scope = {**scope, "method": "GET"}
        self._send, self._life = send, life

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.request_id
            if found := self.scope.get("log", {}).get("run_fingerprint"):
                headers[RUN_FINGERPRINT] = found
            if self._life.is_ending:
                headers["Connection"] = "close"
        elif message["type"] == "http.response.body":
            if self.method == "HEAD":
                message = {**message, "body": b""}
            self.size += len(message.get("body", b""))
        await self._send(message)

    async def fail(self, status: int, text: str) -> None:
        """Send an error, unless an answer has begun."""
        if not self.has_begun:
            await error_response(status, text)(dict(self.scope), _nothing, self.send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
