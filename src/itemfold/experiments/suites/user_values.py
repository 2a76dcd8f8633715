"""Per-user values of runs: one small file per run, which paired tests read."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats
from itemfold.evaluation.activity import USER_COLUMNS
from itemfold.files import atomic

NO_METRICS = (*USER_COLUMNS, "run")  # the other arrays of a run's per-user values


@dataclass(frozen=True)
class UserValues:
    """Per-user values of one run."""

    run: str
    users: list[Any]
    metrics: dict[str, Floats]


def values_path(folder: Path, run: str) -> Path:
    """The path of a run's per-user values."""
    return folder / "runs" / f"{run}.npz"


def read_values(path: Path) -> UserValues | None:
    """The per-user values of a run, or None if there is no readable file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            metrics = {
                name: file[name].astype(np.float64) for name in file.files if name not in NO_METRICS
            }
            return UserValues(str(file["run"]), file["user"].tolist(), metrics)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def write_values(path: Path, per_user: dict[str, npt.NDArray[Any]], run: str) -> None:
    """Write per-user values as float32, with the id of their run.

    Suites share the file of a run, so metrics that only an earlier evaluation had stay in it.
    """
    users = per_user["user"]
    values = {k: v.astype(np.float32) for k, v in per_user.items() if k not in NO_METRICS}
    stored = read_values(path)
    if stored is not None and stored.run == run and stored.users == users.tolist():
        earlier = {k: v.astype(np.float32) for k, v in stored.metrics.items()}
        values = {**earlier, **values}
    if users.dtype.kind in "iu" and len(users) and abs(users).max() < 2**31:
        users = users.astype(np.int32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, user=users, run=np.array(run), **values)
