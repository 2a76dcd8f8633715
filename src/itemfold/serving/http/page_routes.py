"""Routes of the files of the page and the dashboard."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import Response

from itemfold.serving.http.api.compression import accepts_gzip, pack

MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PAGES = {"index.html": "/", "dashboard.html": "/dashboard"}
PAGE_HEADERS = {
    "Referrer-Policy": "no-referrer",  # the URL of the page holds ids
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def add_page(app: FastAPI, image_hosts: Sequence[str]) -> None:
    """Add a route for each file of the page; only images may come from other hosts."""
    images = " ".join(["data:", *image_hosts])
    policy = f"default-src 'self'; img-src {images}; frame-ancestors 'none'; base-uri 'none'; "
    policy += "form-action 'self'"
    headers = {"Content-Security-Policy": policy, **PAGE_HEADERS}

    def endpoint(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        packed = {gzip: pack([content], gzip=gzip) for gzip in (False, True)}

        async def send(request: Request) -> Response:
            body, encoding = packed[accepts_gzip(request.headers)]
            tagged = {**headers, **encoding, "ETag": tag}
            if tag in request.headers.get("if-none-match", ""):
                return Response(status_code=304, headers=tagged)
            return Response(body, media_type=media_type, headers=tagged)

        return send

    for file in files("itemfold.serving.http").joinpath("page").iterdir():
        path = PAGES.get(file.name, f"/page/{file.name}")
        media_type = MEDIA_TYPES[file.name[file.name.rfind(".") :]]
        app.add_api_route(path, endpoint(file.read_bytes(), media_type), include_in_schema=False)
