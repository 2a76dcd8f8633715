"""Feedback in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from itemfold.data.feedback.sql import TABLE, SqlStore
from itemfold.data.feedback.store import Entry, StoreError, StoreFullError
from itemfold.errors import ItemfoldError

BUSY_SECONDS = 10.0  # how long a process waits while another writes
PRIVATE = 0o600  # feedback is personal data; SQLite gives its other files the same mode


class SqliteStore(SqlStore):
    """A SQLite file, safe to write from several processes of one machine.

    Only the owner can read it, and deleted events are overwritten with zeros.

    Args:
        path: The file.
        max_bytes: Largest size of the file; default: no limit.
    """

    mark, key = "?", "INTEGER PRIMARY KEY"

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self.path, self.place, self.max_bytes = path, str(path), max_bytes
        self._opened: sqlite3.Connection | None = None

    def create(self) -> None:
        """Create the file and its table."""
        if not self.path.parent.is_dir():
            raise ItemfoldError(f"'feedback' must be in an existing folder, got '{self.path}'")
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE))
            with suppress(PermissionError):  # the file of another user
                self.path.chmod(PRIVATE)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror or error}") from error
        with self.transaction() as cursor:
            with suppress(sqlite3.OperationalError):  # another process does the same
                cursor.execute("PRAGMA journal_mode = WAL")  # a writer does not stop readers
            for statement in self.schema():
                cursor.execute(statement)

    def entries(self) -> Iterator[Entry]:
        """All events, the oldest first."""
        with self.transaction() as cursor:
            yield from self.select(cursor)

    def forget(self, user: str) -> int:
        """Delete the events of a user, also from the write-ahead log."""
        deleted = super().forget(user)
        with self._reported():
            self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return deleted

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def check_room(self, cursor: Any) -> None:
        """Do nothing: SQLite itself limits the number of pages."""

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """A cursor whose statements take effect together or not at all."""
        with self._reported():
            connection = self._connection()
            with connection, closing(connection.cursor()) as cursor:
                yield cursor

    def _connection(self) -> sqlite3.Connection:
        if self._opened is not None:
            return self._opened
        if not self.path.exists():
            raise ItemfoldError(f"{self.path}: no such file or folder")
        uri = f"{self.path.resolve().as_uri()}?mode=rw"
        made = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            made.execute("PRAGMA synchronous = NORMAL")
            made.execute("PRAGMA secure_delete = ON")
            if self.max_bytes is not None:
                (page,) = made.execute("PRAGMA page_size").fetchone()
                made.execute(f"PRAGMA max_page_count = {max(1, self.max_bytes // page)}")
        except sqlite3.Error:
            made.close()
            raise
        self._opened = made
        return made

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of SQLite as errors of the store."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_FULL:
                limit = "" if self.max_bytes is None else f", at most {self.max_bytes:,} bytes"
                raise StoreFullError(f"{self.path}: the file or its disk is full{limit}") from error
            if f"no such table: {TABLE}" in str(error):
                problem = f"has no feedback: there is no table {TABLE}"
                raise ItemfoldError(f"{self.path}: {problem}") from error
            raise StoreError(f"{self.path}: {error}") from error
