"""The body of a request is read before it is answered: bounded in size and in time."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from itemrec.serving.http.errors import error_response
from itemrec.serving.http.work_queue import CLIENT_GONE

MAX_BODY = 2**20  # bytes of a request
BODY_SECONDS = 30.0  # that a client may take to send it


class WholeBody:
    """An application that gets each body in one piece; the time of the upload is noted apart."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, then answer; refuse with 413 or 408."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            body = await asyncio.wait_for(_read(receive), BODY_SECONDS)
        except TimeoutError:
            text = f"a request must be sent within {BODY_SECONDS:g} s"
            await error_response(408, text, {"Connection": "close"})(scope, receive, send)
            return
        finally:
            scope["upload_seconds"] = time.perf_counter() - started
        if body is None:
            await error_response(CLIENT_GONE, "the client has gone")(scope, receive, send)
        elif len(body) > MAX_BODY:
            text = f"a request may have at most {MAX_BODY:,} bytes"
            await error_response(413, text, {"Connection": "close"})(scope, receive, send)
        else:
            await self.app(scope, _after(body, receive), send)


async def _read(receive: Receive) -> bytes | None:
    """The body, or more than allowed of it; None if the client has gone."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= MAX_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
    return b"".join(parts)


def _after(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body, then what the client does next."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
