"""Rate limits of API keys."""

from __future__ import annotations

import time
from collections.abc import MutableSequence
from contextlib import AbstractContextManager, nullcontext


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
        """Take tokens, even more than available: the key then waits until they are refilled."""
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
