"""Remove one user from a run folder: the id, the history, own vectors and own metrics."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.array_types import Bools
from itemfold.errors import ItemfoldError, UnknownIdError
from itemfold.files import locked, write_text
from itemfold.models.base import Model
from itemfold.training.checksums import write_checksums
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder, save_per_user
from itemfold.training.stored_ids import save_ids
from itemfold.training.stored_tensors import rebuild, save_tensors

FORGOTTEN = "forgotten"  # number of removed users, in ``metrics.json``
DELETED_FILES = ("state.pt", ".*.tmp")  # resuming would need the data of the user
NOTE = (
    "A user was removed with `itemfold forget`: weights that all users share still reflect "
    "their data until the run is trained again."
)


def forget_user(folder: str | Path, user: str) -> int:
    """Remove a user from a run folder; the folder is replaced as a whole.

    This removes the user's id, training history with times, vectors and test metrics, and
    ``state.pt``. It keeps weights that all users share, such as item vectors or an item–item
    matrix, counts, and averaged metrics. To remove the user's influence on those, train again
    without the user's data.

    Args:
        folder: The folder of a finished run.
        user: The id of the user.

    Returns:
        The number of interactions that were removed.

    Raises:
        UnknownIdError: The run does not know the user.
        ItemfoldError: The run cannot be loaded, is in use, or has no other user.
    """
    path = Path(folder).resolve()  # of a link, the folder that it points to
    found = RunFolder(path)
    if path.is_dir() and found.is_usable and not found.is_finished:
        raise ItemfoldError(f"{folder} is not finished: wait for its training, or delete it")
    run = Run.load(path)
    row = int(run.user_ids.index([user])[0])
    in_metrics = _is_user(run, user)
    if row < 0 and not in_metrics.any():
        raise UnknownIdError(f"{folder} has no user {user!r}")
    if row >= 0 and len(run.user_ids) == 1:
        raise ItemfoldError(f"{user!r} is the only user of {folder}: delete the folder instead")
    left = run if row < 0 else _without_row(run, row)
    columns = {name: values[~in_metrics] for name, values in run.per_user.items()}
    metrics = {**run.metrics, FORGOTTEN: run.metrics.get(FORGOTTEN, 0) + 1}
    metrics["notes"] = [*(note for note in run.notes if note != NOTE), NOTE]
    _replace_folder(path, replace(left, per_user=columns, metrics=metrics))
    return int(run.interactions.nnz - left.interactions.nnz)


def _is_user(run: Run, user: str) -> Bools:
    """Mask of the rows of the per-user metrics that belong to this user."""
    users = run.per_user.get("user", np.empty(0, dtype=object))
    return np.array([str(one).strip() == user.strip() for one in users], dtype=bool)


def _without_row(run: Run, row: int) -> Run:
    """The run without the user of a row."""
    kept = np.arange(len(run.user_ids)) != row
    train = sp.csr_array(run.interactions[np.flatnonzero(kept)])
    is_kept = np.repeat(kept, np.diff(run.interactions.indptr))
    inductive = run.protocol == "inductive"
    tensors = _tensors_without_row(run, train, row, inductive)
    model = rebuild(run.config["model"], train, inductive, tensors, "cpu")
    model.replace_interactions(train)
    return replace(
        run,
        model=model,
        user_ids=run.user_ids.take(np.flatnonzero(kept)),
        interactions=train,
        times=None if run.times is None else run.times[is_kept],
    )


def _tensors_without_row(
    run: Run, train: sp.csr_array, row: int, inductive: bool
) -> dict[str, Tensor]:
    """The stored tensors of the model, without the row of the user.

    A parameter has a row per user if it is smaller when one user is missing; users come before
    items.
    """

    def shapes(matrix: sp.csr_array) -> dict[str, torch.Size]:
        model: Model = run.model.fresh()
        model.setup(matrix, inductive=inductive, generator=torch.Generator().manual_seed(0))
        return {name: tensor.shape for name, tensor in model.state_dict().items()}

    before, after = shapes(run.interactions), shapes(train)
    out = {}
    for name, tensor in run.model.state_dict().items():
        is_vectors = name not in before and name.rpartition(".")[2] == "user_vectors"
        if is_vectors or before.get(name) != after.get(name):
            tensor = torch.cat([tensor[:row], tensor[row + 1 :]])
        out[name] = tensor.contiguous()
    return out


def _replace_folder(path: Path, run: Run) -> None:
    """Write the run next to its folder, check that it loads, and swap the two folders."""
    draft, old = (path.with_name(f".{path.name}.{what}") for what in ("forget", "old"))
    with locked(path, wait=False):
        for leftover in (draft, old):  # of a killed process
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            shutil.copytree(path, draft, ignore=shutil.ignore_patterns(*DELETED_FILES))
            _write(draft, run)
            Run.load(draft)
            path.rename(old)
            try:
                draft.rename(path)
            except OSError:
                old.rename(path)
                raise
        except OSError as error:
            why = error.strerror or error
            raise ItemfoldError(f"{path}: cannot be replaced ({why}); it is unchanged") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old)


def _write(folder: Path, run: Run) -> None:
    """Rewrite the files that contain user data."""
    save_tensors(folder, run)
    save_ids(folder, run)
    save_per_user(folder, run)
    metrics: dict[str, Any] = run.metrics
    text = json.dumps(metrics, indent=1) + "\n"
    write_checksums(folder, text)
    write_text(folder / "metrics.json", text)
