"""Atomic writes, and reads whose errors name the damaged file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path`` that replaces it once it is written and on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except ItemrecError:
        raise
    except Exception as error:
        cause = _os_error(error)
        if cause is None or str(cause.filename) not in ("None", str(draft)):
            raise
        # callers do not know the draft, and some writers have their own errors for a full disk
        raise OSError(cause.errno, cause.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)


def _os_error(error: BaseException) -> OSError | None:
    """The error of the operating system behind an error: itself, the one it arose from, its text.

    >>> _os_error(ValueError("I/O error: No space left on device (os error 28)"))
    OSError(28, 'No space left on device')
    """
    if isinstance(error, OSError):
        return error if error.errno is not None else None
    if code := re.search(r"\(os error (\d+)\)", str(error)):
        return OSError(int(code[1]), os.strerror(int(code[1])))
    return _os_error(error.__context__) if error.__context__ else None


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[None]:
    """Lock a folder; the lock ends with its process.

    If another process has the lock, wait for it, or raise.
    """
    try:
        import fcntl
    except ImportError:  # not available on this system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            problem = f"another process works in {folder}: wait for it, or choose another --out"
            raise ItemrecError(problem) from None
        yield
    finally:
        os.close(handle)


def check_file(path: str | Path, endings: Sequence[str]) -> Path:
    """Raise if a file cannot be written, before any work is done."""
    path = Path(path)
    if path.is_dir():
        raise ItemrecError(f"'out' must be a file, got the folder '{path}'")
    if path.suffix not in endings:
        raise ItemrecError(f"'out' must end in {' or '.join(endings)}, got '{path}'")
    if not path.parent.is_dir():
        raise ItemrecError(f"'out' must lie in an existing folder, got '{path}'")
    if not _writable(path.parent):
        raise ItemrecError(f"'out' must lie in a folder that can be written to, got '{path}'")
    return path


def check_folder(name: str, folder: str | Path) -> Path:
    """Raise if a folder cannot be created, before any work is done."""
    folder = ancestor = Path(folder)
    while not ancestor.exists():
        ancestor = ancestor.parent
    if not ancestor.is_dir():
        raise ItemrecError(f"'{name}' must be a folder, got '{folder}': '{ancestor}' is a file")
    if ancestor != folder and not _writable(ancestor):
        raise ItemrecError(f"'{name}' must lie in a folder that can be written to, got '{folder}'")
    return folder


def _writable(folder: Path) -> bool:
    """Try to write: the permission bits alone do not decide."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def checksum(path: Path) -> str:
    """The SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_file(path: Path, parse: Callable[[Path], T]) -> T:
    """Parse a file; an error becomes one sentence that names the file."""
    try:
        return parse(path)
    except Exception as error:  # each format has its own errors for a damaged file
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ItemrecError(f"{path} is damaged: {reason}") from error


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ItemrecError("it must hold an object")
    return content


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines; empty if the file is absent."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def arrays_of(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file; empty if the file is absent."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def check_zip(path: Path) -> None:
    """Raise if a part of a zip file, such as one that torch wrote, differs from its checksum."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise ItemrecError(f"{path} is damaged: {damaged}")


def tensors_of(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in memory of their own.

    The file is read and not mapped: a mapped tensor changes with its file, and using one whose file
    was cut short ends the process.
    """
    from safetensors.torch import load

    content: dict[str, Tensor] = load(path.read_bytes())
    return {name: tensor.to(device) for name, tensor in content.items()}
