"""When refused requests are answered: later the more of them there are."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

MIN_BUSY_DELAY_S, MAX_BUSY_DELAY_S = 0.1, 1.0  # before a 503: some clients retry at once
BUSY_PER_SECOND = 500  # more refusals would take the time of requests that are answered
MAX_REJECTION_DELAY_S = 10.0  # before a 401 or a 429
TICK_S = 0.02  # between two rounds of answers: one timer serves all connections


class Refused(Protocol):
    """A connection whose request was refused."""

    def send_busy(self) -> None:
        """Send the 503."""


class Refusals:
    """Requests that wait for their 503, in the order of their arrival.

    Clients that retry at once would send as many requests as are refused, and each costs time that
    others need. So refusals wait, up to `MAX_BUSY_DELAY_S`.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Refused]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, refused: Refused) -> None:
        """Let a request wait for its 503."""
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


class Pace:
    """The pace of answers such as 401, after a second's worth of them at once.

    Clients that come again at once would otherwise take all of the event loop.

    Args:
        per_second: Answers a second.
        most_s: Longest delay.

    Examples:
        >>> pace = Pace(2, 1.5)
        >>> [pace.delay(100.0) for _ in range(6)]
        [0.0, 0.0, 0.5, 1.0, 1.5, 1.5]
        >>> pace.delay(103.0)
        0.0
    """

    def __init__(self, per_second: float, most_s: float) -> None:
        self.per_second, self.most_s = per_second, most_s
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Seconds until the next answer may be sent."""
        earliest = max(self._next, now - 1 + 1 / self.per_second)
        self._next = min(earliest, now + self.most_s) + 1 / self.per_second
        return min(self.most_s, max(0.0, earliest - now))
