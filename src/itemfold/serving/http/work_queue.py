"""Admission to the scoring threads: single requests first, batches in the gaps, 503 beyond."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from itemfold.serving.http.limits import Limits

RETRY_SECONDS = 1  # Retry-After of a busy service
CLIENT_GONE = 499  # nginx's status for a closed connection, seen in logs and metrics only
SINGLES_PER_SLICE = 4  # single requests in a row while a slice of a batch waits
PLACE = "has_place"  # in the scope of a request that was admitted when it arrived
T = TypeVar("T")


class WorkQueue:
    """Scoring threads and two queues before them: of single requests and of slices of batches.

    A request holds a place from its admission to the end of its work. The next one is admitted if
    those before it would be done within `max_wait_s`, by the pace at which requests have been
    completed. Batches hold no places: they are limited by the number of their users.

    Args:
        threads: Number of threads; scoring is CPU-bound, so more than cores would not help.
        limits: `max_waiting`, `max_wait_s` and `max_batch_users` apply.
    """

    def __init__(self, threads: int = 1, limits: Limits | None = None) -> None:
        self.threads, self.limits = threads, limits or Limits()
        self.places = self.batch_users = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="score")
        self._singles: deque[asyncio.Future[None]] = deque()
        self._slices: deque[asyncio.Future[None]] = deque()
        self._free, self._in_a_row = threads, 0
        self._pace, self._last_done = 0.0, 0.0  # seconds per single request, a moving average

    @property
    def waiting(self) -> int:
        """Number of admitted requests that have no thread yet."""
        return max(0, self.places - self.threads)

    @property
    def is_full(self) -> bool:
        """Whether the next request would be rejected."""
        too_slow = self.waiting * self._pace > self.limits.max_wait_s
        return self.waiting >= self.limits.max_waiting or too_slow

    def enter(self) -> bool:
        """Take a place; return False if the queue is full."""
        if self.is_full:
            return False
        self.places += 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self.places -= 1

    async def run(self, request: Request, work: Callable[[], T]) -> T:
        """Run the work of a single request in a thread when it is its turn.

        Raises:
            HTTPException: 503 if the wait is too long, 499 if the client disconnects.
        """
        if not (request.scope.pop(PLACE, False) or self.enter()):
            raise busy()
        entered = time.perf_counter()
        try:
            has_waited = await self._turn(self._singles, request, self.limits.max_wait_s)
            result = await self._work(work)
            begun, self._last_done = max(entered, self._last_done), time.perf_counter()
            seconds = (self._last_done - begun) / (1 if has_waited else self.threads)
            self._pace += 0.05 * (seconds - self._pace)
            return result
        finally:
            self.leave()

    async def run_slice(self, request: Request, work: Callable[[], T]) -> T:
        """Run a slice of a batch in a thread; it waits as long as it must."""
        await self._turn(self._slices, request, None)
        return await self._work(work)

    @contextmanager
    def batch(self, users: int) -> Iterator[None]:
        """Admit a batch of this size while the context lasts; raise a 503 if there are too many."""
        if self.batch_users and self.batch_users + users > self.limits.max_batch_users:
            raise busy()
        self.batch_users += users
        try:
            yield
        finally:
            self.batch_users -= users

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._release()

    def _release(self) -> None:
        """Pass the turn of a thread on, or mark the thread as free."""
        favoured = self._singles
        if self._slices and (self._in_a_row >= SINGLES_PER_SLICE or not self._singles):
            favoured = self._slices
        while favoured or (favoured := self._singles or self._slices):
            turn = favoured.popleft()
            if not turn.done():
                self._in_a_row = self._in_a_row + 1 if favoured is self._singles else 0
                turn.set_result(None)
                return
        self._free += 1

    async def _turn(
        self, lane: deque[asyncio.Future[None]], request: Request, max_wait_s: float | None
    ) -> bool:
        """Wait for a thread, unless the client disconnects; return whether it was busy."""
        if self._free:
            self._free -= 1
            return False
        turn = asyncio.get_running_loop().create_future()
        lane.append(turn)
        gone = asyncio.ensure_future(_until_disconnected(request))
        try:
            await asyncio.wait(
                {turn, gone}, timeout=max_wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            if gone.done():
                raise HTTPException(CLIENT_GONE, "client disconnected")
            if not turn.done():
                raise busy()
        except BaseException:  # cancellation of the request, too
            if turn.done():  # the turn has come already
                self._release()
            turn.cancel()
            raise
        finally:
            gone.cancel()
        return True


def busy() -> HTTPException:
    """The error of a request when too many others wait."""
    text = f"too many requests are waiting: try again in {RETRY_SECONDS} s"
    return HTTPException(503, text, {"Retry-After": str(RETRY_SECONDS)})


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
