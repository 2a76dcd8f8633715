"""Delayed 503 responses: the more of them are waiting, the longer the delay."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

MIN_BUSY_DELAY_S, MAX_BUSY_DELAY_S = 0.1, 1.0  # before a 503: some clients retry immediately
BUSY_PER_SECOND = 500  # more 503 responses would slow down other requests
TICK_S = 0.02  # between two rounds of responses: one timer serves all connections


class BusyConnection(Protocol):
    """A connection whose request gets a 503."""

    def send_busy(self) -> None:
        """Send the 503."""


class BusyResponses:
    """Requests that wait for their 503, in order of arrival.

    Clients that retry immediately would send a request for each 503, and each request costs time
    that others need. The 503 is therefore delayed, by at most `MAX_BUSY_DELAY_S`.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, BusyConnection]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: BusyConnection) -> None:
        """Add a request that waits for its 503."""
        loop = asyncio.get_running_loop()
        delay = min(MAX_BUSY_DELAY_S, max(MIN_BUSY_DELAY_S, len(self._waiting) / BUSY_PER_SECOND))
        self._waiting.append((loop.time() + delay, connection))
        if self._timer is None:
            self._timer = loop.call_later(TICK_S, self._send_due, loop)

    def _send_due(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1].send_busy()
        self._timer = loop.call_later(TICK_S, self._send_due, loop) if self._waiting else None
