"""Shared code of SQLite and Postgres: one table of events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from itemfold.data.feedback.store import FIELDS, Entry, Row

TABLE = "itemfold_feedback"
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS {table} (id {key}, timestamp DOUBLE PRECISION NOT NULL, "
    "user_id TEXT, item_id TEXT NOT NULL, event TEXT NOT NULL, run TEXT, run_fingerprint TEXT)",
    "CREATE INDEX IF NOT EXISTS {table}_timestamp ON {table} (timestamp)",
    "CREATE INDEX IF NOT EXISTS {table}_user_id ON {table} (user_id)",
)


class SqlStore(ABC):
    """A table of events in a database.

    Attributes:
        place: The name of the database in messages, without a password.
        mark: The placeholder of a value in a statement.
        key: The type of the primary key.
    """

    place: str
    mark: str
    key: str

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A cursor whose statements take effect together or not at all."""

    def schema(self) -> list[str]:
        """The statements that create the table."""
        return [text.format(table=TABLE, key=self.key) for text in SCHEMA]

    def append(self, rows: Sequence[Row]) -> None:
        """Insert all events or none."""
        marks = ", ".join([self.mark] * len(FIELDS))
        statement = f"INSERT INTO {TABLE} ({', '.join(FIELDS)}) VALUES ({marks})"
        with self.transaction() as cursor:
            self.check_room(cursor)
            cursor.executemany(statement, [_values(row) for row in rows])

    @abstractmethod
    def check_room(self, cursor: Any) -> None:
        """Raise if the table is as large as allowed."""

    def select(self, cursor: Any) -> Iterator[Entry]:
        """All events, the oldest first."""
        cursor.execute(f"SELECT id, {', '.join(FIELDS)} FROM {TABLE} ORDER BY timestamp, id")
        for key, *values in cursor:
            yield f"{self.place}, event {key}", dict(zip(FIELDS, values, strict=True))

    def recent(self, since: float, limit: int) -> Iterator[Row]:
        """The newest events since a time, the oldest first."""
        newest = (
            f"SELECT * FROM {TABLE} WHERE timestamp >= {self.mark} "
            f"ORDER BY timestamp DESC, id DESC LIMIT {limit:d}"
        )
        statement = f"SELECT {', '.join(FIELDS)} FROM ({newest}) AS newest ORDER BY timestamp, id"
        with self.transaction() as cursor:
            cursor.execute(statement, (since,))
            for values in cursor:
                yield dict(zip(FIELDS, values, strict=True))

    def forget(self, user: str) -> int:
        """Delete the events of a user."""
        return self._delete(f"user_id = {self.mark}", user.strip())

    def expire(self, before: float) -> int:
        """Delete the events before a time."""
        return self._delete(f"timestamp < {self.mark}", before)

    def _delete(self, condition: str, value: str | float) -> int:
        with self.transaction() as cursor:
            cursor.execute(f"DELETE FROM {TABLE} WHERE {condition}", (value,))
            return int(cursor.rowcount)


def _values(row: Row) -> tuple[Any, ...]:
    """The fields of an event; ids are text."""
    time, *texts = (row.get(name) for name in FIELDS)
    return (time, *(None if text is None else str(text).strip() for text in texts))
