"""Versions of the served runs: which folder each is loaded from, and how one is replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from itemfold.errors import ItemfoldError
from itemfold.serving.http.access_log import log
from itemfold.serving.http.runs import ServedRun, ServedRuns
from itemfold.serving.http.settings import ServiceSettings
from itemfold.serving.http.telemetry import Telemetry
from itemfold.training.run_folder import NEEDED

EVERY_SECONDS = 2.0
Order = tuple[str, Path]  # the name of a run, and the folder to load it from


class Versions:
    """The folder of each run: the accepted one, which can be loaded, and the one before it.

    A folder is tried once two polls in a row find it the same, so that one being copied is left
    alone. Links are resolved, so that a link to a broken run does not affect what was accepted.

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
        """The folders to load: those that have changed, but no longer do, or all `at_once`."""
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


class Reloader:
    """Replaces runs of this process.

    If a folder cannot be loaded, the run in memory stays. A process that is alone watches the
    folders itself; workers are told by their supervisor, one after another.
    """

    def __init__(
        self,
        runs: ServedRuns,
        folders: Mapping[str, Path],
        telemetry: Telemetry,
        device: str,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.runs, self.telemetry = runs, telemetry
        self.settings, self.device = settings or ServiceSettings(), device
        self.versions = Versions(folders, self.settings.item_files)
        self._wake = asyncio.Event()
        self._reload_all = self._roll_back = False

    def reload_all(self) -> None:
        """Reload all folders, changed or not; the handler of SIGHUP."""
        self._reload_all = True
        self._wake.set()

    def roll_back(self) -> None:
        """Return to the previous versions; the handler of SIGUSR1."""
        self._roll_back = True
        self._wake.set()

    async def watch(self) -> None:
        """Poll until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EVERY_SECONDS)
            self._wake.clear()
            self.telemetry.measure_process()
            await self.poll()

    async def poll(self) -> None:
        """Replace the runs whose folders have changed since they were loaded, but no longer do."""
        at_once, self._reload_all = self._reload_all, False
        orders = self.versions.poll(at_once=at_once)
        if self._roll_back:
            self._roll_back, orders = False, self.versions.rollback()
        for name, folder in orders:
            if not await self.load(name, folder):
                self.versions.accept(name, folder)

    async def load(self, name: str, folder: Path) -> str:
        """Replace a run by the one in a folder; return why that failed, or ""."""

        def load() -> ServedRun:
            return ServedRun.of(name, self.settings.load(folder, self.device))

        before = self.runs.choose(name, None)
        try:
            after = await asyncio.to_thread(load)
        except (ItemfoldError, OSError) as error:
            self.telemetry.reloads.labels(name, "refused").inc()
            log(logging.ERROR, f"run {name!r} is not replaced: {error}", run=name)
            return str(error)
        self.runs.replace(after)
        self.telemetry.describe_run(after, before)
        self.telemetry.reloads.labels(name, "done").inc()
        log(logging.INFO, f"run {name!r} is loaded", run=name, run_fingerprint=after.fingerprint)
        return ""


def folder_stamp(folder: Path, files: Sequence[Path] = ()) -> tuple[object, ...]:
    """What changes with a run folder and other files: link targets, times and sizes."""
    parts: list[object] = [folder.resolve()]
    for path in (*(folder / name for name in NEEDED), *files):
        try:
            found = path.stat()
        except OSError:
            parts.append(None)
        else:
            parts += [found.st_ino, found.st_mtime_ns, found.st_size]
    return tuple(parts)
