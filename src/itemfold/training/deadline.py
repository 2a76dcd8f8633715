"""The time budget of a command, from its start to the last file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from itemfold import ranks


@dataclass
class Deadline:
    """A budget of seconds, counted from the start of the command or of `train`.

    Attributes:
        budget: Total seconds; None: no limit.
        started: The start, as a value of `time.monotonic`.
        reserve: Seconds kept for the evaluation and the files after training.
    """

    budget: float | None = None
    started: float = field(default_factory=time.monotonic)
    reserve: float = 0.0

    def left(self) -> float:
        """Seconds left for training, by the clock of the first rank; infinite without a budget."""
        if self.budget is None:
            return float("inf")
        spent = time.monotonic() - self.started
        return ranks.from_first(lambda: self.budget - self.reserve - spent)  # type: ignore[operator]

    @contextmanager
    def reserving(self, seconds: float) -> Iterator[None]:
        """Keep more seconds for what follows this context."""
        self.reserve += seconds
        try:
            yield
        finally:
            self.reserve -= seconds
