"""A bounded queue before the threads that score: who would wait too long is told so at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

RETRY_SECONDS = 1  # what a client is told to wait when the service is busy
CLIENT_GONE = 499  # the usual number for a client that closed its connection; nobody receives it
T = TypeVar("T")


class WorkQueue:
    """Threads that score, and requests that wait for one of them in their order.

    Args:
        threads: Number of threads; scoring is bound to the CPU, so more than cores would not help.
        places: Requests that may wait; the next one is answered with 503.
        seconds: How long a request may wait before it is answered with 503. One that would
            have to wait longer, by the time that recent work took, is answered at once.
    """

    def __init__(self, threads: int = 1, places: int = 256, seconds: float = 1.0) -> None:
        self.places, self.seconds, self.waiting = places, seconds, 0
        self.threads, self._work_seconds = threads, 0.0  # a moving average
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="score")
        self._turns = asyncio.Semaphore(threads)

    @property
    def is_full(self) -> bool:
        """Whether the next request would find no place."""
        wait = self.waiting * self._work_seconds / self.threads
        return self.waiting >= self.places or wait > self.seconds

    async def run(self, request: Request, work: Callable[[], T], *, patient: bool = False) -> T:
        """Do the work in a thread when it is this request's turn.

        A `patient` request has done a part of its work already: it waits as long as it takes.

        Raises:
            HTTPException: 503 if the wait is too long, 499 if the client has gone.
        """
        if self._turns.locked():
            await self._wait(request, patient)
        else:
            await self._turns.acquire()
        start = time.perf_counter()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._work_seconds += 0.05 * (time.perf_counter() - start - self._work_seconds)
            self._turns.release()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _wait(self, request: Request, patient: bool) -> None:
        """Wait for a turn, while watching whether the client still waits for an answer."""
        if self.is_full and not patient:
            raise busy()
        turn = asyncio.ensure_future(self._turns.acquire())
        gone = asyncio.ensure_future(_until_gone(request))
        self.waiting += 1
        try:
            timeout = None if patient else self.seconds
            await asyncio.wait({turn, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise HTTPException(CLIENT_GONE, "the client has closed the connection")
            if not turn.done():
                raise busy()
        except BaseException:  # also if the request itself was cancelled while it waited
            if not turn.cancel():  # its turn has come
                self._turns.release()
            raise
        finally:
            self.waiting -= 1
            gone.cancel()


def busy() -> HTTPException:
    """The answer when too many requests wait."""
    text = f"too many requests are waiting: try again in {RETRY_SECONDS} s"
    return HTTPException(503, text, {"Retry-After": str(RETRY_SECONDS)})


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
