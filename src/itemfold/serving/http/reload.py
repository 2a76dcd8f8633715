"""Reload runs when their folder or a file of items changes."""

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


class Reloader:
    """Poll the folders of runs and replace the runs that have changed.

    A folder is loaded once two polls in a row find it the same, so that one being copied is left
    alone. If a folder cannot be loaded, the previous run stays.
    """

    def __init__(
        self,
        runs: ServedRuns,
        folders: Mapping[str, Path],
        telemetry: Telemetry,
        device: str,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.runs, self.folders, self.telemetry = runs, folders, telemetry
        self.settings, self.device = settings or ServiceSettings(), device
        self._files = self.settings.item_files
        self._loaded = {name: folder_stamp(path, self._files) for name, path in folders.items()}
        self._seen = dict(self._loaded)
        self._wake = asyncio.Event()
        self._reload_all = False

    def reload_all(self) -> None:
        """Reload all folders, changed or not; the handler of SIGHUP."""
        self._reload_all = True
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
        for name, folder in self.folders.items():
            now = folder_stamp(folder, self._files)
            is_stable, self._seen[name] = now == self._seen[name], now
            if at_once or (is_stable and now != self._loaded[name]):
                self._loaded[name] = now  # after a failure, too: the next change is tried again
                await self._replace(name, folder)

    async def _replace(self, name: str, folder: Path) -> None:
        def load() -> ServedRun:
            return ServedRun.of(name, self.settings.load(folder, self.device))

        before = self.runs.choose(name, None)
        try:
            after = await asyncio.to_thread(load)
        except (ItemfoldError, OSError) as error:
            self.telemetry.reloads.labels(name, "refused").inc()
            log(logging.ERROR, f"run {name!r} is not replaced: {error}", run=name)
            return
        self.runs.replace(after)
        self.telemetry.describe_run(after, before)
        self.telemetry.reloads.labels(name, "done").inc()
        log(logging.INFO, f"run {name!r} is loaded", run=name, run_fingerprint=after.fingerprint)


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
