"""Feedback in files of JSON lines, rotated before they grow large."""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from itemfold.data.feedback.store import Entry, Row, StoreError, StoreFullError, is_user
from itemfold.errors import ItemfoldError
from itemfold.files import atomic, check_folder, locked

ROTATE_BYTES = 64 * 2**20  # a file does not grow beyond it
FILES = "feedback*.jsonl"  # in a folder, rotated files included
CURRENT = "feedback.jsonl"  # the file that is written to
EVENT_BYTES = 160  # of a usual event
PRIVATE = 0o600  # feedback is personal data
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileStore:
    """A folder of append-only files, safe to write from several processes.

    A full file is renamed to ``feedback-TIME-ID.jsonl``. Only the owner can read the files.

    Args:
        path: The folder, or one file to read or to delete from.
        max_bytes: Largest size of all files together; default: no limit.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self.path, self.max_bytes = path, max_bytes
        self.folder = path.parent if path.suffix == ".jsonl" and not path.is_dir() else path

    def create(self) -> None:
        """Create the folder, and make files of earlier versions private."""
        if self.folder != self.path:
            raise ItemfoldError(f"'feedback' must be a folder or a SQLite file, got '{self.path}'")
        check_folder("feedback", self.folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in self._files():
            with suppress(OSError):  # the file of another user
                file.chmod(PRIVATE)

    def append(self, rows: Sequence[Row]) -> None:
        """Append all events or none."""
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        content = "".join(lines).encode()
        with self._reported(), locked(self.folder, wait=True):
            sizes = {file: file.stat().st_size for file in self._files()}
            if self.max_bytes is not None and sum(sizes.values()) + len(content) > self.max_bytes:
                raise StoreFullError(
                    f"{self.folder} holds as much feedback as allowed, {self.max_bytes:,} bytes"
                )
            current = self.folder / CURRENT
            size = sizes.get(current, 0)
            if size and size + len(content) > ROTATE_BYTES:
                name = f"feedback-{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:8]}.jsonl"
                current.rename(self.folder / name)
                size = 0
            try:
                with open(current, "ab", opener=_open_private) as file:
                    file.write(content)
            except OSError:  # a full disk may have taken half a line
                with suppress(FileNotFoundError):
                    os.truncate(current, size)
                raise

    def entries(self) -> Iterator[Entry]:
        """The lines of all files; rotated files are named by time."""
        for path in self._files():
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    yield f"{path}, line {number}", line.rstrip(b"\r\n")

    def recent(self, since: float, limit: int) -> Iterator[Row]:
        """The events in the last bytes of the files; half a line at the start is left out."""
        parts: list[tuple[Path, int]] = []  # file and offset, the newest first
        bytes_left = limit * EVENT_BYTES
        for path in reversed(self._files()):
            with suppress(FileNotFoundError):  # it was renamed or deleted
                stat = path.stat()
                if bytes_left <= 0 or stat.st_mtime < since:
                    break
                parts.append((path, max(0, stat.st_size - bytes_left)))
                bytes_left -= stat.st_size
        for path, offset in reversed(parts):
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(offset)
                for row in map(_row, file):
                    time = row.get("timestamp")
                    if isinstance(time, int | float) and time >= since:
                        yield row

    def forget(self, user: str) -> int:
        """Delete the lines of a user; each file is replaced as a whole."""

        def is_kept(line: bytes) -> bool:
            return not is_user(_row(line).get("user_id"), user)

        deleted = 0
        with self._reported(), locked(self.folder, wait=True):
            for path in self._files():
                with path.open("rb") as file:
                    lines = file.readlines()
                kept = [line for line in lines if is_kept(line)]
                deleted += len(lines) - len(kept)
                if len(kept) < len(lines):
                    with _replaced(path, empty=not kept) as draft:
                        draft.writelines(kept)
        return deleted

    def expire(self, before: float) -> int:
        """Delete old lines: lines are in order of time, so they are the first of a file."""
        deleted = 0
        with self._reported(), locked(self.folder, wait=True):
            for path in self._files():
                with path.open("rb") as file:
                    old, start = _old_lines(file, before)
                    if old:
                        is_empty = start == path.stat().st_size
                        file.seek(start)
                        with _replaced(path, empty=is_empty) as draft:
                            shutil.copyfileobj(file, draft)
                deleted += old
        return deleted

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _files(self) -> list[Path]:
        """The files, the oldest first: "-" sorts before "."."""
        return sorted(self.folder.glob(FILES)) if self.folder == self.path else [self.path]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the system as errors of the store."""
        try:
            yield
        except OSError as error:
            kind = StoreFullError if error.errno in FULL else StoreError
            raise kind(f"{self.path}: {error.strerror or error}") from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


@contextmanager
def _replaced(path: Path, *, empty: bool) -> Iterator[BinaryIO]:
    """A file that replaces another once it is complete; the other is removed if it is empty."""
    with atomic(path) as draft, open(draft, "wb", opener=_open_private) as file:
        yield file
    if empty:
        path.unlink()


def _row(line: bytes) -> Row:
    """The object of a line; empty if it is damaged."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _old_lines(file: BinaryIO, before: float) -> tuple[int, int]:
    """Number and size of the first lines of a file, up to the last one before a time.

    A line without a time, such as a damaged one, is as old as its neighbours.
    """
    number, size, found = 0, 0, (0, 0)
    for line in file:
        number, size = number + 1, size + len(line)
        time = _row(line).get("timestamp")
        if isinstance(time, int | float):
            if time >= before:
                break
            found = number, size
    return found
