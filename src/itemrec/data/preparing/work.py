"""Steps that are done once: each is recorded when its files are on disk, and skipped afterwards."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from itemrec.data.prepared import STATE
from itemrec.errors import ItemrecError
from itemrec.files import json_object, read_file, write_text

FORMAT = 1

Facts = dict[str, Any]
Report = Callable[[str, int, int, float], None]  # phase, steps done, steps in all, seconds


class KeptError(ItemrecError):
    """An error that leaves the work of finished steps in place."""


class Work:
    """The files of a preparation under way, and the facts that finished steps have recorded.

    A step may be cut off at any moment. It is then run again, so it must replace whatever it may
    have written before.
    """

    def __init__(self, out: Path, request: Facts, report: Report | None) -> None:
        self.folder = out / STATE.parent
        self.report = report
        self.began: dict[str, float] = {}
        if (self.folder / STATE.name).exists():
            self.state = read_file(self.folder / STATE.name, json_object)
            check_request(out, self.state.get("request", {}), request)
        else:
            self.state = {"format": FORMAT, "request": request, "steps": {}}
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._save()

    def once(self, phase: str, step: int, steps: int, run: Callable[[], Facts]) -> Facts:
        """The facts of a step, which is run unless it was finished before."""
        name = f"{phase} {step}"
        began = self.began.setdefault(phase, time.monotonic())
        if name not in self.state["steps"]:
            self._tell(phase, step, steps, began)
            self.state["steps"][name] = run()
            self._save()
        self._tell(phase, step + 1, steps, began)
        found: Facts = self.state["steps"][name]
        return found

    def is_done(self, phase: str, step: int = 0) -> bool:
        """Whether a step was finished before."""
        return f"{phase} {step}" in self.state["steps"]

    def fresh(self, name: str) -> Path:
        """The path of a file or folder that a step writes, without what an earlier try left."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return path

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def clear(out: Path) -> None:
        """Remove the work in a folder."""
        shutil.rmtree(out / STATE.parent, ignore_errors=True)

    def _tell(self, phase: str, done: int, steps: int, began: float) -> None:
        if self.report is not None:
            self.report(phase, done, steps, time.monotonic() - began)

    def _save(self) -> None:
        write_text(self.folder / STATE.name, json.dumps(self.state))


def check_request(out: Path, stored: Facts, request: Facts) -> None:
    """Raise if a folder was begun with other settings, or if an input file has changed since."""
    why = _change(stored.get("settings", {}), request["settings"])
    before, now = stored.get("inputs", []), request["inputs"]
    if not why and before != now:
        changed = next((new[0] for new in now if new not in before), "")
        same_files = {entry[0] for entry in before} == {entry[0] for entry in now}
        why = f"{changed} has changed since" if same_files and changed else "the files were others"
    if why:
        raise KeptError(
            f"{out} was prepared otherwise: {why}; choose another --out, or delete the folder"
        )


def _change(before: Facts, now: Facts) -> str:
    """The first setting that is another one."""
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            was, is_ = (found.get(name, "not given") for found in (before, now))
            return f"'{name}' was {was} and is {is_}"
    return ""
