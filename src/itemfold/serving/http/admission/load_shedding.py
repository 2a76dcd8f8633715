"""Load shedding: 503 before a body is read if the queue is full."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from itemfold.serving.http.access.key_check import is_keyless
from itemfold.serving.http.admission.work_queue import WorkQueue, busy
from itemfold.serving.http.api.errors import error_response
from itemfold.serving.http.scope import PLACE

UNQUEUED = ("/about", "/metrics", "/stats", "/openapi.json")  # answered even if the queue is full


class LoadShedding:
    """Respond with 503 before reading a body if the queue is full."""

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
