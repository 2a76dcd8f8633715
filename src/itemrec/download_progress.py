"""The progress bar of a download, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function to call with a file's name, its bytes so far and its total bytes."""
    tasks: dict[str, TaskID] = {}
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

    def update(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=None)
        bar.update(tasks[name], completed=done, total=total)

    with bar:
        yield update
