"""A run folder: atomic save, load, and the state from which training resumes exactly.

``config.toml`` everything needed to repeat it · ``model.safetensors`` weights and stored vectors ·
``ids.json`` external ids and titles · ``state.pt`` optimizer and generators, for resume only ·
``history.jsonl`` a line an evaluation · ``metrics.json`` · ``per_user.npz``.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.averaging import Average
from itemrec.components import check_settings, lookup, named, settings_of, unbind
from itemrec.config import Config, difference, dump_config, load_config, normalise
from itemrec.data import IdMap
from itemrec.devices import pick_device
from itemrec.errors import ItemrecError
from itemrec.files import (
    arrays_of,
    atomic,
    json_lines,
    json_object,
    read_file,
    tensors_of,
    write_text,
)
from itemrec.held_out import Split
from itemrec.losses import LOSSES
from itemrec.models import MODELS
from itemrec.models.base import Model
from itemrec.negatives import NEGATIVES, Sampler

if TYPE_CHECKING:
    from itemrec.evaluate import Evaluation

STATE_TENSORS = ("model", "optimizer", "generator", "average", "best")
NEEDED = ("config.toml", "model.safetensors", "ids.json", "metrics.json")  # of a finished run
FORMAT = 1  # of the run folder; a newer one is refused by name


@dataclass
class State:
    """Where training stands; with the tensors beside it, all that resuming needs."""

    data: str = ""  # fingerprint of the data set
    phase: str = "select"  # then "refit"
    epoch: int = 0
    best_epoch: int = 0
    best_value: float = -1.0
    best_metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)  # as loaded, until restored
    saved_at: float = field(default_factory=time.monotonic)

    def record(
        self, loss: float, metrics: dict[str, float], metric: str, model: Model | None = None
    ) -> None:
        """Take down one validation, and the weights if they are the best so far."""
        self.history.append(
            {"epoch": self.epoch, "loss": loss, "seconds": round(self.seconds, 3), **metrics}
        )
        if metrics[metric] > self.best_value:
            self.best_epoch, self.best_value = self.epoch, metrics[metric]
            self.best_metrics = metrics
            if model is not None:
                self.best_weights = {k: v.detach().clone() for k, v in model.named_parameters()}

    def chosen(self) -> None:
        """Selection is over: what follows starts from scratch for the chosen number of epochs."""
        self.phase, self.selected_epochs, self.epoch, self.best_weights = "refit", self.epoch, 0, {}

    selected_epochs: int = 0

    def restore_best(self, model: Model) -> None:
        """Put the best weights back."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in self.best_weights:
                    parameter.copy_(self.best_weights[name])

    def restore(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        average: Average,
    ) -> None:
        """Continue from loaded tensors, once."""
        if not self.tensors:
            return
        model.load_state_dict(self.tensors["model"], strict=False)
        optimizer.load_state_dict(self.tensors["optimizer"])
        generator.set_state(self.tensors["generator"])
        average.load(self.tensors["average"])
        self.best_weights = {k: v.to(model.device) for k, v in self.tensors["best"].items()}
        self.tensors = {}

    def save(
        self,
        folder: Path | None,
        model: Model,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        average: Average,
        least_seconds: float,
    ) -> None:
        """Write ``state.pt``, unless one was written less than ``least_seconds`` ago."""
        if folder is None or time.monotonic() - self.saved_at < least_seconds:
            return
        content = {
            "data": self.data,
            "phase": self.phase,
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_value": self.best_value,
            "best_metrics": self.best_metrics,
            "selected_epochs": self.selected_epochs,
            "seconds": self.seconds,
            "history": self.history,
            "model": dict(model.named_parameters()),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
            "average": average.tensors,
            "best": self.best_weights,
        }
        with atomic(folder / "state.pt") as path:
            torch.save(content, path)
        self.saved_at = time.monotonic()

    @classmethod
    def load(cls, path: Path) -> State:
        """Read ``state.pt``, tensors and plain values only."""
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            tensors = {k: content.pop(k) for k in STATE_TENSORS}
            return cls(tensors=tensors, **content)
        except Exception as error:  # torch raises whatever a damaged file makes it stumble over
            raise ItemrecError(f"{path} is not a training state that can be resumed") from error


