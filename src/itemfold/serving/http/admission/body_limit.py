"""Limits on the size of request bodies and on the time of their upload."""

from __future__ import annotations

import asyncio
import re
import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from itemfold.serving.http.admission.work_queue import CLIENT_GONE
from itemfold.serving.http.api.errors import BODIES, error_response
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.scope import UPLOAD_S


class BodyLimit:
    """Read each body before its request is handled: 413 if it is too large, 408 if too slow.

    Only endpoints with a body read one. The upload time is stored in the scope.
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
            scope[UPLOAD_S] = time.perf_counter() - started
        if body is None:
            await error_response(CLIENT_GONE, "client disconnected")(scope, receive, send)
        elif len(body) > most:
            await too_large(scope, receive, send)
        else:
            await self.app(scope, _replay(body, receive), send)


def _announced(scope: Scope) -> int:
    """The Content-Length header, 0 if there is none."""
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
