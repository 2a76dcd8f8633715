"""Ctrl-C that waits for the end of an epoch: what is saved is a state training really had."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """Within this context the first Ctrl-C is only noted, a second one interrupts at once.

    Weights in the middle of an epoch could not be resumed to the same result; the state of the
    last whole epoch can. Outside the main thread, where signals do not arrive, nothing changes.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def obey(self) -> None:
        """Called where it is safe to stop."""
        if self.asked:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
