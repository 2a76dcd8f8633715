"""Resource limits of a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from itemfold.errors import ItemfoldError
from itemfold.validation import at_least_zero, lookup, positive


@dataclass(frozen=True)
class Limits:
    """The limits of a service; all counts are per worker.

    Attributes:
        max_body: Bytes of a request body.
        max_chunks: Pieces in which a request body may arrive.
        header_s: Seconds for the request line and the headers.
        body_s: Seconds for the request body.
        read_s: Seconds in which a client must read 64 KB of its answer, or the rest of it.
        max_unsent: Bytes of answers that clients have not read yet, all connections together.
        max_connections: Open connections; fewer if the system allows fewer open files.
        max_waiting: Requests that may wait for a scoring thread.
        max_wait_s: Seconds that a request may wait for a scoring thread.
        max_batch_users: Users of all batches in progress; one batch is always accepted.
        max_rejected: Answers of 401 and 429 a second; later ones wait.
        shutdown_s: Seconds that requests in progress have at shutdown.
        watchdog_s: Seconds without a sign of life after which a worker is replaced.

    Examples:
        >>> Limits.parse(["max_body=2000000", "max_wait_s=0.5"]).max_body
        2000000
    """

    max_body: int = 2**20
    max_chunks: int = 4096
    header_s: float = 10.0
    body_s: float = 30.0
    read_s: float = 10.0
    max_unsent: int = 64 * 2**20
    max_connections: int = 4096
    max_waiting: int = 256
    max_wait_s: float = 1.0
    max_batch_users: int = 2000
    max_rejected: int = 100
    shutdown_s: float = 10.0
    watchdog_s: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            check = at_least_zero if field.name == "max_waiting" else positive
            check(**{field.name: getattr(self, field.name)})

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """The limits with some of them set by texts such as ``max_wait_s=0.5``."""
        limits = cls()
        kinds = {field.name: type(getattr(limits, field.name)) for field in fields(cls)}
        for text in texts:
            name, _, value = text.partition("=")
            kind = lookup(kinds, "limit", name)
            try:
                number = kind(value)
            except ValueError:
                what = "a whole number" if kind is int else "a number"
                raise ItemfoldError(f"'limit' {name} must be {what}, got {value!r}") from None
            limits = replace(limits, **{name: number})
        return limits
