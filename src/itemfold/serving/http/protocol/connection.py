"""HTTP connections with limits on parsing, buffering and waiting for each client.

Once the response is determined, the rest of the request is discarded unparsed. A response that the
client does not read is dropped after a while.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import h11
from starlette.types import Receive
from uvicorn.protocols.http.h11_impl import H11Protocol

from itemfold.serving.http.access.api_keys import NO_KEY
from itemfold.serving.http.admission.busy_responses import MAX_BUSY_DELAY_S
from itemfold.serving.http.admission.work_queue import (
    RETRY_SECONDS,
    WorkQueue,
    busy,
    until_disconnected,
)
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.protocol.connection_pool import ConnectionPool
from itemfold.serving.http.protocol.parser import BoundedParser
from itemfold.serving.http.protocol.transport import LingeringTransport
from itemfold.serving.http.scope import HOLD, PLACE, UNREAD

SMALL_BODY = 2**16  # bytes: a smaller one is read to its end although nobody needs it
MIN_READ = 2**16  # bytes of an answer that a client must read within `Limits.read_s`
SINGLE = re.compile(rb"POST (?:/v1)?/recommend[ ?]")
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d{1,9})\r")
REASONS = {400: "Bad Request", 413: "Content Too Large", 431: "Request Header Fields Too Large"}


def raw_response(status: str, sentence: str, *headers: str) -> bytes:
    """A complete response with an error, for a request that does not reach the application."""
    body = json.dumps({"error": sentence}, separators=(",", ":"))
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", "Cache-Control: no-store"]
    lines += ["X-Content-Type-Options: nosniff", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


UNAVAILABLE, RETRY = "503 Service Unavailable", f"Retry-After: {RETRY_SECONDS}"
BUSY = raw_response(UNAVAILABLE, busy().detail, RETRY)
TOO_MANY = raw_response(
    UNAVAILABLE, "too many connections: try again later", RETRY, "Connection: close"
)


def is_whole_post(data: bytes) -> bool:
    """Whether these bytes are one complete request for recommendations to one user.

    >>> is_whole_post(b"POST /v1/recommend HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
    True
    >>> is_whole_post(b"POST /v1/recommend HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\n{}")
    False
    """
    if not SINGLE.match(data):
        return False
    end = data.find(b"\r\n\r\n")
    length = LENGTH.search(data, 0, end + 2) if end >= 0 else None
    return length is not None and int(length[1]) == len(data) - end - 4


class LimitedConnection(H11Protocol):
    """A uvicorn connection with limits.

    While the queue is full, requests for recommendations get a 503 here, in a fraction of the
    time that the application would take.
    """

    transport: LingeringTransport
    conn: BoundedParser

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        state: Any = self.config.app.state  # type: ignore[union-attr]
        self.queue: WorkQueue = state.queue
        self.telemetry: Telemetry = state.telemetry
        self.pool: ConnectionPool = state.connections
        self.limits = self.pool.limits
        self.conn = BoundedParser(self.limits)
        self._header_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._waits_for_503, self._early, self._answered_503_at = False, b"", 0.0
        self._is_decided = False  # the answer, before the end of the body
        self._held: asyncio.Future[None] | None = None  # until a rejected request may be answered

    # --- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or answer 503 if there are too many."""
        lingering = LingeringTransport(transport, self._before_close, self.pool.drops)
        super().connection_made(lingering)
        if self.pool.make_room(len(self.connections)):
            self.pool.idle[self] = None
            self._start_timer()
        else:
            transport.write(TOO_MANY)
            lingering.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._stop_timer()
        self._stop_read_timer()
        self.pool.idle.pop(self, None)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that has closed its side, unless other requests wait."""
        is_asked = self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and not self._is_idle()
        if not is_asked or self.queue.waiting or self.transport.is_closing():
            return False
        self.cycle.keep_alive = False
        return True

    def shutdown(self) -> None:
        """Close the connection once its request is answered."""
        if self._waits_for_503:
            self.send_busy()
        if self._held is not None:
            self._held.cancel()
        if not self.transport.is_closing():
            super().shutdown()

    # --- requests --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        if self.transport.is_lingering:
            self.transport.drop()
            return
        if self._waits_for_503:  # its next request, which begins after the 503
            self._early += data
            self.transport.hold(on=True)
            return
        if self.conn.has_more:  # the slice that is due first will take it
            self.conn.receive_data(data)
            return
        is_single = self._is_idle() and self.conn.is_clean and is_whole_post(data)
        if is_single and not self.queue.enter():
            self._answer_503_later()
            return
        before = self.cycle
        self.conn.allow_slice()
        super().data_received(data)
        if is_single and self.cycle is not before:
            self.scope[PLACE] = True  # type: ignore[literal-required]
        elif is_single:
            self.queue.leave()
        self._after_events(before)
        if self._is_idle() and self._header_timer is None:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        before = self.cycle
        super().on_response_complete()
        if not self.transport.is_closing():
            self._after_events(before)

    def send_400_response(self, msg: str) -> None:
        """Respond in JSON to invalid HTTP or an exceeded parser limit, then close."""
        status = self.conn.error_status if self.conn.error_status in REASONS else 400
        sentence = self.conn.error_sentence or "the request is not valid HTTP/1.1"
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # nothing was answered yet
            self.telemetry.answers.labels("malformed", status, NO_KEY).inc()
            reason = f"{status} {REASONS[status]}"
            self.transport.write(raw_response(reason, sentence, "Connection: close"))
        if not self._is_idle():
            self.cycle.disconnected = True  # its answer would come second
            self.cycle.message_event.set()
        self.transport.close()

    def _after_events(self, before: Any) -> None:
        """Update the timers, the pool and the headers after parsing."""
        if self.conn.has_more:
            self.transport.hold(on=True)
            self.loop.call_soon(self._next_slice)
        is_complete = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        if is_complete:
            self.pool.idle.pop(self, None)
        elif self not in self.pool.idle:
            self.pool.idle[self] = None
        if self.cycle is not before:  # the headers are complete
            self._stop_timer()
            self.scope[HOLD] = self._hold  # type: ignore[literal-required]
        if not self._is_idle():  # an answer before the end of a large body is the last one
            is_small = is_complete or self.conn.has_small_body(SMALL_BODY)
            self.scope[UNREAD] = not is_small  # type: ignore[literal-required]

    def _next_slice(self) -> None:
        """Parse the next slice of the received data, after yielding to other connections."""
        if self.transport.is_closing() or self._is_decided or not self.conn.has_more:
            return
        before = self.cycle
        self.conn.allow_slice()
        self.handle_events()
        if not self.conn.has_more:
            self.transport.hold(on=False)
            if not self.flow.read_paused:
                self.transport.resume_reading()
        self._after_events(before)

    async def _hold(self, receive: Receive) -> None:
        """Delay a rejection; until it is sent, the connection may be closed for another."""
        if self.scope.pop(PLACE, False):  # type: ignore[misc]
            self.queue.leave()
        self.pool.idle[self] = None
        if self.conn.their_state is h11.SEND_BODY:  # nobody will read the body
            self._is_decided = self.scope[UNREAD] = True  # type: ignore[literal-required]
            self.transport.hold(on=True)
        if delay := self.pool.pace.delay(self.loop.time()):
            self._held = asyncio.ensure_future(until_disconnected(receive))
            await asyncio.wait([self._held], timeout=delay)
            self._held.cancel()

    def _answer_503_later(self) -> None:
        """Answer 503 later; the idle timer keeps running, which saves resetting it."""
        self._stop_timer()
        self._waits_for_503 = True
        self.pool.busy_responses.add(self)

    def send_busy(self) -> None:
        """Send the 503 of a rejected request, unless shutdown has sent it."""
        if not self._waits_for_503:
            return
        self._waits_for_503, self._answered_503_at = False, self.loop.time()
        self.telemetry.answers.labels("refused", 503, NO_KEY).inc()
        if self.transport.is_closing():
            return
        self.transport.write(BUSY)
        if self.timeout_keep_alive_task is None:
            self._wait_for_next(self.timeout_keep_alive)
        if self._early:
            early, self._early = self._early, b""
            self.transport.hold(on=False)
            self.transport.resume_reading()
            self.data_received(early)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, unless its request was rejected since the timer was set."""
        left = self._answered_503_at + self.timeout_keep_alive - self.loop.time()
        if self._waits_for_503 or left > 0:
            self._wait_for_next(max(left, MAX_BUSY_DELAY_S))
        else:
            super().timeout_keep_alive_handler()

    def _wait_for_next(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.limits.header_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    # --- answers ---------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read its response."""
        super().pause_writing()
        self._watch_reading()
        self.pool.bound_unsent()

    def resume_writing(self) -> None:
        """Stop that timer: the client has read its response."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_read_timer()

    def _before_close(self) -> bool:
        """Prepare closing; return whether the client is still sending."""
        self._stop_timer()
        self._watch_reading()
        return self.conn.their_state is h11.SEND_BODY or self.conn.has_more

    def _watch_reading(self) -> None:
        """Abort the connection if the client does not read."""
        if self._read_timer is None and self.transport.get_write_buffer_size():
            self.pool.unsent[self] = None
            self._unsent = self.transport.get_write_buffer_size()
            self._read_timer = self.loop.call_later(self.limits.read_s, self._check_reading)

    def _check_reading(self) -> None:
        self._read_timer, left = None, self.transport.get_write_buffer_size()
        if left and self._unsent - left < MIN_READ:
            self.transport.abort()
        else:
            self._watch_reading()

    def _stop_read_timer(self) -> None:
        self.pool.unsent.pop(self, None)
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
