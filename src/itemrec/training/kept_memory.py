"""Memory that a training step frees is kept for the next one.

A step allocates tables as large as the embeddings and frees them again. The C library gives such
large pieces back to the system, which must clear every page when they are wanted again: in a graph
of ten million interactions a sixth of a step (docs/research/scale.md). Between steps it must not
give them back either, so the memory is kept until training ends.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # parameters of `mallopt` in malloc.h
KEEP = ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1))  # all from the heap, which never shrinks
# what the C library arrives at by itself once large pieces have been freed
RETURN = ((MMAP_MAX, 65536), (MMAP_THRESHOLD, 32 << 20), (TRIM_THRESHOLD, 64 << 20))


def keep_memory() -> None:
    """From now on freed memory is used again; without glibc this does nothing."""
    for setting in KEEP:
        _mallopt()(*setting)


@contextmanager
def memory_returned() -> Iterator[None]:
    """At the end of this context memory that steps have kept goes back to the system."""
    try:
        yield
    finally:
        for setting in RETURN:
            _mallopt()(*setting)


@functools.cache
def _mallopt() -> Callable[[int, int], object]:
    """`mallopt` of the C library, unless the user has set its variables."""
    if sys.platform == "linux" and not any(
        name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ
    ):
        found = getattr(ctypes.CDLL(None), "mallopt", None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return lambda parameter, value: None
