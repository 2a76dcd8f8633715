"""What goes in and out of the service: counts, times, and a limit on the size of a question."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 2**20  # bytes of a question
STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class Watch:
    """The meters of one service; each has its own registry, so several live in one process."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, *, users: int, items: int) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "itemrec_answers",
            "Answers by address and status.",
            labelnames=("path", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "itemrec_answer_seconds",
            "Time to answer.",
            labelnames=("path",),
            buckets=STEPS,
            registry=self.registry,
        )
        for name, value in (("users", users), ("items", items)):
            gauge = Gauge(f"itemrec_{name}", f"Known {name}.", registry=self.registry)
            gauge.set(value)

    def exposition(self) -> bytes:
        """All meters as text."""
        return generate_latest(self.registry)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """An application that is measured, and refuses questions that are too large."""

        async def measured(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status, read = time.perf_counter(), 500, 0

            async def limited() -> Message:
                nonlocal read
                message = await receive()
                read += len(message.get("body", b""))
                if read > LARGEST:
                    raise HTTPException(413, f"a question may have {LARGEST:,} bytes at most")
                return message

            async def noted(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, limited, noted)
            finally:
                path = _path(scope)
                self.answers.labels(path, status).inc()
                self.seconds.labels(path).observe(time.perf_counter() - started)

        return measured


def _path(scope: Scope) -> str:
    """The address that answered; what nobody answers goes by one name, or any could be made up."""
    return getattr(scope.get("route"), "path", "other")
