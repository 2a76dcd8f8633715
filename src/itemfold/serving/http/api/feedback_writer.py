"""The feedback writer: a thread with a bounded queue, separate from scoring."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from starlette.exceptions import HTTPException

from itemfold.data.feedback.store import FeedbackStore, Row, StoreError, StoreFullError
from itemfold.serving.http.monitoring.log import log
from itemfold.serving.http.monitoring.telemetry import Telemetry

MAX_WAITING = 5_000  # events per worker that are accepted but not yet written
WAIT_SECONDS = 5.0  # how long a request waits until its events are written
RETRY_SECONDS = 5  # Retry-After of feedback that is not stored
DRAIN_SECONDS = 10.0  # how long a shutdown waits for the last events
EXPIRE_SECONDS = 3600.0  # between two deletions of old events
LOG_SECONDS = 60.0  # between two log lines about the same problem
DAY = 86_400.0


class _Waiting(NamedTuple):
    """The events of a request, and what their request waits for."""

    rows: Sequence[Row]
    written: Future[None]


class FeedbackWriter:
    """Writes feedback in order of arrival, all waiting events at a time.

    A request is answered once its events are written, so status 200 means stored. Slow
    storage delays feedback only.

    Args:
        store: Where feedback is stored; only the thread of the writer uses it.
        telemetry: Counts the waiting and the rejected events.
        days: Age at which events are deleted; None: never.
    """

    def __init__(self, store: FeedbackStore, telemetry: Telemetry, days: float | None) -> None:
        self.store, self.telemetry, self.days = store, telemetry, days
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._n_waiting, self._is_closing, self._logged = 0, False, -LOG_SECONDS
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)
            self._thread.start()

    async def write(self, rows: Sequence[Row]) -> None:
        """Write events and return when they are stored.

        Raises:
            HTTPException: 503 if too many events wait or the store does not respond, 507 if it is
                full. After a 503, slow storage may still store the events.
        """
        self.start()
        with self._changed:
            if self._is_closing:
                raise self._not_stored("queue", len(rows), "the service is stopping")
            if self._n_waiting + len(rows) > MAX_WAITING:
                raise self._not_stored("queue", len(rows), "too much feedback is waiting")
            waiting = _Waiting(rows, Future())
            self._queue.append(waiting)
            self._count(len(rows))
            self._changed.notify()
        try:
            await asyncio.wait_for(asyncio.wrap_future(waiting.written), WAIT_SECONDS)
        except TimeoutError:
            text = f"the feedback was not stored within {WAIT_SECONDS:g} s"
            raise self._not_stored("slow", len(rows), text) from None
        except StoreFullError:
            self.telemetry.feedback_refused.labels("full").inc(len(rows))
            text = "the storage of feedback is full: contact the operator of the service"
            raise HTTPException(507, text) from None
        except StoreError:
            raise self._not_stored("error", len(rows), "feedback cannot be stored") from None

    def close(self) -> None:
        """Write the waiting events, then stop the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(DRAIN_SECONDS)
            if self._thread.is_alive():
                log(logging.ERROR, f"{self._n_waiting:,} feedback events are not stored in time")

    def _run(self) -> None:
        """The main function of the thread."""
        expire_at = time.monotonic()
        while True:
            if self.days is not None and time.monotonic() >= expire_at:
                self._expire(self.days)
                expire_at = time.monotonic() + EXPIRE_SECONDS
            with self._changed:
                if not self._queue and not self._is_closing:
                    self._changed.wait(EXPIRE_SECONDS if self.days is not None else None)
                batch = list(self._queue)
                self._queue.clear()
            if batch:
                self._write(batch)
            elif self._is_closing:
                self.store.close()
                return

    def _write(self, batch: Sequence[_Waiting]) -> None:
        """Write the events of all requests that are still waiting."""
        wanted = [one for one in batch if one.written.set_running_or_notify_cancel()]
        problem: Exception | None = None
        try:
            if wanted:
                self.store.append([row for one in wanted for row in one.rows])
        except Exception as error:  # the thread must outlive any problem of a store
            problem = error if isinstance(error, StoreError) else StoreError(type(error).__name__)
            self._log(f"feedback is not stored: {problem}")
        with self._changed:
            self._count(-sum(len(one.rows) for one in batch))
        for one in wanted:
            if problem is None:
                one.written.set_result(None)
            else:
                one.written.set_exception(problem)

    def _expire(self, days: float) -> None:
        try:
            deleted = self.store.expire(time.time() - DAY * days)
        except Exception as error:
            self._log(f"old feedback is not deleted: {error}")
        else:
            if deleted:
                log(logging.INFO, f"{deleted:,} feedback events older than {days:g} days deleted")

    def _count(self, events: int) -> None:
        self._n_waiting += events
        self.telemetry.feedback_waiting.set(self._n_waiting)

    def _not_stored(self, reason: str, events: int, text: str) -> HTTPException:
        self.telemetry.feedback_refused.labels(reason).inc(events)
        headers = {"Retry-After": str(RETRY_SECONDS)}
        return HTTPException(503, f"{text}: try again in {RETRY_SECONDS} s", headers)

    def _log(self, text: str) -> None:
        if time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            log(logging.ERROR, text)
