"""Metrics on a separate port that needs no key."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from itemfold.serving.http.api.errors import error_response
from itemfold.serving.http.monitoring.telemetry import Telemetry

METRICS = ("/metrics", "/v1/metrics")


class MetricsPort:
    """Serve only metrics on one port, and everything else on the others."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, port: int) -> None:
        self.app, self.telemetry, self.port = app, telemetry, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        app = self.app
        if scope["type"] == "http":
            is_here = (scope.get("server") or ("", None))[1] == self.port
            if is_here and scope["path"] in METRICS and scope["method"] == "GET":
                telemetry = self.telemetry
                app = Response(telemetry.exposition(), media_type=telemetry.media_type)
            elif is_here:
                app = error_response(404, "no such path; this port has /metrics only")
            elif scope["path"] in METRICS:
                app = error_response(404, "no such path; metrics are on the port --metrics-port")
        await app(scope, receive, send)
