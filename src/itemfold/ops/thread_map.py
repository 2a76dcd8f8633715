"""A parallel map over torch's threads, one part per thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


@contextmanager
def thread_map() -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` whose calls run in parallel; within each, torch uses one thread.

    Results come in the order of the parts. After an error no further part starts.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def map_of(device: torch.device) -> AbstractContextManager[Callable[..., Iterator[Any]]]:
    """`thread_map` on a CPU, where many small operations wait for each other less; else `map`."""
    return thread_map() if device.type == "cpu" else nullcontext(map)
