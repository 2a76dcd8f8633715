"""A run folder: atomic saving, loading, and the state from which training resumes exactly.

``config.toml`` everything needed to repeat the run · ``model.safetensors`` weights and cached
vectors · ``ids.json`` external ids and titles · ``user_ids.parquet``, ``item_ids.parquet`` instead
of very long lists in it · ``state.pt`` optimizer and generators, for resuming only ·
``history.jsonl`` one line per evaluation · ``metrics.json`` · ``per_user.npz`` ·
``checksums.json`` of all others but ``state.pt``.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from itemrec import ranks
from itemrec.config_file import Config, dump_config, load_config, normalise
from itemrec.data.id_arrays import fixed_width
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.files import (
    arrays_of,
    atomic,
    check_folder,
    json_lines,
    json_object,
    locked,
    read_file,
    tensors_of,
    write_text,
)
from itemrec.training import checksums
from itemrec.training.checksums import COVERED, OPTIONAL, check_files, write_checksums
from itemrec.training.learner import Learner
from itemrec.training.run import Run
from itemrec.training.same_run import check_same
from itemrec.training.state import TrainState
from itemrec.training.stored_ids import id_map, item_texts, read_features, read_record, save_ids
from itemrec.training.stored_tensors import (
    rebuild,
    save_tensors,
    take_interactions,
    take_vectors,
)
from itemrec.validation import shown

NEEDED = ("config.toml", "model.safetensors", "ids.json", "metrics.json")  # files of a finished run


class RunFolder:
    """The files of one run, finished or under way."""

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | os.PathLike) or folder == "":
            raise ItemrecError(f"'folder' must be the path of a run folder, got {shown(folder)}")
        self.path = Path(folder)
        self.claimed = False

    @property
    def is_finished(self) -> bool:
        """Whether all files were written: ``metrics.json`` is written last."""
        return (self.path / "metrics.json").exists()

    # --- while training --------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; a failure before any state was saved leaves no folder.

        Of several ranks the first does it.
        """
        if not ranks.is_first():
            yield
            return
        check_folder("out", self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path, wait=False):
            try:
                yield
            except BaseException:  # also an interrupt
                self._abandon()
                raise

    def claim(self, run: Run, fresh: TrainState, resume: bool) -> TrainState:
        """Claim the folder for a run, or continue the run in it; returns the initial state."""
        if not ranks.from_first(lambda: self._claim(run, resume)):
            return fresh
        found = TrainState.load(self.path / "state.pt")
        if found.data != fresh.data:
            raise ItemrecError(f"{self.path} holds a run on other data; it cannot be resumed")
        return found

    def _claim(self, run: Run, resume: bool) -> bool:
        """Claim the folder; returns whether there is a state to continue from."""
        state = self.path / "state.pt"
        if (self.path / "tune.toml").exists():
            raise ItemrecError(f"{self.path} holds a search, not a run: choose another --out")
        if resume:
            metrics = (
                read_file(self.path / "metrics.json", json_object) if self.is_finished else None
            )
            check_same(self.path, self.stored_config(), metrics, run)
            for draft in self.path.glob(".*.tmp"):  # left by a killed process
                draft.unlink()
            if self.is_finished:  # its files stay as they are
                return False
            if state.exists():
                return True
        elif self.is_finished or state.exists() or self._holds_other(run):
            raise ItemrecError(
                f"{self.path} already holds a run: continue it with --resume, "
                "or choose another folder"
            )
        self.claimed = True
        write_text(self.path / "config.toml", dump_config(run.asked))
        return False

    def check_free(self, section: str) -> None:
        """Claim the folder for a run that is written at once, when it is complete.

        What is left of one that was killed while it was written, which has this section in its
        settings, is replaced.
        """
        if any((self.path / name).exists() for name in ("tune.toml", "state.pt", "metrics.json")):
            raise ItemrecError(f"{self.path} already holds a run or a search: choose another --out")
        stored = self.stored_config()
        if stored is not None and section not in stored:
            raise ItemrecError(f"{self.path} already holds a run: choose another --out")
        self.claimed = True

    def save_state(self, state: TrainState, learner: Learner, *, least_seconds: float) -> None:
        """Write ``state.pt``, unless one was written less than ``least_seconds`` ago."""
        if ranks.from_first(lambda: time.monotonic() - state.saved_at >= least_seconds):
            state.save(self.path / "state.pt", learner)

    def _abandon(self) -> None:
        """Remove what a failed training wrote if there is no state to resume it from."""
        if self.claimed and not (self.path / "state.pt").exists():
            for name in (*COVERED, *OPTIONAL, checksums.NAME):
                (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def stored_config(self) -> Config | None:
        """The settings in the folder under their current names, or None if there are none."""
        path = self.path / "config.toml"
        return load_config(path, note=False) if path.exists() else None

    def _holds_other(self, run: Run) -> bool:
        """Whether another run has begun here but has saved nothing yet."""
        stored = self.stored_config()
        return stored is not None and stored != normalise(run.asked)

    # --- finished runs ---------------------------------------------------------------------------

    def save(self, run: Run) -> None:
        """Write all files; each is complete or absent, and ``metrics.json`` is written last."""
        folder = self.path
        if folder.exists() and not folder.is_dir():
            raise ItemrecError(f"{folder} is a file: a run needs a folder")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(missing_ok=True)  # finished only when all is written
        write_text(folder / "config.toml", dump_config(run.config))
        save_tensors(folder, run)
        save_ids(folder, run)
        lines = "".join(json.dumps(row) + "\n" for row in run.history)
        write_text(folder / "history.jsonl", lines)
        # ids may be Python strings, which only a pickle could store unchanged
        columns = {
            name: fixed_width([str(value) for value in values])
            if values.dtype == object
            else values
            for name, values in run.per_user.items()
        }
        with atomic(folder / "per_user.npz") as path, path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **columns)
        metrics = json.dumps(run.metrics, indent=1) + "\n"
        write_checksums(folder, metrics)
        write_text(folder / "metrics.json", metrics)

    def load(self, device: str = "cpu") -> Run:
        """Load a finished run; nothing in the folder is ever executed."""
        device = str(pick_device(device))
        self._check_complete()
        ids = read_record(self.path)
        check_files(self.path, ids.get("format", 0))
        config, metrics = self._read_config(), self._read_metrics()
        history = read_file(self.path / "history.jsonl", json_lines)
        per_user = read_file(self.path / "per_user.npz", arrays_of)
        read = functools.partial(tensors_of, device=device)
        tensors = read_file(self.path / "model.safetensors", read)
        try:
            user_ids, item_ids = (id_map(self.path, ids, role) for role in ("users", "items"))
            train = take_interactions(tensors, (len(user_ids), len(item_ids)))
            vectors = take_vectors(tensors)
            inductive = ids["protocol"] == "inductive"
            return Run(
                model=rebuild(config["model"], train, inductive, tensors, device),
                config=config,
                protocol=ids["protocol"],
                dataset=metrics["dataset"],
                user_ids=user_ids,
                item_ids=item_ids,
                titles=item_texts(ids, "titles", len(item_ids)),
                genres=item_texts(ids, "genres", len(item_ids)),
                train=train,
                notes=tuple(metrics.get("notes", ())),
                history=history,
                metrics=metrics,
                per_user=per_user,
                features=read_features(ids.get("features"), vectors),
            )
        except ItemrecError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ItemrecError(
                f"the files of {self.path} do not belong together: {error}"
            ) from error

    def _check_complete(self) -> None:
        folder = self.path
        if not folder.is_dir():
            problem = "is a file, not a run folder" if folder.exists() else "no such folder"
            raise ItemrecError(f"{folder}: {problem}")
        missing = [name for name in NEEDED if not (folder / name).exists()]
        if "metrics.json" in missing and "config.toml" not in missing:  # written last
            is_update = "update" in (self.stored_config() or {})
            how = f"itemrec {'update RUN NEW' if is_update else 'train --resume'} --out {folder}"
            raise ItemrecError(f"{folder} is not finished: continue with {how}")
        if missing:
            raise ItemrecError(f"{folder} is not a finished run: {', '.join(missing)} is missing")

    def _read_config(self) -> Config:
        config = load_config(self.path / "config.toml", note=False)
        for section in ("split", "model", "loss", "negatives", "train"):
            if section not in config:
                raise ItemrecError(f"{self.path / 'config.toml'} is damaged: it has no [{section}]")
        return config

    def _read_metrics(self) -> dict[str, Any]:
        metrics = read_file(self.path / "metrics.json", json_object)
        for key in ("best_epoch", "seconds", "test"):  # shown in tables and plots
            if key not in metrics:
                raise ItemrecError(f"{self.path / 'metrics.json'} is damaged: it has no '{key}'")
        return metrics


def load_runs(folders: Sequence[str]) -> dict[str, Run]:
    """Load runs, each named by the shortest suffix of its path that is unique."""
    paths = [Path(folder).resolve() for folder in folders]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return {name: Run.load(path) for name, path in zip(names, folders, strict=True)}
    raise ItemrecError("the same run was given twice")
