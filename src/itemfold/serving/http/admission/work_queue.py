"""The queue of the scoring threads: single requests first, batches in between, 503 if full."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive

from itemfold.serving.http.limits import Limits
from itemfold.serving.http.scope import PLACE

RETRY_SECONDS = 1  # Retry-After of a busy service
CLIENT_GONE = 499  # nginx's status for a closed connection, seen in logs and metrics only
SINGLES_PER_SLICE = 4  # single requests in a row while a slice of a batch waits
T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]


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
        self._singles: deque[Job] = deque()
        self._slices: deque[Job] = deque()
        self._in_a_row, self._is_closed, self._change = 0, False, threading.Condition()
        self._unfinished = 0  # jobs that wait or are being done
        self._pace, self._last_done = 0.0, 0.0  # seconds per single request, a moving average
        self._workers = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for worker in self._workers:
            worker.start()

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
        """Release a place."""
        self.places -= 1

    async def run(self, request: Request, work: Callable[[], T]) -> T:
        """Run the work of a single request in a thread, in queue order.

        Raises:
            HTTPException: 503 if the wait is too long, 499 if the client disconnects.
        """
        if not (request.scope.pop(PLACE, False) or self.enter()):
            raise busy()
        entered, must_wait = time.perf_counter(), self._is_busy
        try:
            result = await self._do(self._singles, request, work, self.limits.max_wait_s)
            begun, self._last_done = max(entered, self._last_done), time.perf_counter()
            seconds = (self._last_done - begun) / (1 if must_wait else self.threads)
            self._pace += 0.05 * (seconds - self._pace)
            return result
        finally:
            self.leave()

    async def run_slice(self, request: Request, work: Callable[[], T]) -> T:
        """Run a slice of a batch in a thread, without a limit on the wait."""
        return await self._do(self._slices, request, work, None)

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
        """Stop the threads; jobs that have not begun are cancelled."""
        with self._change:
            self._is_closed = True
            for future, _ in (*self._singles, *self._slices):
                future.cancel()
            self._change.notify_all()

    @property
    def _is_busy(self) -> bool:
        """Whether the next job must wait for a thread."""
        return self._unfinished >= self.threads

    async def _do(
        self, lane: deque[Job], request: Request, work: Callable[[], T], max_wait_s: float | None
    ) -> T:
        """Run the work in a thread, unless it waits too long or the client disconnects."""
        job: Future[T] = Future()
        done = asyncio.wrap_future(job)
        must_wait, self._unfinished = self._is_busy, self._unfinished + 1
        try:
            with self._change:
                lane.append((job, work))
                self._change.notify()
            if must_wait:
                await self._watch(job, done, request, max_wait_s)
            return await done
        finally:
            job.cancel()
            self._unfinished -= 1

    async def _watch(
        self, job: Future[T], done: asyncio.Future[T], request: Request, max_wait_s: float | None
    ) -> None:
        """Wait for the end of a job; raise if it was cancelled before it began."""
        gone = asyncio.ensure_future(until_disconnected(request.receive))
        try:
            either: set[asyncio.Future[Any]] = {done, gone}
            await asyncio.wait(either, timeout=max_wait_s, return_when=asyncio.FIRST_COMPLETED)
            if not done.done() and job.cancel():  # it has not begun
                raise HTTPException(CLIENT_GONE, "client disconnected") if gone.done() else busy()
        finally:
            gone.cancel()

    def _work(self) -> None:
        """Run one job after another; the main function of a scoring thread.

        A thread fetches its next job itself, because the event loop may be busy.
        """
        while True:
            with self._change:
                while not (self._singles or self._slices or self._is_closed):
                    self._change.wait()
                if self._is_closed:
                    return
                future, work = self._next()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work  # what they hold must not live until the next job

    def _next(self) -> Job:
        """The next job: a slice of a batch after a few single requests in a row."""
        if self._slices and (self._in_a_row >= SINGLES_PER_SLICE or not self._singles):
            self._in_a_row = 0
            return self._slices.popleft()
        self._in_a_row = self._in_a_row + 1 if self._slices else 0
        return self._singles.popleft()


def busy() -> HTTPException:
    """The error for a request when the queue is full."""
    text = f"too many requests are waiting: try again in {RETRY_SECONDS} s"
    return HTTPException(503, text, {"Retry-After": str(RETRY_SECONDS)})


async def until_disconnected(receive: Receive) -> None:
    """Wait until the client of a request disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
