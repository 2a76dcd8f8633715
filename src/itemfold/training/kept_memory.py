"""Reuse of the memory that a training step frees.

A step allocates tables as large as the embeddings and frees them again. The C library returns such
large blocks to the system, which clears every page when they are allocated again. In a graph of ten
million interactions, that takes a sixth of a step (docs/research/scale.md). Keeping the memory
changes the allocator of the whole process until training ends, so it is done only after
`tune_threads`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from itemfold.threads import is_tuned, set_by_user

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # parameters of `mallopt` in malloc.h
KEEP = ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1))  # all from the heap, which never shrinks
# the values that the C library sets by itself once large blocks have been freed
RETURN = ((MMAP_MAX, 65536), (MMAP_THRESHOLD, 32 << 20), (TRIM_THRESHOLD, 64 << 20))


def keep_memory() -> None:
    """Keep freed memory for reuse from now on."""
    _apply(KEEP)


@contextmanager
def returning_memory() -> Iterator[None]:
    """Return kept memory to the system at the end of this context."""
    try:
        yield
    finally:
        _apply(RETURN)


def _apply(settings: tuple[tuple[int, int], ...]) -> None:
    if is_tuned():
        for setting in settings:
            _mallopt()(*setting)


@functools.cache
def _mallopt() -> Callable[[int, int], object]:
    """`mallopt` of glibc; does nothing elsewhere, or if the user has set the allocator."""
    if sys.platform == "linux" and not set_by_user("MALLOC_", "GLIBC_TUNABLES"):
        found = getattr(ctypes.CDLL(None), "mallopt", None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return lambda parameter, value: None
