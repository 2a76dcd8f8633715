"""Ctrl-C and SIGTERM end a command with one sentence, whatever it is doing at that moment.

A signal raises KeyboardInterrupt. Code that is not ours may turn it into another exception, above
all while modules are imported, so the signal that was received is remembered as well.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from itemrec import ranks

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal; Python would end the process with SIGINT after a plain KeyboardInterrupt."""


@dataclass
class Received:
    """The first signal that this process received, and whether the user was told."""

    number: int = 0
    told: bool = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler of signals."""
        self.number = self.number or number
        raise Interrupted

    def explains(self, error: BaseException) -> bool:
        """Whether an exception is, or follows from, a signal."""
        return isinstance(error, KeyboardInterrupt) or self.number > 0

    def sentence(self, advice: str = "") -> str:
        """What happened, with advice on what to do next."""
        self.told = True
        word = "terminated" if self.number == signal.SIGTERM else "interrupted"
        return f"{word}; {advice}" if advice else word

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, as shells have it."""
        return 128 + (self.number or signal.SIGINT)


received = Received()


def guard(command: Callable[[], Any]) -> None:
    """Run a command; a signal ends it with one sentence and its exit code."""
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as by nohup
            signal.signal(number, received.interrupt)
    sys.unraisablehook = _unless_interrupted
    try:
        command()
    except BaseException as error:
        if not received.explains(error):
            raise
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)  # it ends already
        if not received.told and ranks.is_first():
            print(f"itemrec: {received.sentence()}", file=sys.stderr)
        sys.exit(received.exit_code)


def _unless_interrupted(problem: sys.UnraisableHookArgs) -> None:
    if not received.number:
        sys.__unraisablehook__(problem)
