"""Requests need an API key where keys are set, and each key has a limit of requests a second."""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from collections.abc import MutableSequence, Sequence
from contextlib import AbstractContextManager, nullcontext

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from itemrec.serving.http.errors import error_response

OPEN = ("/livez", "/readyz", "/health", "/", "/page/")  # what a probe and a browser ask first


class RateLimit:
    """A bucket of tokens for each key: it holds those of one second and is filled steadily.

    Args:
        per_second: Requests a second with one key.
        buckets: Two numbers a key, the tokens that are missing and the time of the last filling;
            zeros are a full bucket. Workers share them.
        lock: Held while a bucket changes.
    """

    def __init__(
        self,
        per_second: float,
        buckets: MutableSequence[float],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.per_second, self.buckets = per_second, buckets
        self.capacity = max(1.0, per_second)
        self._lock = lock or nullcontext()

    def seconds_to_wait(self, key: int, now: float | None = None) -> float:
        """Take a token and return 0, or how long it takes until there is one.

        >>> limit = RateLimit(2.0, [0.0] * 2)
        >>> [limit.seconds_to_wait(0, now=100.0) for _ in range(3)]
        [0.0, 0.0, 0.5]
        >>> limit.seconds_to_wait(0, now=100.5)
        0.0
        """
        now = time.monotonic() if now is None else now
        with self._lock:
            missing, filled = self.buckets[2 * key : 2 * key + 2]
            missing = max(0.0, missing - (now - filled) * self.per_second)
            short = missing + 1 - self.capacity  # of a whole token
            self.buckets[2 * key] = missing if short > 0 else missing + 1
            self.buckets[2 * key + 1] = now
        return max(0.0, short / self.per_second)


class KeyCheck:
    """An application that answers requests with a known key only."""

    def __init__(self, app: ASGIApp, keys: Sequence[str], limit: RateLimit | None) -> None:
        self.app, self.limit = app, limit
        self.digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with 401 or 429."""
        if scope["type"] != "http" or is_open(scope["path"]) or scope["method"] == "OPTIONS":
            await self.app(scope, receive, send)
            return
        key = self._find(Headers(scope=scope).get("authorization", ""))
        if key is None:
            text = "an API key is needed: send the header Authorization: Bearer KEY"
            response = error_response(401, text, {"WWW-Authenticate": "Bearer"})
        elif self.limit and (wait := self.limit.seconds_to_wait(key)):
            text = f"this key may be used {self.limit.per_second:g} times a second"
            response = error_response(429, text, {"Retry-After": str(math.ceil(wait))})
        else:
            await self.app(scope, receive, send)
            return
        await response(scope, receive, send)

    def _find(self, header: str) -> int | None:
        """The number of the key; all are compared, each in constant time."""
        scheme, _, key = header.partition(" ")
        given = hashlib.sha256(key.strip().encode()).digest()
        matches = [hmac.compare_digest(given, known) for known in self.digests]
        return matches.index(True) if any(matches) and scheme.lower() == "bearer" else None


def is_open(path: str) -> bool:
    """Whether an address needs no key: probes and the files of the page."""
    path = path.removeprefix("/v1")
    return path in OPEN or path.startswith("/page/")
