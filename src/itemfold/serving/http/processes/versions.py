"""Versions of the served runs: which folder each is loaded from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from itemfold.serving.http.monitoring.log import log
from itemfold.training.run_folder import REQUIRED

POLL_S = 2.0  # between two looks at the folders
Order = tuple[str, Path]  # the name of a run, and the folder to load it from


class Versions:
    """The folders of each run: the accepted version, which can be loaded, and the previous one.

    A folder is loaded once two consecutive polls find it unchanged, so that a folder being copied
    is not loaded. Links are resolved, so that a link to a broken run does not affect the accepted
    version.

    Args:
        folders: The folder of each run as it was given; links are followed at every poll.
        files: Files of items that all runs depend on.
    """

    def __init__(self, folders: Mapping[str, Path], files: Sequence[Path] = ()) -> None:
        self.folders, self._files = dict(folders), list(files)
        self.accepted = {name: folder.resolve() for name, folder in folders.items()}
        self.previous: dict[str, Path] = {}
        self._tried = {name: folder_stamp(path, files) for name, path in folders.items()}
        self._seen = dict(self._tried)

    def poll(self, *, at_once: bool = False) -> list[Order]:
        """The folders to load: those that have changed and are now stable, or all `at_once`."""
        orders = []
        for name, folder in self.folders.items():
            now = folder_stamp(folder, self._files)
            is_stable, self._seen[name] = now == self._seen[name], now
            if at_once or (is_stable and now != self._tried[name]):
                self._tried[name] = now  # after a failure, too: the next change is tried again
                orders.append((name, folder.resolve()))
        return orders

    def accept(self, name: str, folder: Path) -> None:
        """Record that a run was loaded from a folder."""
        if folder != self.accepted[name]:
            self.previous[name], self.accepted[name] = self.accepted[name], folder

    def rollback(self) -> list[Order]:
        """The folders to load to return to the previous version of each run that has one."""
        orders = [(name, folder) for name, folder in self.previous.items() if folder.is_dir()]
        names = ", ".join(name for name, _ in orders)
        if orders:
            log(logging.WARNING, f"rolling back to the previous version: {names}")
        else:
            log(logging.ERROR, "no run has a previous version in a folder of its own")
        return orders


def folder_stamp(folder: Path, files: Sequence[Path] = ()) -> tuple[object, ...]:
    """A value that changes with a run folder or other files: link targets, times and sizes."""
    parts: list[object] = [folder.resolve()]
    for path in (*(folder / name for name in REQUIRED), *files):
        try:
            found = path.stat()
        except OSError:
            parts.append(None)
        else:
            parts += [found.st_ino, found.st_mtime_ns, found.st_size]
    return tuple(parts)
