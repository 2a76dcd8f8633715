"""Metrics of the service (counts and times of responses), and a limit on the request size."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 2**20  # bytes of a request
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class Telemetry:
    """The metrics of one service, in a registry of their own, so a process may run several."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, *, users: int, items: int) -> None:
        self.registry = CollectorRegistry()
        self.responses = Counter(
            "itemrec_answers",
            "Responses by path and status.",
            labelnames=("path", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "itemrec_answer_seconds",
            "Response time.",
            labelnames=("path",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        for name, value in (("users", users), ("items", items)):
            gauge = Gauge(f"itemrec_{name}", f"Number of known {name}.", registry=self.registry)
            gauge.set(value)

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """The application with metrics and a limit on the request size."""

        async def measure(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status, read = time.perf_counter(), 500, 0

            async def receive_limited() -> Message:
                nonlocal read
                message = await receive()
                read += len(message.get("body", b""))
                if read > MAX_BODY:
                    raise HTTPException(413, f"a request may have at most {MAX_BODY:,} bytes")
                return message

            async def send_noting_status(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive_limited, send_noting_status)
            finally:
                path = _path(scope)
                self.responses.labels(path, status).inc()
                self.seconds.labels(path).observe(time.perf_counter() - started)

        return measure


def _path(scope: Scope) -> str:
    """The path of the route; unknown paths share one label, or clients could create any number."""
    return getattr(scope.get("route"), "path", "other")
