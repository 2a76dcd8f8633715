"""The connections of a worker, and which of them to close if there are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from itemfold.serving.http.admission.busy_responses import BusyResponses
from itemfold.serving.http.admission.pace import MAX_REJECTION_DELAY_S, Pace
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.protocol.transport import DROPS_PER_SECOND, LINGER_S

if TYPE_CHECKING:
    from itemfold.serving.http.protocol.connection import LimitedConnection

SPARE_FILES = 64  # open files that are not connections


class ConnectionPool:
    """The state that the connections of a worker share.

    Attributes:
        limits: The limits of the service.
        idle: Connections without a complete request, the oldest first: the first to go if there
            are too many connections, so that clients which never finish cannot lock others out.
        unsent: Connections whose clients do not read, the oldest first.
        busy_responses: Requests that wait for their 503.
        pace: The pace of answers to clients without a valid key, or beyond their rate limit.
        drops: The pace of reads of what clients send after their answer.
    """

    def __init__(self, limits: Limits, max_connections: int) -> None:
        self.limits, self.max_connections = limits, max_connections
        self.idle: dict[LimitedConnection, None] = {}
        self.unsent: dict[LimitedConnection, None] = {}
        self.busy_responses = BusyResponses()
        self.pace = Pace(limits.max_rejected, MAX_REJECTION_DELAY_S)
        self.drops = Pace(DROPS_PER_SECOND, LINGER_S)

    def make_room(self, connections: int) -> bool:
        """Close the oldest idle connection if there are too many; return False if none is idle."""
        if connections > self.max_connections:
            if not self.idle:
                return False
            self._abort(self.idle)
        return True

    def bound_unsent(self) -> None:
        """Drop the oldest unread responses if together they take too much memory."""
        sizes = {c: c.transport.get_write_buffer_size() for c in self.unsent}
        total = sum(sizes.values())
        while total > self.limits.max_unsent and len(self.unsent) > 1:
            total -= sizes[self._abort(self.unsent)]

    def _abort(self, connections: dict[LimitedConnection, None]) -> LimitedConnection:
        oldest = next(iter(connections))
        del connections[oldest]
        oldest.transport.abort()
        return oldest


def connection_limit(most: int) -> int:
    """Connections per worker: as many as the limit on open files allows, `most` at most."""
    try:
        import resource
    except ImportError:  # not available on this system
        return min(512, most)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:  # the usual soft limit is low
        wanted = most + SPARE_FILES
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(8, min(most, soft - SPARE_FILES))
