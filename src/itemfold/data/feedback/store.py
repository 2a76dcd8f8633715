"""The interface of feedback stores, and which store a place such as `--feedback` names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from itemfold.errors import ItemfoldError

POSTGRES = "postgres"  # the place that means: the database of DATABASE_URL
DATABASE_URL = "DATABASE_URL"
SQLITE_ENDINGS = (".sqlite", ".sqlite3", ".db")
FIELDS = ("timestamp", "user_id", "item_id", "event", "run", "run_fingerprint")

Row = dict[str, Any]  # the `FIELDS` of one event
Entry = tuple[str, Row | bytes]  # where an event is stored, and the event or its line of JSON


class StoreError(ItemfoldError):
    """A feedback store cannot be used at present."""


class StoreFullError(StoreError):
    """A feedback store, its disk or its quota is full."""


class FeedbackStore(Protocol):
    """A store of feedback; several processes may use the same store."""

    def create(self) -> None:
        """Prepare the store for `append`; it may exist already."""

    def append(self, rows: Sequence[Row]) -> None:
        """Store all events or none.

        Raises:
            StoreFullError: They would exceed the size limit, or the disk is full.
            StoreError: They cannot be stored for another reason.
        """

    def entries(self) -> Iterator[Entry]:
        """All events, the oldest first."""

    def recent(self, since: float, limit: int) -> Iterator[Row]:
        """The newest events since a time, about `limit` of them, the oldest first.

        Damaged events are left out.
        """

    def forget(self, user: str) -> int:
        """Delete the events of a user; return their number."""

    def expire(self, before: float) -> int:
        """Delete the events before this time, in seconds since 1970; return their number."""

    def close(self) -> None:
        """Release files and connections."""


def open_store(place: str | Path, max_bytes: int | None = None) -> FeedbackStore:
    """The store at a place: a folder or .jsonl file, a SQLite file, or "postgres".

    Args:
        place: A folder of JSON lines or one of its files, a file that ends in .sqlite, .sqlite3 or
            .db, or "postgres", the database that the variable DATABASE_URL names.
        max_bytes: The size above which `append` raises an error; default: no limit.

    Raises:
        ItemfoldError: The place is a URL, DATABASE_URL is not set, or a driver is missing.

    Examples:
        >>> type(open_store("feedback")).__name__, type(open_store("events.sqlite")).__name__
        ('FileStore', 'SqliteStore')
    """
    if is_postgres(place):
        from itemfold.data.feedback.postgres_store import PostgresStore

        url = os.environ.get(DATABASE_URL, "")
        if not url.startswith(("postgres://", "postgresql://", "postgresql+")):
            problem = "is not set" if not url else "names another kind of database"
            raise ItemfoldError(
                f"'{POSTGRES}' needs {DATABASE_URL}, which {problem}: set it to a URL such as "
                "postgresql://user:password@host/name"
            )
        return PostgresStore(url, max_bytes)
    if "://" in str(place):
        raise ItemfoldError(
            f"'feedback' must not be a URL, because other users of this machine can see it: set "
            f"{DATABASE_URL} to it and give '{POSTGRES}' instead"
        )
    path = Path(place).expanduser()
    if path.suffix.lower() in SQLITE_ENDINGS and not path.is_dir():
        from itemfold.data.feedback.sqlite_store import SqliteStore

        return SqliteStore(path, max_bytes)
    from itemfold.data.feedback.file_store import FileStore

    return FileStore(path, max_bytes)


def is_postgres(place: object) -> bool:
    """Whether a place is the database of DATABASE_URL rather than a folder of that name.

    >>> is_postgres("postgres"), is_postgres("./postgres")
    (True, False)
    """
    return isinstance(place, str) and place == POSTGRES


def is_user(stored: object, user: str) -> bool:
    """Whether a stored user id is this one; ids are compared as text.

    >>> is_user(5, "5"), is_user(None, "5")
    (True, False)
    """
    return stored is not None and str(stored).strip() == user.strip()
