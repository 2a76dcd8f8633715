"""Progress bars with the remaining time, for anything that takes more than two seconds."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from itemrec.training.notebook_bar import NotebookBar, in_notebook

if TYPE_CHECKING:
    from itemrec.models.base import Model
    from itemrec.training.state import DescentState

T = TypeVar("T")


def track(steps: Iterable[T], text: str, *, show: bool, total: int | None = None) -> Iterator[T]:
    """Iterate over steps while showing a progress bar with the remaining time."""
    if show and in_notebook():
        yield from NotebookBar().track(steps, total=total, description=text)
        return
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        disable=not show or not console.is_terminal,
        transient=True,
    )
    with bar:
        yield from bar.track(steps, total=total or length_hint(steps) or None, description=text)


def watch(model: Model, *, show: bool) -> None:
    """Let a model show progress bars over the steps of its long computations."""
    model.watch = functools.partial(track, show=show)


LOG_SECONDS = 10.0  # without a terminal, time between two lines that replace the bar


class EpochBar:
    """Epoch, loss, validation metric, time per epoch and time left."""

    def __init__(self, phase: str, epochs: int, metric: str, *, show: bool) -> None:
        self.metric, self.started, self.first = metric, time.perf_counter(), -1
        self.console, self.epochs = Console(stderr=True), epochs
        notebook = show and in_notebook()
        self.log = show and not notebook and not self.console.is_terminal
        self.logged = self.started
        self.bar = (
            NotebookBar(" epochs")
            if notebook
            else _epoch_bar(self.console, disable=not show or self.log)
        )
        self.action = {"select": "selecting on validation", "refit": "refitting"}.get(phase, phase)
        self.task = self.bar.add_task(self.action, total=epochs, note="")

    def update(self, state: DescentState, loss: float) -> None:
        """Show the current state of training."""
        if self.first < 0:
            self.first = state.epoch - 1
        pace = (time.perf_counter() - self.started) / max(state.epoch - self.first, 1)
        note = f"loss {loss:.4f}"
        if state.best.epoch and state.phase == "select":
            note += f" · best {self.metric} {state.best.value:.4f} (epoch {state.best.epoch})"
        note += f" · {pace:.2f} s per epoch"
        self.bar.update(self.task, completed=state.epoch, note=note)
        now = time.perf_counter()
        if self.log and now - self.logged > LOG_SECONDS:
            self.logged = now
            left = pace * (self.epochs - state.epoch)
            line = f"{self.action}: epoch {state.epoch}/{self.epochs} · {note}"
            line += f" · at most {left:.0f} s left"
            self.console.print(line, soft_wrap=True, highlight=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()


def _epoch_bar(console: Console, *, disable: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total} epochs"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("at most"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        disable=disable,
        transient=True,
    )


def duration(seconds: float) -> str:
    """Seconds in a readable unit.

    >>> duration(42), duration(300), duration(7000)
    ('42 s', '5 min', '1.9 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
