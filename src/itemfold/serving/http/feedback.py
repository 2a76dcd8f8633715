"""Feedback in a file of JSON lines, rotated when it grows large."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from itemfold.files import check_folder, locked

ROTATE_BYTES = 64 * 2**20


class FeedbackFile:
    """An append-only file, safe to write from several processes.

    Each line has `user_id`, `item_id`, `timestamp` (seconds), `event`, `run` and
    `run_fingerprint`. A full file is renamed to ``feedback-TIME-ID.jsonl``.

    Args:
        folder: The folder of the files; created if necessary.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = check_folder("feedback", folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "feedback.jsonl"

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Append all rows or none."""
        now = datetime.now(UTC)
        lines = [json.dumps({"timestamp": now.timestamp(), **row}) + "\n" for row in rows]
        with locked(self.folder, wait=True):
            size = self.path.stat().st_size if self.path.exists() else 0
            if size >= ROTATE_BYTES:
                name = f"feedback-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}.jsonl"
                self.path.rename(self.folder / name)
                size = 0
            try:
                with self.path.open("ab") as file:
                    file.write("".join(lines).encode())
            except OSError:  # a full disk may have taken half a line
                with suppress(FileNotFoundError):
                    os.truncate(self.path, size)
                raise
