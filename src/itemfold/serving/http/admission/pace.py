"""A rate limit for error responses."""

from __future__ import annotations

MAX_REJECTION_DELAY_S = 10.0  # before a 401 or a 429


class Pace:
    """Limits the rate of responses such as 401, after an initial burst of one second.

    Clients that retry immediately would otherwise occupy the event loop.

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
        """Seconds until the next response may be sent."""
        earliest = max(self._next, now - 1 + 1 / self.per_second)
        self._next = min(earliest, now + self.most_s) + 1 / self.per_second
        return min(self.most_s, max(0.0, earliest - now))
