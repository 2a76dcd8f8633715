"""API keys: those of the settings and those of a file, which is read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from itemfold.errors import ItemfoldError
from itemfold.serving.http.access_log import log

MIN_KEY = 16  # characters: shorter keys can be guessed
MAX_KEYS = 1000  # every request is compared with all of them
CHECK_SECONDS = 1.0  # between two looks at the file
SETTLED_SECONDS = 1.0  # how long it must have been unchanged: somebody may still be writing it
Stamp = tuple[int, int, int]


def check_key(name: str, key: str) -> None:
    """Raise if a key can be guessed or cannot be sent; the message does not contain it."""
    if not re.fullmatch(rf"[!-~]{{{MIN_KEY},}}", key):
        raise ItemfoldError(
            f"'{name}' must have at least {MIN_KEY} printable ASCII characters and no "
            f"spaces, got {len(key)} characters"
        )


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys in a file, one per line; lines that begin with # are comments.

    Raises:
        ItemfoldError: Other users can read the file, or it has no valid keys.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ItemfoldError(f"'api_key_file' cannot be read: {path} ({why})") from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise ItemfoldError(
            f"'api_key_file' must be readable by its owner only, and '{path}' has mode "
            f"{stat.S_IMODE(mode):03o}: run chmod 600 {path}"
        )
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ItemfoldError(f"'api_key_file' must hold one key per line, '{path}' holds none")
    if len(keys) > MAX_KEYS:
        raise ItemfoldError(
            f"'api_key_file' must hold at most {MAX_KEYS:,} keys, got {len(keys):,}"
        )
    for key in keys:
        check_key("api_key_file", key)
    return keys


class ApiKeys:
    """The valid keys; a changed file replaces its keys within seconds, without a restart.

    A file that is invalid or missing is logged, and its previous keys stay valid.

    Args:
        fixed: Keys that do not change.
        path: A file of keys, or None.
    """

    def __init__(self, fixed: Sequence[str], path: Path | None = None) -> None:
        self.path = path
        self._fixed = [_digest(key) for key in fixed]
        self._stamp = None if path is None else _stamp(path)
        self._in_file = [] if path is None else [_digest(key) for key in read_keys(path)]
        self._checked_at = time.monotonic()

    def find(self, key: str) -> int | None:
        """The number of a key, None if it is not valid.

        It is compared with all keys, each in constant time.
        """
        if self.path is not None and time.monotonic() - self._checked_at >= CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._refresh(self.path)
        given = _digest(key)
        matches = [hmac.compare_digest(given, known) for known in (*self._fixed, *self._in_file)]
        return matches.index(True) if any(matches) else None

    def _refresh(self, path: Path) -> None:
        """Read the file again if it has changed and settled."""
        found = _stamp(path)
        if found == self._stamp:
            return
        age = SETTLED_SECONDS if found is None else time.time() - found[1] / 1e9
        if 0 <= age < SETTLED_SECONDS:
            return
        self._stamp = found
        try:
            self._in_file = [_digest(key) for key in read_keys(path)]
        except ItemfoldError as error:
            log(logging.ERROR, f"the API keys are not replaced: {error}")
        else:
            log(logging.INFO, f"{len(self._in_file)} API keys were read from the changed file")


def _stamp(path: Path) -> Stamp | None:
    """What changes with a file, also with its mode; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_mode


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
