"""Ctrl-C and SIGTERM end a command with one sentence, even during imports.

A signal raises KeyboardInterrupt. Other packages may turn it into another exception, above all
while modules are imported, so the number of the signal is kept as well. A signal that was ignored
when the process started, as SIGINT is in background jobs, stays ignored.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from itemfold import ranks

STARTED = time.monotonic()  # of the command: this module is imported first
HANDLED = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal; Python would end the process with SIGINT after a plain KeyboardInterrupt."""


@dataclass
class Received:
    """The first signal that this process received, and whether it was reported."""

    number: int = 0
    reported: bool = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.number = self.number or number
        raise Interrupted

    def explains(self, error: BaseException) -> bool:
        """Whether an exception is, or follows from, a signal."""
        return isinstance(error, KeyboardInterrupt) or self.number > 0

    def ignore_others(self) -> None:
        """Ignore further signals: the process is ending, and its last sentence must be printed."""
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)

    def report(self, advice: str = "") -> str:
        """The sentence to print, with advice on what to do next."""
        self.reported = True
        event = "terminated" if self.number == signal.SIGTERM else "interrupted"
        return f"{event}; {advice}" if advice else event

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, as in shells."""
        return 128 + (self.number or signal.SIGINT)


received = Received()


def guard(command: Callable[[], Any]) -> None:
    """Run a command; a signal ends it with one sentence and its exit code."""
    for number in HANDLED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, received.interrupt)
    sys.unraisablehook = _unless_interrupted
    try:
        command()
    except BaseException as error:
        if not received.explains(error):
            raise
        received.ignore_others()
        if not received.reported and ranks.is_first():
            print(f"itemfold: {received.report()}", file=sys.stderr)
        sys.exit(received.exit_code)


def _unless_interrupted(problem: sys.UnraisableHookArgs) -> None:
    if not received.number:
        sys.__unraisablehook__(problem)
