"""A run folder: atomic saving, loading, and the state from which training resumes exactly.

- ``request.toml``: the requested settings, written once.
- ``config.toml``: the complete settings with their sources, enough to repeat the run.
- ``model.safetensors``: weights, training interactions and feature vectors.
- ``ids.json``: external ids, titles and genres; very long lists of ids are in
  ``user_ids.parquet`` and ``item_ids.parquet`` instead.
- ``state.pt``: optimizer and generators, only for resuming.
- ``history.jsonl``: one line per validation.
- ``metrics.json``, ``per_user.npz``: metrics, in total and by user.
- ``checksums.json``: checksums of all other files except ``state.pt``.
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

from itemfold import ranks
from itemfold.data.id_arrays import fixed_width
from itemfold.data.splitting.split import Split
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.files import (
    atomic,
    check_folder,
    json_lines,
    json_object,
    locked,
    read_arrays,
    read_file,
    read_tensors,
    write_text,
)
from itemfold.settings.resolve import Settings
from itemfold.settings.schema import Config
from itemfold.settings.stored_config import current_config, current_split, difference_of_requests
from itemfold.settings.toml_file import dump_config, flat, load_stored
from itemfold.training import checksums
from itemfold.training.checksums import CHECKSUMMED, OPTIONAL, check_files, write_checksums
from itemfold.training.learner import Learner
from itemfold.training.run import Run
from itemfold.training.state import State, load_state, save_state
from itemfold.training.stored_ids import id_map, item_texts, read_features, read_record, save_ids
from itemfold.training.stored_tensors import (
    rebuild,
    save_tensors,
    take_interactions,
    take_times,
    take_vectors,
)
from itemfold.validation import shown

REQUIRED = (
    "config.toml",
    "model.safetensors",
    "ids.json",
    "metrics.json",
)  # files of a finished run


class RunFolder:
    """The files of one run, finished or in progress."""

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | os.PathLike) or folder == "":
            raise ItemfoldError(f"'folder' must be the path of a run folder, got {shown(folder)}")
        self.path = Path(folder)
        self.claimed = False
        self.data = ""  # fingerprint of the training data
        self.saved_at = time.monotonic()

    @property
    def is_usable(self) -> bool:
        """Whether all files were written: ``metrics.json`` is written last."""
        return (self.path / "metrics.json").exists()

    @property
    def is_finished(self) -> bool:
        """Whether training is complete, not only one of its stages."""
        if not self.is_usable:
            return False
        return bool(read_file(self.path / "metrics.json", json_object).get("complete", True))

    # --- while training --------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; a failure before any state was saved removes it.

        Only the first of several ranks does this.
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
                self._clean_up()
                raise

    def is_finished_run_of(self, settings: Settings, split: Split) -> bool:
        """Whether the folder holds the finished run of this request; raises if another run."""
        if not self.is_finished:
            return False
        metrics = read_file(self.path / "metrics.json", json_object)
        dataset = metrics.get("dataset", {})
        if any(dataset.get(key) != split.dataset.get(key) for key in ("fingerprint", "weights")):
            raise ItemfoldError(f"{self.path} holds a run on other data; it cannot be resumed")
        self._check_request(settings)
        return True

    def claim(self, settings: Settings, split: Split, resume: bool) -> dict[str, Any] | None:
        """Claim the folder for a new run, or return the saved state of the run in it."""
        self.data = split.dataset["fingerprint"] + split.dataset.get("weights", "")
        if not ranks.from_first(lambda: self._claim(settings, resume)):
            return None
        found = load_state(self.path / "state.pt")
        if found["data"] != self.data:
            raise ItemfoldError(f"{self.path} holds a run on other data; it cannot be resumed")
        return found

    def _claim(self, settings: Settings, resume: bool) -> bool:
        """Claim the folder; returns whether there is a state to resume from."""
        has_state = (self.path / "state.pt").exists()
        if (self.path / "tune.toml").exists():
            raise ItemfoldError(f"{self.path} holds a search, not a run: choose another --out")
        request = self.stored_request()
        if resume:
            self._check_request(settings)
            for draft in self.path.glob(".*.tmp"):  # left by a killed process
                draft.unlink()
            if has_state:
                return True
        elif self.is_usable or has_state or (request and self._other_request(request, settings)):
            raise ItemfoldError(
                f"{self.path} already holds a run: continue it with --resume, "
                "or choose another folder"
            )
        self.claimed = True
        if request is None:
            write_text(self.path / "request.toml", dump_config(settings.request(), settings.given))
        return False

    def _check_request(self, settings: Settings) -> None:
        """Raise if the folder holds a run of another request.

        The complete settings of a finished run are accepted as its request.
        """
        request = self.stored_request()
        problem = "" if request is None else self._other_request(request, settings)
        if problem and self.is_finished and not self._other_request(self.stored_config(), settings):
            problem = ""
        if problem:
            raise ItemfoldError(f"{self.path} holds a run with other settings: {problem}")

    def _other_request(self, stored: Config | None, settings: Settings) -> str:
        """The first setting in which a stored request differs; "" if none does."""
        if stored is None:
            return ""
        if self.is_finished and not (self.path / "request.toml").exists():
            # release 0.2 stored the complete settings only: the request must agree with them
            known, requested = flat(stored), flat(settings.request())
            differs = [path for path in requested if requested[path] != known.get(path)]
            return "".join(f"'{p}' is {known.get(p)!r}, got {requested[p]!r}" for p in differs[:1])
        return difference_of_requests(stored, settings)

    def check_free(self, section: str) -> None:
        """Claim the folder for a run that is written only when it is complete.

        The files of a run that was killed while writing are replaced; its settings have this
        section.
        """
        if any((self.path / name).exists() for name in ("tune.toml", "state.pt", "metrics.json")):
            raise ItemfoldError(
                f"{self.path} already holds a run or a search: choose another --out"
            )
        stored = self.stored_request()
        if stored is not None and section not in stored:
            raise ItemfoldError(f"{self.path} already holds a run: choose another --out")
        self.claimed = True

    def save_state(self, state: State, learner: Learner, *, least_seconds: float) -> None:
        """Write ``state.pt``, unless one was written less than ``least_seconds`` ago."""
        if ranks.from_first(lambda: time.monotonic() - self.saved_at >= least_seconds):
            save_state(self.path / "state.pt", state, learner, self.data)
            self.saved_at = time.monotonic()

    def _clean_up(self) -> None:
        """Remove the files of a failed training that left neither a state nor a usable stage."""
        if self.claimed and not self.is_usable and not (self.path / "state.pt").exists():
            for name in (*CHECKSUMMED, *OPTIONAL, checksums.NAME):
                (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def stored_config(self) -> Config | None:
        """The complete settings in the folder, or None if there are none."""
        path = self.path / "config.toml"
        return current_config(load_stored(path)) if path.exists() else None

    def stored_request(self) -> Config | None:
        """The request of the run in the folder; up to release 0.2, ``config.toml`` held it."""
        path = self.path / "request.toml"
        if not path.exists():
            return self.stored_config()
        stored = load_stored(path)
        return {**stored, "split": current_split(stored.get("split", {}))}

    # --- finished runs ---------------------------------------------------------------------------

    def save(self, run: Run) -> None:
        """Write all files atomically, ``metrics.json`` last."""
        folder = self.path
        if folder.exists() and not folder.is_dir():
            raise ItemfoldError(f"{folder} is a file: a run needs a folder")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(
            missing_ok=True
        )  # the run is unfinished until all is written
        write_text(folder / "config.toml", dump_config(run.config, run.sources))
        save_tensors(folder, run)
        save_ids(folder, run)
        lines = "".join(json.dumps(row) + "\n" for row in run.history)
        write_text(folder / "history.jsonl", lines)
        save_per_user(folder, run)
        metrics = json.dumps(run.metrics, indent=1) + "\n"
        write_checksums(folder, metrics)
        write_text(folder / "metrics.json", metrics)
        if run.metrics.get("complete", True) and "stage" not in run.metrics:
            (folder / "state.pt").unlink(missing_ok=True)  # there is nothing to resume

    def load(self, device: str = "cpu") -> Run:
        """Load a finished run; nothing in the folder is ever executed."""
        device = str(pick_device(device))
        self._check_complete()
        ids = read_record(self.path)
        check_files(self.path, ids.get("format", 0))
        config, metrics = self._read_config(), self._read_metrics()
        history = read_file(self.path / "history.jsonl", json_lines)
        per_user = read_file(self.path / "per_user.npz", read_arrays)
        read = functools.partial(read_tensors, device=device)
        tensors = read_file(self.path / "model.safetensors", read)
        try:
            user_ids, item_ids = (id_map(self.path, ids, role) for role in ("users", "items"))
            train = take_interactions(tensors, (len(user_ids), len(item_ids)))
            vectors, times = take_vectors(tensors), take_times(tensors, train.nnz)
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
                interactions=train,
                notes=tuple(metrics.get("notes", ())),
                history=history,
                metrics=metrics,
                per_user=per_user,
                features=read_features(ids.get("features"), vectors),
                times=times,
            )
        except ItemfoldError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ItemfoldError(
                f"the files of {self.path} do not belong together: {error}"
            ) from error

    def _check_complete(self) -> None:
        folder = self.path
        if not folder.is_dir():
            problem = "is a file, not a run folder" if folder.exists() else "no such folder"
            raise ItemfoldError(f"{folder}: {problem}")
        missing = [name for name in REQUIRED if not (folder / name).exists()]
        stored = self.stored_request()
        if "metrics.json" in missing and stored is not None:  # written last
            is_update = "update" in stored
            how = f"itemfold {'update RUN NEW' if is_update else 'train --resume'} --out {folder}"
            raise ItemfoldError(f"{folder} is not finished: continue with {how}")
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            raise ItemfoldError(
                f"{folder} is not a finished run: {', '.join(missing)} {verb} missing"
            )

    def _read_config(self) -> Config:
        config = current_config(load_stored(self.path / "config.toml"))
        for section in ("split", "model", "loss", "negatives", "train"):
            if section not in config:
                raise ItemfoldError(
                    f"{self.path / 'config.toml'} is damaged: it has no [{section}]"
                )
        return config

    def _read_metrics(self) -> dict[str, Any]:
        metrics = read_file(self.path / "metrics.json", json_object)
        for key in ("best_epoch", "seconds", "test"):  # shown in tables and plots
            if key not in metrics:
                raise ItemfoldError(f"{self.path / 'metrics.json'} is damaged: it has no '{key}'")
        return metrics


def save_per_user(folder: Path, run: Run) -> None:
    """Write the test metrics of each user."""
    # ids may be Python strings, which only a pickle could store unchanged
    columns = {
        name: fixed_width([str(value) for value in values]) if values.dtype == object else values
        for name, values in run.per_user.items()
    }
    with atomic(folder / "per_user.npz") as path, path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **columns)


def load_runs(folders: Sequence[str]) -> dict[str, Run]:
    """Load runs, each named by the shortest suffix of its path that is unique."""
    paths = [Path(folder).resolve() for folder in folders]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return {name: Run.load(path) for name, path in zip(names, folders, strict=True)}
    raise ItemfoldError("the same run was given twice")
