"""The files of the page; it loads nothing from elsewhere, but pictures where that is permitted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files

from fastapi import FastAPI
from fastapi.responses import Response

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Referrer-Policy": "no-referrer",  # the address of the page holds ids
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI, image_hosts: Sequence[str] = ()) -> None:
    """Add a route for each file; the page itself is at the root."""
    images = " ".join(["data:", *image_hosts])
    policy = f"default-src 'self'; img-src {images}; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, **HEADERS}
    for file in files("itemrec.serving.http").joinpath("page").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        content = _content(file.read_bytes(), KINDS[suffix], headers)
        app.add_api_route(path, content, include_in_schema=False)


def _content(
    content: bytes, kind: str, headers: dict[str, str]
) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(content, media_type=kind, headers=headers)

    return send
