"""A transport that lets a client read its response before the connection is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from itemfold.serving.http.admission.pace import Pace

LINGER_S = 2.0  # longest wait for a client to read its answer and close
DROP_PAUSE_S = 0.05  # between two reads of what a client sends after its answer
DROPS_PER_SECOND = 200  # such reads of all clients; each is up to 256 KB


class LingeringTransport(asyncio.Transport):
    """A transport whose `close` briefly discards incoming data first.

    Closing a connection while data arrives resets it, and the client loses its response.

    Args:
        transport: The transport of the connection.
        before_close: Called when the connection is closed; returns whether the client still sends.
        drops: The pace of reads of what is dropped: floods must not take the CPU.
    """

    def __init__(
        self, transport: asyncio.Transport, before_close: Callable[[], bool], drops: Pace
    ) -> None:
        super().__init__()
        self._transport, self._before_close, self._drops = transport, before_close, drops
        self._is_closed = self._is_held = self.is_lingering = False

    def close(self) -> None:
        """Close the connection once what was written is sent."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._before_close() or self._transport.is_closing():
            self._transport.close()
            return
        self.is_lingering = True
        if not self._transport.get_write_buffer_size():
            with suppress(OSError):  # the client has left
                self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def drop(self) -> None:
        """Discard incoming data at a limited rate, since the response is determined."""
        self._transport.pause_reading()
        loop = asyncio.get_running_loop()
        pause = max(DROP_PAUSE_S, self._drops.delay(loop.time()))
        loop.call_later(pause, self._transport.resume_reading)

    def hold(self, *, on: bool) -> None:
        """Pause reading while this is on, even if the application resumes it."""
        self._is_held = on
        if on:
            self._transport.pause_reading()

    def is_closing(self) -> bool:
        """Whether `close` was called or the connection is lost."""
        return self._is_closed or self._transport.is_closing()

    # --- as it is --------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data."""
        self._transport.write(data)

    def abort(self) -> None:
        """Close immediately and lose unsent data."""
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses and the socket."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that were not sent yet."""
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if not (self._is_closed or self._is_held):
            self._transport.resume_reading()
