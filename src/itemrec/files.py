"""Files that are complete or absent when written, and named when they are damaged."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from itemrec.errors import ItemrecError

T = TypeVar("T")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path`` that replaces it once it is written and on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.errno is not None and str(error.filename) in ("None", str(draft)):
            error.filename = str(path)  # nobody knows the draft
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse a folder that another process works in; a lock ends with the process that has it."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"another process works in {folder}: wait for it, or choose another --out"
            raise ItemrecError(problem) from None
        yield
    finally:
        os.close(handle)


def check_file(path: str | Path, endings: Sequence[str]) -> Path:
    """Refuse a file that cannot be written, before any work is done."""
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
    """Refuse a folder that cannot be made, before any work is done."""
    folder = near = Path(folder)
    while not near.exists():
        near = near.parent
    if not near.is_dir():
        raise ItemrecError(f"'{name}' must be a folder, got '{folder}': '{near}' is a file")
    if near != folder and not _writable(near):
        raise ItemrecError(f"'{name}' must lie in a folder that can be written to, got '{folder}'")
    return folder


def _writable(folder: Path) -> bool:
    """By trying: what the mode says is not the whole truth."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def read_file(path: Path, parse: Callable[[Path], T]) -> T:
    """What a file holds, or one sentence that names it."""
    try:
        return parse(path)
    except Exception as error:  # each format has errors of its own for a damaged file
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ItemrecError(f"{path} is damaged: {reason}") from error


def json_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ItemrecError("it must hold an object")
    return content


def json_lines(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines; none where it is absent."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def arrays_of(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file; none where it is absent."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def tensors_of(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    from safetensors.torch import load_file

    content: dict[str, Tensor] = load_file(path, device=device)
    return content
