"""A .npy file that grows piece by piece; what an interrupted piece left behind is cut off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CHUNK = 2**20  # entries that are read at once
HEADER = 128  # bytes; numpy leaves room in it for any number of entries


def append(path: Path, before: int, piece: npt.NDArray[Any]) -> None:
    """Write a piece behind the first ``before`` entries of a file, and wait until it is on disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.npy")
    ...     append(path, 0, np.array([1, 2], np.int32))
    ...     append(path, 1, np.array([3], np.int32))
    ...     np.load(path).tolist()
    [1, 3]
    """
    size = HEADER + before * piece.itemsize
    with path.open("r+b" if before else "wb") as file:
        shape = (before + len(piece),)
        header = {"descr": piece.dtype.str, "fortran_order": False, "shape": shape}
        file.truncate(size)
        np.lib.format.write_array_header_1_0(file, header)
        if file.tell() != HEADER:
            raise RuntimeError(f"{path}: the header of an array has {file.tell()} bytes")
        file.seek(size)
        piece.tofile(file)
        file.flush()
        os.fsync(file.fileno())


def pieces(path: Path) -> Iterator[npt.NDArray[Any]]:
    """The entries of a file in order, without holding or mapping them all."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        (count,), _, dtype = np.lib.format.read_array_header_1_0(file)
        for start in range(0, count, CHUNK):
            yield np.fromfile(file, dtype, min(CHUNK, count - start))
