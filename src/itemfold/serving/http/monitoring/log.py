"""JSON log lines on stderr, without ids of users or items and without client addresses."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("itemfold.serving")


class JsonFormatter(logging.Formatter):
    """One JSON object per line.

    Only the type and the traceback of an exception are logged: its text may contain user data.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        entry["message"] = record.getMessage().strip()
        entry |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            frames = traceback.extract_tb(record.exc_info[2])
            entry["exception"] = type(record.exc_info[1]).__name__
            entry["at"] = [f"{frame.filename}:{frame.lineno}" for frame in frames]
        return json.dumps(entry)


def log(level: int, message: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log a message with fields."""
    LOGGER.log(level, message, extra={"fields": fields}, exc_info=error)


def set_up_logging() -> None:
    """Log the service, and errors of uvicorn, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, level in (("itemfold.serving", logging.INFO), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
