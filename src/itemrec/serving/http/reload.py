"""A run folder or a file of items that changes is taken over while the service runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from itemrec.errors import ItemrecError
from itemrec.serving.http.access_log import log
from itemrec.serving.http.runs import Runs, ServedRun
from itemrec.serving.http.settings import ServiceSettings
from itemrec.serving.http.telemetry import Telemetry
from itemrec.training.run_folder import NEEDED

EVERY_SECONDS = 2.0
Stamp = tuple[object, ...]


class Reloader:
    """Looks at the folders of runs and replaces those that have changed.

    A folder is loaded once it has stayed the same between two looks, so that one which is being
    copied is left alone. One that cannot be loaded is refused: the run before it stays.
    """

    def __init__(
        self,
        runs: Runs,
        folders: Mapping[str, Path],
        telemetry: Telemetry,
        device: str,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.runs, self.folders, self.telemetry = runs, folders, telemetry
        self.settings, self.device = settings or ServiceSettings(), device
        self._files = self.settings.item_files
        self._loaded = {name: stamp(folder, self._files) for name, folder in folders.items()}
        self._seen = dict(self._loaded)
        self._wake = asyncio.Event()
        self._at_once = False

    def now(self) -> None:
        """Load all folders again, changed or not; called for SIGHUP."""
        self._at_once = True
        self._wake.set()

    async def watch(self) -> None:
        """Look for changes until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EVERY_SECONDS)
            self._wake.clear()
            self.telemetry.note_process()
            await self.look()

    async def look(self) -> None:
        """Replace the runs whose folders have changed and rest."""
        at_once, self._at_once = self._at_once, False
        for name, folder in self.folders.items():
            now = stamp(folder, self._files)
            rests, self._seen[name] = now == self._seen[name], now
            if at_once or (rests and now != self._loaded[name]):
                self._loaded[name] = now  # also if refused: it is tried again when it changes
                await self._replace(name, folder)

    async def _replace(self, name: str, folder: Path) -> None:
        before = self.runs.choose(name, None)
        try:
            after = await asyncio.to_thread(self._load, name, folder)
        except (ItemrecError, OSError) as error:
            self.telemetry.reloads.labels(name, "refused").inc()
            log(logging.ERROR, f"run {name!r} is not replaced: {error}", run=name)
            return
        self.runs.replace(after)
        self.telemetry.note_run(after, before)
        self.telemetry.reloads.labels(name, "done").inc()
        log(logging.INFO, f"run {name!r} is loaded", run=name, run_fingerprint=after.fingerprint)

    def _load(self, name: str, folder: Path) -> ServedRun:
        return ServedRun.of(name, self.settings.load(folder, self.device))


def stamp(folder: Path, files: Sequence[Path] = ()) -> Stamp:
    """What changes with a run folder and other files: what is behind a link, times and sizes."""
    parts: list[object] = [folder.resolve()]
    for path in (*(folder / name for name in NEEDED), *files):
        try:
            found = path.stat()
        except OSError:
            parts.append(None)
        else:
            parts += [found.st_ino, found.st_mtime_ns, found.st_size]
    return tuple(parts)
