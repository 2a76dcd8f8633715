"""Per-user values of runs: one small file per run, which paired tests read."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats
from itemfold.errors import ItemfoldError
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


def check_means(means: Mapping[str, float], values: UserValues, where: str) -> None:
    """Raise if the stored means of a run do not match its per-user values.

    Values are stored as float32, and older files have the users of one evaluation only, so a mean
    may differ by rounding.
    """
    for metric, of_users in values.metrics.items():
        kept = of_users[np.isfinite(of_users)]
        if metric not in means or not len(kept):
            continue
        expected = float(kept.mean())
        if abs(means[metric] - expected) > 1e-4 * max(abs(expected), 0.01):
            raise ItemfoldError(
                f"{where}: {metric} of run {values.run} is {means[metric]:.6g}, but the mean of "
                f"its users' values is {expected:.6g}: restore the line, or delete it and run "
                "`itemfold reproduce` again"
            )


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
