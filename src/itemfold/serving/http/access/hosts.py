"""Check of the Host header, against DNS rebinding.

A page of another site can make a browser send requests to a loopback address by letting its own
host name resolve to it. Such requests carry that name in their Host header, so unknown names are
rejected. An IP address cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from itemfold.serving.http.api.errors import error_response
from itemfold.serving.http.settings import LOCAL_NAMES


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
