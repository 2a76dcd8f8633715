"""Ctrl-C and SIGTERM that wait for the end of an epoch, so that only complete states are saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from itemrec import ranks

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Within this context the first signal is only noted, a second one interrupts at once.

    Training could not be resumed to the same result from the middle of an epoch, but it
    can from the last complete epoch. Outside the main thread, where signals do not arrive, and for
    signals that are ignored, nothing changes. With several ranks every signal is only noted: a
    terminal and ``torchrun`` may both send one, and all ranks must end after the same epoch.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal that was noted
        self.previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal was noted."""
        return self.number > 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        first, self.number = not self.requested, number
        if not first and ranks.size() == 1:
            self.check()

    def agree(self) -> None:
        """Take note of a signal that another rank has received."""
        self.number = ranks.largest(self.number)

    def check(self) -> None:
        """Pass a noted signal on to the handler before this one; called where it is safe to stop.

        The default is an exception also for SIGTERM, so that files and terminals are left in order.
        """
        if not self.requested:
            return
        handler = self.previous.get(self.number)
        if callable(handler):
            handler(self.number, None)
        if self.number == signal.SIGTERM:
            raise SystemExit(128 + self.number)
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in NUMBERS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self.previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self.previous.items():
            if handler is not None:  # None: installed by a program that embeds Python
                signal.signal(number, handler)
