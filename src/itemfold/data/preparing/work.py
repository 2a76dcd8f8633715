"""Resumable steps of `prepare`: a step is recorded when its files are on disk, then skipped."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from itemfold.data.preparing.prepared import STATE
from itemfold.errors import ItemfoldError
from itemfold.files import json_object, read_file, write_text

FORMAT = 1

StepFacts = dict[str, Any]
PrepareProgress = Callable[[str, int, int, float], None]  # phase, steps done, all steps, seconds


class KeptError(ItemfoldError):
    """An error that keeps the finished steps, so that the call can be continued."""


class Work:
    """The files of an unfinished preparation, and the facts that its finished steps recorded.

    A step that was interrupted is run again, so it must replace whatever it has written before.
    """

    def __init__(self, out: Path, request: StepFacts, report: PrepareProgress | None) -> None:
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

    def once(self, phase: str, step: int, steps: int, run: Callable[[], StepFacts]) -> StepFacts:
        """Run a step unless it is finished, and return its facts."""
        name = f"{phase} {step}"
        began = self.began.setdefault(phase, time.monotonic())
        if name not in self.state["steps"]:
            self._report_progress(phase, step, steps, began)
            self.state["steps"][name] = run()
            self._save()
        self._report_progress(phase, step + 1, steps, began)
        found: StepFacts = self.state["steps"][name]
        return found

    def fresh(self, name: str) -> Path:
        """The path of a file or folder to write, after removing what an earlier try left."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return path

    @staticmethod
    def clear(out: Path) -> None:
        """Remove the unfinished work in a folder."""
        shutil.rmtree(out / STATE.parent, ignore_errors=True)

    def _report_progress(self, phase: str, done: int, steps: int, began: float) -> None:
        if self.report is not None:
            self.report(phase, done, steps, time.monotonic() - began)

    def _save(self) -> None:
        write_text(self.folder / STATE.name, json.dumps(self.state))


def check_request(out: Path, stored: StepFacts, request: StepFacts) -> None:
    """Raise if a folder was made with other settings, or if an input file has changed since."""
    why = ""
    settings = stored.get("settings", {}), request["settings"]
    for name in {**settings[0], **settings[1]}:
        if settings[0].get(name) != settings[1].get(name):
            was, now = (found.get(name, "not given") for found in settings)
            why = f"'{name}' was {was} and is {now}"
            break
    old, new = stored.get("inputs", []), request["inputs"]
    if not why and old != new:
        changed = next((entry[0] for entry in new if entry not in old), "")
        same_files = {entry[0] for entry in old} == {entry[0] for entry in new}
        why = f"{changed} has changed since" if same_files and changed else "the input files differ"
    if why:
        raise KeptError(
            f"{out} was prepared differently: {why}; choose another --out, or delete the folder"
        )
