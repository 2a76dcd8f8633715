"""The files of the page; it loads nothing from elsewhere and needs no build step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # the address of the page holds ids
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI) -> None:
    """Add a route for each file; the page itself is at the root."""
    for file in files("itemrec.serving.http").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        content = _content(file.read_bytes(), KINDS[suffix])
        app.add_api_route(path, content, include_in_schema=False)


def _content(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return send
