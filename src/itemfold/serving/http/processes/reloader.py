"""Replaces the runs of one process by new versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from itemfold.errors import ItemfoldError
from itemfold.serving.http.monitoring.log import log
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.processes.versions import POLL_S, Versions
from itemfold.serving.http.runs import ServedRun, ServedRuns
from itemfold.serving.http.settings import ServiceSettings


class Reloader:
    """Replaces runs of this process.

    If a folder cannot be loaded, the run in memory stays. A single process watches the folders
    itself; with several workers, the supervisor instructs one after another.
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
                await asyncio.wait_for(self._wake.wait(), POLL_S)
            self._wake.clear()
            self.telemetry.measure_process()
            await self.poll()

    async def poll(self) -> None:
        """Replace the runs whose folders have changed and are now stable."""
        at_once, self._reload_all = self._reload_all, False
        orders = self.versions.poll(at_once=at_once)
        if self._roll_back:
            self._roll_back, orders = False, self.versions.rollback()
        for name, folder in orders:
            if not await self.load(name, folder):
                self.versions.accept(name, folder)

    async def load(self, name: str, folder: Path) -> str:
        """Replace a run by the one in a folder; return the reason of a failure, or ""."""

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
