"""Delayed 503 responses to rejected requests: the more of them, the longer the delay."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

MIN_BUSY_DELAY_S, MAX_BUSY_DELAY_S = 0.1, 1.0  # before a 503: some clients retry at once
BUSY_PER_SECOND = 500  # more refusals would take the time of requests that are answered
TICK_S = 0.02  # between two rounds of answers: one timer serves all connections


class Refused(Protocol):
    """A connection whose request was rejected."""

    def send_busy(self) -> None:
        """Send the 503."""


class Refusals:
    """Rejected requests that wait for their 503, in order of arrival.

    Clients that retry at once would send as many requests as are refused, and each costs time that
    others need. So refusals wait, up to `MAX_BUSY_DELAY_S`.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Refused]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, refused: Refused) -> None:
        """Add a request that waits for its 503."""
        loop = asyncio.get_running_loop()
        delay = min(MAX_BUSY_DELAY_S, max(MIN_BUSY_DELAY_S, len(self._waiting) / BUSY_PER_SECOND))
        self._waiting.append((loop.time() + delay, refused))
        if self._timer is None:
            self._timer = loop.call_later(TICK_S, self._send_due, loop)

    def _send_due(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            self._waiting.popleft()[1].send_busy()
        self._timer = loop.call_later(TICK_S, self._send_due, loop) if self._waiting else None
