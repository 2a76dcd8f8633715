"""Atomic writes, and reads whose errors name the damaged file."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which replaces it once it is written and synced."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except ItemfoldError:
        raise
    except Exception as error:
        cause = _os_error(error)
        if cause is None or str(cause.filename) not in ("None", str(draft)):
            raise
        # name the file, not the draft; some writers raise their own errors for a full disk
        raise OSError(cause.errno, cause.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(folder: Path, name: str) -> None:
    """Remove drafts of a file or folder that a killed process has left in ``folder``."""
    for draft in folder.glob(f".{glob.escape(name)}.*.tmp"):
        pid = draft.name.removeprefix(f".{name}.").removesuffix(".tmp")
        if pid.isdecimal() and not _is_running(int(pid)):
            shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # a signal of 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _os_error(error: BaseException) -> OSError | None:
    """The OSError behind an error: the error itself, its context, or a code in its message.

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
    """Hold an exclusive lock on a folder; it is released when the process ends.

    If another process holds the lock, wait for it or raise.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            problem = f"another process is using {folder}: wait for it, or choose another --out"
            raise ItemfoldError(problem) from None
        yield
    finally:
        os.close(handle)


def check_file(path: str | Path, endings: Sequence[str], name: str = "out") -> Path:
    """Return the path of an output file, or raise if it cannot be written."""
    path = Path(path)
    if path.is_dir():
        raise ItemfoldError(f"'{name}' must be a file, got the folder '{path}'")
    if path.suffix not in endings:
        raise ItemfoldError(f"'{name}' must end in {' or '.join(endings)}, got '{path}'")
    if not path.parent.is_dir():
        raise ItemfoldError(f"'{name}' must be in an existing folder, got '{path}'")
    if not _writable(path.parent):
        raise ItemfoldError(f"'{name}' must be in a writable folder, got '{path}'")
    return path


def check_folder(name: str, folder: str | Path) -> Path:
    """Return the path of an output folder, or raise if it cannot be created."""
    folder = ancestor = Path(folder)
    while not ancestor.exists():
        if ancestor.is_symlink():
            raise ItemfoldError(
                f"'{name}' must be a folder, got '{folder}': '{ancestor}' is a link to "
                f"'{ancestor.readlink()}', which does not exist"
            )
        ancestor = ancestor.parent
    if not ancestor.is_dir():
        raise ItemfoldError(f"'{name}' must be a folder, got '{folder}': '{ancestor}' is a file")
    if ancestor != folder and not _writable(ancestor):
        raise ItemfoldError(f"'{name}' must be in a writable folder, got '{folder}'")
    return folder


def _writable(folder: Path) -> bool:
    """Whether a file can be created in a folder; permission bits alone do not tell."""
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
    """Parse a file; any error is raised as an `ItemfoldError` that names the file."""
    try:
        return parse(path)
    except Exception as error:  # each format has its own errors for a damaged file
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ItemfoldError(f"{path} is damaged: {reason}") from error


def json_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ItemfoldError("it does not hold a JSON object")
    return content


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines; empty if the file is absent."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file; empty if the file is absent."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def check_zip(path: Path) -> None:
    """Raise if a member of a zip file, such as one that torch wrote, fails its checksum."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise ItemfoldError(f"{path} is damaged: {damaged}")


def read_tensors(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, copied into memory.

    The file is not memory-mapped: mapped tensors change with the file, and a truncated file would
    crash the process.
    """
    from safetensors.torch import load

    content: dict[str, Tensor] = load(path.read_bytes())
    return {name: tensor.to(device) for name, tensor in content.items()}
