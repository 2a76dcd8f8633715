"""An HTTP parser that limits the number of body chunks and parses them in slices."""

from __future__ import annotations

from typing import Any

import h11

from itemfold.serving.http.limits import Limits

HEADER_BYTES = 2**16  # of the request line and the headers
PIECES_PER_SLICE = 16  # parsed before other connections have their turn: a quarter of a ms


class BoundedParser(h11.Connection):
    """The server's side of an HTTP/1.1 connection.

    A body of a million chunks would take the parser many seconds, so a body may have at most
    `Limits.max_chunks` pieces, and they are parsed in slices.

    Attributes:
        has_more: Whether received pieces wait for the next slice.
        error_status: Status of the response to what could not be parsed.
        error_sentence: The sentence of that response; "": the request is not HTTP.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self.limits = limits
        self.has_more, self.error_status, self.error_sentence = False, 400, ""
        self._pieces, self._slice, self._length = 0, PIECES_PER_SLICE, 0

    def allow_slice(self) -> None:
        """Allow the parser to process the next slice."""
        self._slice = PIECES_PER_SLICE

    def next_event(self) -> Any:
        """The next event, `NEED_DATA` at the end of a slice."""
        self.has_more = self._slice <= 0
        if self.has_more:
            return h11.NEED_DATA
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.error_status = error.error_status_hint
            if self.error_status == 431:
                self.error_sentence = f"headers must have at most {HEADER_BYTES:,} bytes"
            raise
        if isinstance(event, h11.Request):
            self._pieces, self._length = 0, _length_of(event)
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._slice -= 1
            if self._pieces > self.limits.max_chunks:
                self.error_status = 413
                most = f"{self.limits.max_chunks:,}"
                self.error_sentence = f"a request body must arrive in at most {most} pieces"
                raise h11.RemoteProtocolError(self.error_sentence, 413)
        return event

    @property
    def is_clean(self) -> bool:
        """Whether the next byte begins a request."""
        return self.their_state is h11.IDLE and not self.trailing_data[0]

    def has_small_body(self, most: int) -> bool:
        """Whether the Content-Length of the current request is at most this many bytes."""
        return 0 <= self._length <= most


def _length_of(request: h11.Request) -> int:
    """The length of the body, -1 if it arrives in chunks."""
    headers = dict(request.headers)
    if b"transfer-encoding" in headers:
        return -1
    return int(headers.get(b"content-length", b"0"))