@dataclass
class Run:
    """A trained model with everything needed to judge it, use it and repeat it."""

    model: Model
    config: Config  # data, split, model, loss, negatives, train
    protocol: str
    dataset: dict[str, Any]
    user_ids: IdMap
    item_ids: IdMap
    titles: npt.NDArray[Any] | None
    genres: npt.NDArray[Any] | None
    train: sp.csr_array  # what the model was trained on, [users, items]
    notes: tuple[str, ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    per_user: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        split: Split,
        model: Model,
        loss: Callable[..., Tensor],
        negatives: Sampler,
        train: dict[str, Any],
    ) -> Run:
        """A run that has not been trained yet."""
        config = {
            "data": dict(split.source),
            "split": dict(split.settings),
            "model": named(MODELS, type(model), model.settings),
            "loss": named(LOSSES, *unbind(loss)),
            "negatives": named(NEGATIVES, type(negatives), settings_of(negatives)),
            "train": train,
        }
        if model.closed_form or model.own_objective:
            config["loss"] = config["negatives"] = {"name": "none"}
        return cls(
            model,
            config,
            split.protocol,
            split.dataset,
            split.user_ids,
            split.item_ids,
            split.titles,
            split.genres,
            split.train,
            split.notes,
        )

    def open(self, folder: Path | None, resume: bool) -> State:
        """Claim the folder, or continue what lies in it."""
        fresh = State(data=self.dataset["fingerprint"])
        if folder is None:
            return fresh
        done, state = folder / "metrics.json", folder / "state.pt"
        if resume:
            config = folder / "config.toml"
            if config.exists() and load_config(config) != normalise(self.config):
                told = difference(load_config(config), normalise(self.config))
                raise ItemrecError(f"{folder} holds a run with other settings: {told}")
            if done.exists():
                facts = read_file(done, json_object).get("dataset", {})
                if facts.get("fingerprint") != fresh.data:
                    raise ItemrecError(f"{folder} holds a run on other data; it cannot be resumed")
            for draft in folder.glob(".*.tmp"):  # what a killed process was writing
                draft.unlink()
            if state.exists() and not done.exists():
                found = State.load(state)
                if found.data != fresh.data:
                    raise ItemrecError(f"{folder} holds a run on other data; it cannot be resumed")
                return found
        elif done.exists() or state.exists() or self._claimed(folder):
            raise ItemrecError(
                f"{folder} already holds a run: continue it with --resume, or choose another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "config.toml", dump_config(self.config))
        return fresh

    def _claimed(self, folder: Path) -> bool:
        """Another run has begun here, though it has saved nothing yet."""
        config = folder / "config.toml"
        return config.exists() and load_config(config) != normalise(self.config)

    def abandon(self, folder: Path | None) -> None:
        """Take back a folder that holds settings and nothing else: training never began."""
        if folder is not None and [path.name for path in folder.iterdir()] == ["config.toml"]:
            (folder / "config.toml").unlink()
            folder.rmdir()

    def finish(self, split: Split, state: State, refit: bool) -> None:
        """Take over what training has found."""
        self.train, self.history = split.train, state.history
        self.metrics = {
            "dataset": self.dataset,
            "protocol": self.protocol,
            "model": self.config["model"]["name"],
            "loss": self.config["loss"]["name"],
            "negatives": self.config["negatives"]["name"],
            "seed": self.config["train"]["seed"],
            "best_epoch": state.best_epoch,
            "epochs": state.selected_epochs,
            "refit": refit,
            "notes": list(self.notes),
            "seconds": {"train": round(state.seconds, 3), "evaluate": 0.0},
            "valid": state.best_metrics,
            "test": {},
        }

    def judge(self, result: Evaluation, seconds: float) -> None:
        """Take over the test figures."""
        self.metrics["test"] = result.metrics
        self.metrics["users"] = {"judged": len(result.ids)}
        self.metrics["seconds"]["evaluate"] = round(seconds, 3)
        self.per_user = {"user": result.ids, "history": result.history, **result.per_user}

    def save(self, folder: str | Path) -> None:
        """Write the run folder; each file is complete or absent, ``metrics.json`` comes last."""
        from safetensors.torch import save_file

        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise ItemrecError(f"{folder} is a file: a run needs a folder")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").unlink(missing_ok=True)  # not finished until all is written
        write_text(folder / "config.toml", dump_config(self.config))
        tensors = {k: v.detach().cpu().contiguous() for k, v in self.model.state_dict().items()}
        tensors["train.crow"] = torch.from_numpy(self.train.indptr.astype(np.int64))
        tensors["train.col"] = torch.from_numpy(self.train.indices.astype(np.int32))
        with atomic(folder / "model.safetensors") as path:
            save_file(tensors, path)  # no metadata: its order would differ from run to run
            path.chmod((folder / "config.toml").stat().st_mode)  # it is written as private
        ids: dict[str, Any] = {
            "format": FORMAT,
            "protocol": self.protocol,
            "users": self.user_ids.ids.tolist(),
            "items": self.item_ids.ids.tolist(),
        }
        for name, column in (("titles", self.titles), ("genres", self.genres)):
            if column is not None:
                ids[name] = [str(text) for text in column]
        write_text(folder / "ids.json", json.dumps(ids))
        write_text(
            folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in self.history)
        )
        # ids may be Python strings, which only a pickle could hold as they are
        columns = {k: v.astype(str) if v.dtype == object else v for k, v in self.per_user.items()}
        with atomic(folder / "per_user.npz") as path, path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **columns)
        write_text(folder / "metrics.json", json.dumps(self.metrics, indent=1) + "\n")

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Run:
        """Read a run folder; nothing in it is ever executed."""
        folder, device = Path(folder), str(pick_device(device))
        if not folder.is_dir():
            problem = "is a file, not a run folder" if folder.exists() else "no such folder"
            raise ItemrecError(f"{folder}: {problem}")
        missing = [name for name in NEEDED if not (folder / name).exists()]
        if "metrics.json" in missing and "config.toml" not in missing:  # it is written last
            how = f"itemrec train --resume --out {folder}"
            raise ItemrecError(f"{folder} is not finished: continue with {how}")
        if missing:
            raise ItemrecError(f"{folder} is not a finished run: {', '.join(missing)} is missing")
        config = load_config(folder / "config.toml")
        for section in ("split", "model", "loss", "negatives", "train"):
            if section not in config:
                raise ItemrecError(f"{folder / 'config.toml'} is damaged: it has no [{section}]")
        ids = read_file(folder / "ids.json", json_object)
        if ids.get("format", 0) not in range(FORMAT + 1):
            raise ItemrecError(f"{folder} was written by a newer itemrec")
        metrics = read_file(folder / "metrics.json", json_object)
        for key in ("best_epoch", "seconds", "test"):  # what tables and plots show
            if key not in metrics:
                raise ItemrecError(f"{folder / 'metrics.json'} is damaged: it has no '{key}'")
        history = read_file(folder / "history.jsonl", json_lines)
        per_user = read_file(folder / "per_user.npz", arrays_of)
        tensors = read_file(
            folder / "model.safetensors", functools.partial(tensors_of, device=device)
        )
        try:
            crow, col = (tensors.pop(f"train.{k}").cpu().numpy() for k in ("crow", "col"))
            shape = (len(ids["users"]), len(ids["items"]))
            train = sp.csr_array((np.ones(len(col), np.float32), col, crow), shape=shape)
            inductive = ids["protocol"] == "inductive"
            model = _rebuild(config["model"], train, inductive, tensors, device)
            texts = {k: np.array(ids[k]) if k in ids else None for k in ("titles", "genres")}
            return cls(
                model,
                config,
                ids["protocol"],
                metrics["dataset"],
                IdMap(np.array(ids["users"])),
                IdMap(np.array(ids["items"])),
                texts["titles"],
                texts["genres"],
                train,
                notes=tuple(metrics.get("notes", ())),
                history=history,
                metrics=metrics,
                per_user=per_user,
            )
        except ItemrecError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ItemrecError(f"the files of {folder} do not belong together: {error}") from error


def _rebuild(
    section: dict[str, Any],
    train: sp.csr_array,
    inductive: bool,
    tensors: dict[str, Tensor],
    device: str,
) -> Model:
    """The model of a configuration's section with these tensors."""
    settings = dict(section)
    name = settings.pop("name")
    kind = lookup(MODELS, "model", name)
    model: Model = kind(**check_settings(kind, name, settings))
    model.setup(train, inductive=inductive, generator=torch.Generator().manual_seed(0))
    for key, tensor in tensors.items():
        if key not in model.state_dict():
            model.store(key, tensor)
    model.to(device)
    model.load_state_dict(tensors)
    return model.eval()
