"""Feedback in a Postgres database."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from itemfold.data.feedback.sql import TABLE, SqlStore
from itemfold.data.feedback.store import DATABASE_URL, Entry, Row, StoreError, StoreFullError
from itemfold.environment import need_packages
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 5
WRITE_SECONDS = 10  # a statement that takes longer is cancelled
MEASURE_SECONDS = 60.0  # how long a measured size is used again
CREATE_LOCK = 0x6974656D666F6C64  # of the processes that create the table at the same time


class PostgresStore(SqlStore):
    """A table in a Postgres database; a lost connection is opened again.

    Args:
        url: A URL such as postgresql://user:password@host/name.
        max_bytes: Largest size of the events; default: no limit.
    """

    place, mark, key = "postgres", "%s", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"

    def __init__(self, url: str, max_bytes: int | None = None) -> None:
        need_packages("--feedback postgres", ["psycopg"])
        self.url = re.sub(r"^postgresql\+\w+://", "postgresql://", url)  # as SQLAlchemy has it
        self.max_bytes = max_bytes
        self._opened: psycopg.Connection[Any] | None = None
        self._size, self._measured = 0, -MEASURE_SECONDS

    def create(self) -> None:
        """Create the table, unless it exists: the role may not be allowed to create one."""
        with self.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (CREATE_LOCK,))
            (found,) = cursor.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone()
            for statement in () if found else self.schema():
                cursor.execute(statement)

    def append(self, rows: Sequence[Row]) -> None:
        """Insert all events or none; an old connection that turns out to be lost is replaced."""
        was_open = self._opened is not None
        try:
            super().append(rows)
        except StoreFullError:
            raise
        except StoreError:
            if not was_open or self._opened is not None:
                raise
            super().append(rows)

    def entries(self) -> Iterator[Entry]:
        """All events, the oldest first, fetched in parts."""
        with self._reported():
            connection = self._connection()
            with connection.transaction(), connection.cursor(name="itemfold_feedback") as cursor:
                yield from self.select(cursor)

    def check_room(self, cursor: Any) -> None:
        """Bound the time of the insert, and raise if the events are as large as allowed."""
        cursor.execute(f"SET LOCAL statement_timeout = '{WRITE_SECONDS}s'")
        if self.max_bytes is None:
            return
        if time.monotonic() - self._measured >= MEASURE_SECONDS:
            (self._size,) = cursor.execute(f"SELECT pg_total_relation_size('{TABLE}')").fetchone()
            if self._size >= self.max_bytes:  # it includes deleted rows, whose space is free
                size = f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {TABLE} t"
                (self._size,) = cursor.execute(size).fetchone()
            self._measured = time.monotonic()
        if self._size >= self.max_bytes:
            raise StoreFullError(
                f"{TABLE} holds as much feedback as allowed, {self.max_bytes:,} bytes"
            )

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor whose statements take effect together or not at all."""
        with self._reported():
            connection = self._connection()
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor

    def _connection(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._opened is not None and self._opened.closed:
            self._opened = None
        if self._opened is None:
            self._opened = psycopg.connect(
                self.url,
                autocommit=True,  # outside of `transaction`
                connect_timeout=CONNECT_SECONDS,
                tcp_user_timeout=1000 * WRITE_SECONDS,
                fallback_application_name="itemfold",
            )
        return self._opened

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the database as errors of the store."""
        import psycopg

        try:
            yield
        except psycopg.errors.UndefinedTable as error:
            problem = f"has no feedback: there is no table {TABLE}"
            raise ItemfoldError(f"the database of {DATABASE_URL} {problem}") from error
        except psycopg.Error as error:
            if self._opened is not None and self._opened.broken:
                self.close()
            kind = StoreFullError if isinstance(error, psycopg.errors.DiskFull) else StoreError
            raise kind(f"the database of {DATABASE_URL}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of a message; the others are hints of the driver.

    >>> first_line(ValueError("connection refused\\nIs the server running?"))
    'connection refused'
    """
    return str(error).strip().partition("\n")[0]
