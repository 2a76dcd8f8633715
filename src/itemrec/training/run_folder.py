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
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec import ranks
from itemrec.config_file import Config, difference, dump_config, load_config, normalise
from itemrec.data import csr
from itemrec.data.feature_columns import KINDS, FeatureColumn
from itemrec.data.id_files import read_ids, write_ids
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import ItemFeatures
from itemrec.data.texts import fixed_width, text_array
from itemrec.data.weights import is_weighted
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
from itemrec.models import MODELS
from itemrec.models.base import Kind, Model
from itemrec.training import checksums
from itemrec.training.checksums import COVERED, OPTIONAL, check_files, write_checksums
from itemrec.training.config import TrainConfig
from itemrec.training.learner import Learner
from itemrec.training.plan import OPEN
from itemrec.training.run import Run
from itemrec.training.state import TrainState
from itemrec.validation import check_settings, schema, shown

NEEDED = ("config.toml", "model.safetensors", "ids.json", "metrics.json")  # files of a finished run
FEATURES = "features."  # begins the names of the vectors among the tensors
FORMAT = 2  # version of the run folder; newer versions are rejected
FORMAT_OF_FILES = 3  # with ids in parquet files, which need not be read one by one
MOST_IN_JSON = 2**20  # users or items that are listed in ``ids.json``
ID_FILES = dict(zip(("users", "items"), OPTIONAL, strict=True))


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
            self._check_same(run)
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

    def _check_same(self, run: Run) -> None:
        """Reject continuing a run with different settings or on different data."""
        stored, given = self.stored_config(), normalise(run.asked)
        if stored is not None and self.is_finished:
            given = normalise(run.config)
            stored = self._without_choices(stored, given, normalise(run.asked))
        if stored is not None and "train" in stored:  # settings that came later have their defaults
            still_open = OPEN if run.model.kind is Kind.HYBRID else ()
            later = _later_settings(given, stored, still_open)
            stored["train"] = {**later, **stored["train"]}
        if stored is not None and stored != given:
            changed = difference(stored, given)
            raise ItemrecError(f"{self.path} holds a run with other settings: {changed}")
        if self.is_finished:
            dataset = read_file(self.path / "metrics.json", json_object).get("dataset", {})
            if any(dataset.get(key) != run.dataset.get(key) for key in ("fingerprint", "weights")):
                raise ItemrecError(f"{self.path} holds a run on other data; it cannot be resumed")

    def _without_choices(self, stored: Config, given: Config, asked: Config) -> Config:
        """The stored settings as they were given, before the run chose those left open.

        What was chosen then but is asked for now must be what was chosen.
        """
        chosen = read_file(self.path / "metrics.json", json_object).get("chosen", {})
        out: Config = {section: dict(settings) for section, settings in stored.items()}
        kind = MODELS.get(stored["model"]["name"])
        defaults = {} if kind is None else schema(kind)
        for section, settings in chosen.items():
            if section in ("loss", "negatives") and asked[section]:
                continue
            if "name" in settings:  # another component
                out[section] = dict(given[section])
            for name in settings:
                is_open = section != "model" or defaults.get(name) is None
                if is_open and name in asked[section]:
                    continue
                out[section].pop(name, None)
                if name in given[section]:
                    out[section][name] = given[section][name]
        return out

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
        self._save_tensors(run)
        self._save_ids(run)
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

    def _save_tensors(self, run: Run) -> None:
        from safetensors.torch import save_file

        tensors = {k: v.detach().cpu().contiguous() for k, v in run.model.state_dict().items()}
        for column in () if run.features is None else run.features.vectors():
            tensors[f"{FEATURES}{column.name}"] = torch.from_numpy(column.values)
        tensors["train.crow"] = torch.from_numpy(run.train.indptr.astype(np.int64))
        tensors["train.col"] = torch.from_numpy(run.train.indices.astype(np.int32))
        if is_weighted(run.train):
            tensors["train.weight"] = torch.from_numpy(run.train.data.astype(np.float32))
        with atomic(self.path / "model.safetensors") as path:
            save_file(tensors, path)  # no metadata: its order would differ from run to run
            path.chmod((self.path / "config.toml").stat().st_mode)  # it is created as private

    def _save_ids(self, run: Run) -> None:
        ids: dict[str, Any] = {"format": FORMAT, "protocol": run.protocol}
        for role, known in (("users", run.user_ids), ("items", run.item_ids)):
            path = self.path / ID_FILES[role]
            path.unlink(missing_ok=True)
            if len(known) <= MOST_IN_JSON:
                ids[role] = known.ids.tolist()
            else:
                write_ids(path, known.ids)
                ids |= {"format": FORMAT_OF_FILES, role: path.name}
        for name, column in (("titles", run.titles), ("genres", run.genres)):
            if column is not None:
                ids[name] = [str(text) for text in column]
        if run.features is not None:
            ids["features"] = features_record(run.features)
        write_text(self.path / "ids.json", json.dumps(ids))

    def load(self, device: str = "cpu") -> Run:
        """Load a finished run; nothing in the folder is ever executed."""
        device = str(pick_device(device))
        self._check_complete()
        ids = self._read_ids()
        check_files(self.path, ids.get("format", 0))
        config, metrics = self._read_config(), self._read_metrics()
        history = read_file(self.path / "history.jsonl", json_lines)
        per_user = read_file(self.path / "per_user.npz", arrays_of)
        read = functools.partial(tensors_of, device=device)
        tensors = read_file(self.path / "model.safetensors", read)
        try:
            crow, col = (tensors.pop(f"train.{k}").cpu().numpy() for k in ("crow", "col"))
            weight = tensors.pop("train.weight", None)
            weights = None if weight is None else weight.cpu().numpy()
            user_ids, item_ids = (self._id_map(ids, role) for role in ("users", "items"))
            train = csr.checked(col, crow, (len(user_ids), len(item_ids)), weights)
            vectors = {
                name.removeprefix(FEATURES): tensors.pop(name).cpu().numpy()
                for name in list(tensors)
                if name.startswith(FEATURES)
            }
            inductive = ids["protocol"] == "inductive"
            return Run(
                model=rebuild(config["model"], train, inductive, tensors, device),
                config=config,
                protocol=ids["protocol"],
                dataset=metrics["dataset"],
                user_ids=user_ids,
                item_ids=item_ids,
                titles=_texts(ids, "titles", len(item_ids)),
                genres=_texts(ids, "genres", len(item_ids)),
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

    def _read_ids(self) -> dict[str, Any]:
        ids = read_file(self.path / "ids.json", json_object)
        if ids.get("format", 0) not in range(FORMAT_OF_FILES + 1):
            raise ItemrecError(f"{self.path} was written by a newer itemrec")
        return ids

    def _id_map(self, ids: dict[str, Any], role: str) -> IdMap:
        """The users or the items, listed or in a file of their own."""
        if ids[role] == ID_FILES[role]:
            return IdMap(read_file(self.path / ID_FILES[role], read_ids))
        return _id_map(ids[role])

    def _read_metrics(self) -> dict[str, Any]:
        metrics = read_file(self.path / "metrics.json", json_object)
        for key in ("best_epoch", "seconds", "test"):  # shown in tables and plots
            if key not in metrics:
                raise ItemrecError(f"{self.path / 'metrics.json'} is damaged: it has no '{key}'")
        return metrics


def _later_settings(given: Config, stored: Config, still_open: Sequence[str]) -> dict[str, Any]:
    """Training settings that an older version did not have, where the default is asked for.

    A setting may also be missing because the run has yet to choose it.
    """
    defaults = schema(TrainConfig)
    return {
        name: value
        for name, value in given["train"].items()
        if name not in (*stored["train"], *still_open) and value == defaults[name]
    }


def _id_map(ids: list[Any]) -> IdMap:
    is_text = any(isinstance(value, str) for value in ids)
    return IdMap(text_array(ids) if is_text else np.array(ids))


def _texts(ids: dict[str, Any], column: str, n_items: int) -> npt.NDArray[Any] | None:
    """A text for each item, or None."""
    if column not in ids:
        return None
    if len(ids[column]) != n_items:
        raise ValueError(f"there are {len(ids[column])} {column} for {n_items} items")
    return text_array(ids[column])


def features_record(features: ItemFeatures) -> dict[str, Any]:
    """Features as they are stored in ``ids.json``; vectors are among the tensors."""

    def values(column: FeatureColumn) -> list[Any]:
        if column.kind == "vector":
            return []
        if column.kind == "number":
            return [None if value != value else value for value in column.values.tolist()]
        return [value if isinstance(value, str) else list(value) for value in column.values]

    columns = [{"name": c.name, "kind": c.kind, "values": values(c)} for c in features.columns]
    return {"items": features.ids.ids.tolist(), "columns": columns}


def read_features(stored: Any, vectors: dict[str, npt.NDArray[Any]]) -> ItemFeatures | None:
    """Features as they were saved; ValueError or KeyError if they are damaged."""
    if stored is None:
        return None
    columns, n_items = [], len(stored["items"])
    for entry in stored["columns"]:
        name, kind, values = entry["name"], entry["kind"], entry["values"]
        if kind not in KINDS:
            raise ValueError(f"the feature {name!r} has the unknown kind {kind!r}")
        if kind == "vector":
            values = vectors[name]
        elif kind == "number":
            values = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        elif kind == "category":
            values = [tuple(map(str, names)) for names in values]
        if len(values) != n_items:
            raise ValueError(f"there are {len(values)} values of {name!r} for {n_items} items")
        columns.append(FeatureColumn(name, kind, values))
    return ItemFeatures(_id_map(stored["items"]), tuple(columns))


def load_runs(folders: Sequence[str]) -> dict[str, Run]:
    """Load runs, each named by the shortest suffix of its path that is unique."""
    paths = [Path(folder).resolve() for folder in folders]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return {name: Run.load(path) for name, path in zip(names, folders, strict=True)}
    raise ItemrecError("the same run was given twice")


def rebuild(
    section: dict[str, Any],
    train: sp.csr_array,
    inductive: bool,
    tensors: dict[str, Tensor],
    device: str,
) -> Model:
    """Build the model of a configuration's section with these tensors."""
    settings = dict(section)
    name = settings.pop("name")
    if name not in MODELS:
        raise ItemrecError(
            f"'model' must be one of {', '.join(MODELS)}, got {name!r}; a model of your own needs "
            "its file: itemrec --extension FILE.py …"
        )
    kind = MODELS[name]
    model: Model = kind(**check_settings(kind, name, settings))
    model.setup(train, inductive=inductive, generator=torch.Generator().manual_seed(0))
    for key, tensor in tensors.items():
        if key not in model.state_dict():
            model.store(key, tensor)
    model.to(device)
    model.load_state_dict(tensors)
    model.restore(train)
    return model.eval()
