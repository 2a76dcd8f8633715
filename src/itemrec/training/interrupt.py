"""Ctrl-C that waits for the end of an epoch, so that only complete states are saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """Within this context the first Ctrl-C is only noted, a second one interrupts at once.

    Training could not be resumed to the same result from the middle of an epoch, but it
    can from the last complete epoch. Outside the main thread, where signals do not arrive,
    nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self.previous: Any = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def check(self) -> None:
        """Raise the interrupt if Ctrl-C was noted; called where it is safe to stop."""
        if self.requested:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.previous is not None:
            signal.signal(signal.SIGINT, self.previous)
