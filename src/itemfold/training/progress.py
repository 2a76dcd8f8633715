"""Progress bars with the remaining time, in terminals, notebooks and logs."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterable, Iterator
from html import escape
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from itemfold.models.base import Model
    from itemfold.training.state import DescentState

T = TypeVar("T")
LOG_SECONDS = 10.0  # between two lines of a log, which replaces the bar without a terminal
REDRAW_SECONDS = 0.2  # between two redraws of a bar in a notebook


def track(steps: Iterable[T], text: str, *, show: bool, total: int | None = None) -> Iterator[T]:
    """Iterate over steps while showing a progress bar with the remaining time."""
    if show and in_notebook():
        yield from NotebookBar().track(steps, total=total, description=text)
        return
    console = Console(stderr=True)
    total = total or length_hint(steps) or None
    count = "{task.completed}" if total is None else "{task.completed}/{task.total}"
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn(count),
        TimeElapsedColumn(),
        *([] if total is None else [TimeRemainingColumn(), TextColumn("left")]),
        console=console,
        disable=not show or not console.is_terminal,
        transient=True,
    )
    with bar:
        yield from bar.track(steps, total=total, description=text)


def watch(model: Model, *, show: bool) -> None:
    """Turn the progress bars of a model's long computations on or off."""
    model.watch = functools.partial(track, show=show)


def report(text: str, *, show: bool) -> None:
    """Print one line of progress."""
    if show:
        Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


class EpochBar:
    """A bar of epochs with loss, best validation metric, time per epoch and time left."""

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
        """Show the current epoch, loss and best metric."""
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


def in_notebook() -> bool:
    """Whether this process is a notebook kernel (Jupyter, Colab, VS Code)."""
    ipython = sys.modules.get("IPython")  # imported by every kernel
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A progress bar for notebooks: one HTML line that disappears when it is done.

    It has the methods of `rich.progress.Progress` that this module uses. rich itself needs the
    package ipywidgets to draw in a notebook.
    """

    def __init__(self, unit: str = "") -> None:
        self.unit, self.text, self.note = unit, "", ""
        self.total: float | None = None
        self.completed, self.begun, self.shown = 0.0, time.perf_counter(), 0.0
        self.handle: Any = None

    def add_task(self, description: str, *, total: float | None, note: str = "") -> TaskID:
        """Set description, total and note; a bar has one task."""
        self.text, self.total, self.note = description, total, note
        return TaskID(0)

    def start(self) -> None:
        """Show the bar."""
        from IPython.display import HTML, display

        self.begun = time.perf_counter()
        self.handle = display(HTML(self.html()), display_id=True)

    def update(self, task: TaskID, *, completed: float, note: str = "") -> None:
        """Redraw the bar, at most every `REDRAW_SECONDS`."""
        self.completed, self.note = completed, note
        now = time.perf_counter()
        if self.handle is not None and now - self.shown >= REDRAW_SECONDS:
            from IPython.display import HTML

            self.shown = now
            self.handle.update(HTML(self.html()))

    def stop(self) -> None:
        """Remove the bar."""
        if self.handle is not None:
            from IPython.display import HTML

            self.handle.update(HTML(""))
            self.handle = None

    def track(
        self, steps: Iterable[T], *, total: float | None = None, description: str = ""
    ) -> Iterator[T]:
        """Iterate over steps while showing the bar."""
        task = self.add_task(description, total=total or length_hint(steps) or None)
        self.start()
        try:
            for count, step in enumerate(steps, start=1):
                yield step
                self.update(task, completed=count)
        finally:
            self.stop()

    def html(self) -> str:
        """The bar as HTML."""
        total = "" if self.total is None else f"/{self.total:.0f}"
        maximum = "" if self.total is None else f' max="{max(self.total, 1):.0f}"'
        seconds = time.perf_counter() - self.begun
        parts = [f"{self.completed:.0f}{total}{self.unit}", self.note, f"{seconds:.0f} s"]
        status = " · ".join(escape(part) for part in parts if part)
        bar = f'<progress value="{self.completed:.0f}"{maximum}></progress>'
        return f"<div>{escape(self.text)} {bar} {status}</div>"
