"""A progress bar for notebooks: one HTML line that is replaced, which needs no widgets.

It has those methods of `rich.progress.Progress` that our bars use. rich itself draws nothing in a
notebook without the package ipywidgets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from html import escape
from operator import length_hint
from typing import Any, TypeVar

from rich.progress import TaskID

T = TypeVar("T")
PAUSE = 0.2  # seconds between two changes at least


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (Jupyter, Colab, VS Code)."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A bar with a text, a count and a note, which disappears when it is done."""

    def __init__(self, unit: str = "") -> None:
        self.unit, self.text, self.note = unit, "", ""
        self.total: float | None = None
        self.completed, self.begun, self.shown = 0.0, time.perf_counter(), 0.0
        self.handle: Any = None

    def add_task(self, description: str, *, total: float | None, note: str = "") -> TaskID:
        """What the bar counts; there is one task."""
        self.text, self.total, self.note = description, total, note
        return TaskID(0)

    def start(self) -> None:
        """Show the bar."""
        from IPython.display import HTML, display

        self.begun = time.perf_counter()
        self.handle = display(HTML(self.html()), display_id=True)

    def update(self, task: TaskID, *, completed: float, note: str = "") -> None:
        """Change the bar, unless it was changed a moment ago."""
        self.completed, self.note = completed, note
        now = time.perf_counter()
        if self.handle is not None and now - self.shown >= PAUSE:
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
        """Iterate over steps, counting them."""
        task = self.add_task(description, total=total or length_hint(steps) or None)
        self.start()
        try:
            for count, step in enumerate(steps, start=1):
                yield step
                self.update(task, completed=count)
        finally:
            self.stop()

    def html(self) -> str:
        """The line as HTML."""
        of = "" if self.total is None else f"/{self.total:.0f}"
        most = "" if self.total is None else f' max="{max(self.total, 1):.0f}"'
        seconds = time.perf_counter() - self.begun
        words = [f"{self.completed:.0f}{of}{self.unit}", self.note, f"{seconds:.0f} s"]
        told = " · ".join(escape(word) for word in words if word)
        bar = f'<progress value="{self.completed:.0f}"{most}></progress>'
        return f"<div>{escape(self.text)} {bar} {told}</div>"
