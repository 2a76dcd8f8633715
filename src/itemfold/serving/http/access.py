"""Access control: Host headers, API keys and rate limits.

A page of another site can make a browser send requests to a loopback address by letting its own
host name resolve to it (DNS rebinding). Such requests carry that name in their Host header, so
unknown names are rejected. An IP address cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import math
import socket
import time
from collections.abc import Iterable, MutableSequence
from contextlib import AbstractContextManager, nullcontext

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from itemfold.serving.http.api_keys import ApiKeys
from itemfold.serving.http.errors import error_response
from itemfold.serving.http.settings import LOCAL_NAMES

KEY_CLASS = "key_class"  # in the scope of a request with a valid key
HOLD = "hold"  # in the scope: lets a rejected request wait for its turn
CHARGE = "charge"  # in the scope: the rate limit and the index of the key
KEYLESS = ("/livez", "/readyz", "/health", "/", "/dashboard")  # probes and pages without data


class HostCheck:
    """Reject unknown Host headers with 421; IP addresses and this machine's name are known."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self.app = app
        self.names = {*(name.lower() for name in names), *LOCAL_NAMES, socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            name = host_name(Headers(scope=scope).get("host", ""))
            if not (name in self.names or _is_ip_address(name)):
                text = f"'Host' must be a known name, got {name[:100]!r}"
                response = error_response(421, f"{text}; allow it with --allowed-host")
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def host_name(header: str) -> str:
    """The host of a Host header, without its port.

    >>> host_name("Example.org:8000"), host_name("[::1]:80")
    ('example.org', '::1')
    """
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class RateLimit:
    """A token bucket per key, with a capacity of one second's requests.

    Args:
        per_second: Requests per second and key; a batch counts as one request per user.
        buckets: Two numbers per key: the missing tokens and the time of the last refill. Zeros are
            a full bucket. Workers share them.
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

    def charge(self, key: int, tokens: float) -> None:
        """Take tokens, also more than there are: the key then waits until they are refilled."""
        with self._lock:
            self.buckets[2 * key] += tokens

    def seconds_to_wait(self, key: int, now: float | None = None) -> float:
        """Take a token and return 0, or return the seconds until one is available.

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
    """API-key middleware: 401 without a valid key, 429 above its rate limit."""

    def __init__(self, app: ASGIApp, keys: ApiKeys, limit: RateLimit | None) -> None:
        self.app, self.keys, self.limit = app, keys, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http" or is_keyless(scope["path"]) or scope["method"] == "OPTIONS":
            await self.app(scope, receive, send)
            return
        key = self._find(Headers(scope=scope).get("authorization", ""))
        if key is None:
            text = "an API key is needed: send the header Authorization: Bearer KEY"
            response = error_response(401, text, {"WWW-Authenticate": "Bearer"})
        elif self.limit and (wait := self.limit.seconds_to_wait(key[0])):
            text = f"this key is limited to {self.limit.per_second:g} users per second"
            response = error_response(429, text, {"Retry-After": str(math.ceil(wait))})
        else:
            scope[KEY_CLASS], scope[CHARGE] = key[1], (self.limit, key[0])
            await self.app(scope, receive, send)
            return
        if key is not None:
            scope[KEY_CLASS] = key[1]
        if HOLD in scope:
            await scope[HOLD](receive)
        await response(scope, receive, send)

    def _find(self, header: str) -> tuple[int, str] | None:
        """The number and the class of the key in a header, None if there is no valid one."""
        scheme, _, key = header.partition(" ")
        return self.keys.find(key.strip()) if scheme.lower() == "bearer" else None


def charge(scope: Scope, tokens: float) -> None:
    """Charge the key of a request, if it has a limit, with more than the request itself."""
    limit, key = scope.get(CHARGE, (None, 0))
    if limit is not None:
        limit.charge(key, tokens)


def is_keyless(path: str) -> bool:
    """Whether a path needs no key: probes and the files of the page."""
    path = path.removeprefix("/v1")
    return path in KEYLESS or path.startswith("/page/")
