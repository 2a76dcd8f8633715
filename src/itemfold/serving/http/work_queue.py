"""A bounded queue before the scoring threads; requests that would wait too long get a 503."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

RETRY_SECONDS = 1  # Retry-After of a busy service
CLIENT_GONE = 499  # nginx's status for a closed connection, seen in logs and metrics only
T = TypeVar("T")


class WorkQueue:
    """Scoring threads, and a first-in-first-out queue of requests for them.

    Args:
        threads: Number of threads; scoring is CPU-bound, so more than cores would not help.
        max_waiting: Requests that may wait; the next one gets a 503.
        max_wait_s: Seconds that a request may wait before it gets a 503. If recent work took so
            long that the wait would exceed them, it gets the 503 at once.
    """

    def __init__(self, threads: int = 1, max_waiting: int = 256, max_wait_s: float = 1.0) -> None:
        self.max_waiting, self.max_wait_s, self.waiting = max_waiting, max_wait_s, 0
        self.threads, self._work_seconds = threads, 0.0  # a moving average
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="score")
        self._turns = asyncio.Semaphore(threads)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be rejected."""
        wait = self.waiting * self._work_seconds / self.threads
        return self.waiting >= self.max_waiting or wait > self.max_wait_s

    async def run(self, request: Request, work: Callable[[], T], *, patient: bool = False) -> T:
        """Run the work in a thread when it is this request's turn.

        A `patient` request waits without a limit: a part of its work is done already.

        Raises:
            HTTPException: 503 if the wait is too long, 499 if the client disconnects.
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
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _wait(self, request: Request, patient: bool) -> None:
        """Wait for a turn, unless the client disconnects."""
        if self.is_full and not patient:
            raise busy()
        turn = asyncio.ensure_future(self._turns.acquire())
        gone = asyncio.ensure_future(_until_disconnected(request))
        self.waiting += 1
        try:
            timeout = None if patient else self.max_wait_s
            await asyncio.wait({turn, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise HTTPException(CLIENT_GONE, "client disconnected")
            if not turn.done():
                raise busy()
        except BaseException:  # cancellation of the request, too
            if not turn.cancel():  # the turn has come already
                self._turns.release()
            raise
        finally:
            self.waiting -= 1
            gone.cancel()


def busy() -> HTTPException:
    """The error of a request when too many others wait."""
    text = f"too many requests are waiting: try again in {RETRY_SECONDS} s"
    return HTTPException(503, text, {"Retry-After": str(RETRY_SECONDS)})


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
