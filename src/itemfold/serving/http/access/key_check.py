"""API-key middleware: rejects requests without a valid key or above its rate limit."""

from __future__ import annotations

import math

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from itemfold.serving.http.access.api_keys import ApiKeys
from itemfold.serving.http.access.rate_limit import RateLimit
from itemfold.serving.http.api.errors import error_response
from itemfold.serving.http.scope import CHARGE, HOLD, KEY_CLASS

KEYLESS = ("/livez", "/readyz", "/health", "/", "/dashboard")  # probes and pages without data


class KeyCheck:
    """API-key middleware: 401 without a valid key, 429 above its rate limit."""

    def __init__(self, app: ASGIApp, keys: ApiKeys, limit: RateLimit | None) -> None:
        self.app, self.keys, self.limit = app, keys, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "http" or is_keyless(scope["path"]) or scope["method"] == "OPTIONS":
            await self.app(scope, receive, send)
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        key = self.keys.find(given.strip()) if scheme.lower() == "bearer" else None
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


def charge(scope: Scope, tokens: float) -> None:
    """Charge the key of a request, if it has a limit, for more than one request."""
    limit, key = scope.get(CHARGE, (None, 0))
    if limit is not None:
        limit.charge(key, tokens)


def is_keyless(path: str) -> bool:
    """Whether a path needs no key: probes and the files of the page."""
    path = path.removeprefix("/v1")
    return path in KEYLESS or path.startswith("/page/")
