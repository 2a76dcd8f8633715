"""API keys and their classes, from the settings and from a file that may change."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from itemfold.errors import ItemfoldError
from itemfold.serving.http.monitoring.log import log

MIN_KEY = 16  # characters: shorter keys can be guessed
MAX_KEYS = 1000  # every request is compared with all of them
CHECK_SECONDS = 1.0  # between two looks at the file
SETTLED_SECONDS = 1.0  # how long it must have been unchanged: somebody may still be writing it
MAX_CLASSES = 20  # each is a label of metrics
CLASS = re.compile(r"(?P<key>.*)\sclass=(?P<name>[A-Za-z0-9_-]{1,32})")
NO_KEY, UNNAMED = "none", "key"  # the classes of requests without a valid key, and of other keys
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class ApiKey:
    """A key of the file and its class, the label of its requests in metrics."""

    text: str
    name: str = UNNAMED


def check_key(name: str, key: str) -> None:
    """Raise if a key can be guessed or cannot be sent; the message does not contain it."""
    if not re.fullmatch(rf"[!-~]{{{MIN_KEY},}}", key):
        raise ItemfoldError(
            f"'{name}' must have at least {MIN_KEY} printable ASCII characters and no "
            f"spaces, got {len(key)} characters"
        )


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys in a file, one per line, such as ``KEY`` or ``KEY class=web``.

    Lines that begin with # are comments.

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
    keys = tuple(_parse(line) for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ItemfoldError(f"'api_key_file' must hold one key per line, '{path}' holds none")
    for found, most, what in (
        (len(keys), MAX_KEYS, "keys"),
        (len({key.name for key in keys}), MAX_CLASSES, "classes"),
    ):
        if found > most:
            raise ItemfoldError(f"'api_key_file' must hold at most {most:,} {what}, got {found:,}")
    return keys


def _parse(line: str) -> ApiKey:
    """The key in a line, and its class."""
    found = CLASS.fullmatch(line)
    key = ApiKey(found["key"].strip(), found["name"]) if found else ApiKey(line)
    check_key("api_key_file", key.text)
    if key.name == NO_KEY:
        raise ItemfoldError(f"'api_key_file' must not have the class {NO_KEY}: it means no key")
    return key


class ApiKeys:
    """The valid keys; a changed file replaces its keys within seconds, without a restart.

    A file that is invalid or missing is logged, and its previous keys stay valid.

    Args:
        fixed: Keys that do not change.
        path: A file of keys, or None.
    """

    def __init__(self, fixed: Sequence[str], path: Path | None = None) -> None:
        self.path = path
        self._fixed = [(_digest(key), UNNAMED) for key in fixed]
        self._stamp = None if path is None else _stamp(path)
        self._in_file = [] if path is None else _read_digests(path)
        self._checked_at = time.monotonic()

    def find(self, key: str) -> tuple[int, str] | None:
        """The number and the class of a key, None if it is not valid.

        It is compared with all keys, each in constant time.
        """
        if self.path is not None and time.monotonic() - self._checked_at >= CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._refresh(self.path)
        given, known = _digest(key), (*self._fixed, *self._in_file)
        matches = [hmac.compare_digest(given, digest) for digest, _ in known]
        number = matches.index(True) if any(matches) else None
        return None if number is None else (number, known[number][1])

    def _refresh(self, path: Path) -> None:
        """Reload the file if it has changed and the change is complete."""
        found = _stamp(path)
        if found == self._stamp:
            return
        age = SETTLED_SECONDS if found is None else time.time() - found[1] / 1e9
        if 0 <= age < SETTLED_SECONDS:
            return
        self._stamp = found
        try:
            self._in_file = _read_digests(path)
        except ItemfoldError as error:
            log(logging.ERROR, f"the API keys are not replaced: {error}")
        else:
            log(logging.INFO, f"{len(self._in_file)} API keys were read from the changed file")


def _stamp(path: Path) -> Stamp | None:
    """A value that changes with a file or its mode; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_mode


def _read_digests(path: Path) -> list[tuple[bytes, str]]:
    """The digest and the class of each key in a file."""
    return [(_digest(key.text), key.name) for key in read_keys(path)]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
