"""Deferral of Ctrl-C and SIGTERM to the end of an epoch, so that only complete states are saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from itemfold import ranks

if TYPE_CHECKING:
    from itemfold.training.run import Run


class Interrupt:
    """A context that defers the first signal; a second one interrupts immediately.

    Only a complete epoch can be resumed to the same result. Ignored signals stay ignored. Outside
    the main thread, where signals do not arrive, the context does nothing. With several ranks,
    every signal is deferred: a terminal and ``torchrun`` may both send one, and all ranks must stop
    after the same epoch.
    """

    def __init__(self) -> None:
        self.number = 0  # the deferred signal; 0: none
        self.previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether a signal was received."""
        return self.number > 0

    def _defer(self, number: int, frame: FrameType | None) -> None:
        first, self.number = not self.requested, number
        if not first and ranks.size() == 1:
            self.check()

    def agree(self) -> None:
        """Share a signal received by any rank with all ranks."""
        self.number = ranks.largest(self.number)

    def check(self) -> None:
        """Pass a deferred signal to the previous handler; call this where it is safe to stop.

        SIGTERM raises an exception even without a handler, so that files and the terminal are
        cleaned up.
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
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self.previous[number] = signal.signal(number, self._defer)
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


def raise_if_stopped(run: Run) -> Run:
    """Return the run; raise KeyboardInterrupt if Ctrl-C stopped it.

    Callers that train several runs stop as well.
    """
    if not run.metrics.get("complete", True):
        raise KeyboardInterrupt
    return run
