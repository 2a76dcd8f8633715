"""``model.safetensors`` of a run folder: weights, training interactions and feature vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data import csr
from itemfold.data.array_types import Floats
from itemfold.data.weights import is_weighted
from itemfold.errors import ItemfoldError
from itemfold.files import atomic
from itemfold.models import MODELS
from itemfold.models.base import Model
from itemfold.training.run import Run
from itemfold.validation import check_settings

NAME = "model.safetensors"
FEATURES = "features."  # prefix of the tensors that hold feature vectors


def save_tensors(folder: Path, run: Run) -> None:
    """Write the tensors of a run."""
    from safetensors.torch import save_file

    tensors = {k: v.detach().cpu().contiguous() for k, v in run.model.state_dict().items()}
    for column in () if run.features is None else run.features.vectors():
        tensors[f"{FEATURES}{column.name}"] = torch.from_numpy(column.values)
    tensors["train.crow"] = torch.from_numpy(run.interactions.indptr.astype(np.int64))
    tensors["train.col"] = torch.from_numpy(run.interactions.indices.astype(np.int32))
    if is_weighted(run.interactions):
        tensors["train.weight"] = torch.from_numpy(run.interactions.data.astype(np.float32))
    if run.times is not None:
        tensors["train.time"] = torch.from_numpy(run.times.astype(np.float64))
    with atomic(folder / NAME) as path:
        save_file(tensors, path)  # no metadata: its order is not deterministic
        path.chmod((folder / "config.toml").stat().st_mode)  # safetensors makes it private


def take_interactions(tensors: dict[str, Tensor], shape: tuple[int, int]) -> sp.csr_array:
    """Remove the training interactions from the tensors and return them."""
    crow, col = (tensors.pop(f"train.{k}").cpu().numpy() for k in ("crow", "col"))
    weight = tensors.pop("train.weight", None)
    return csr.checked(col, crow, shape, None if weight is None else weight.cpu().numpy())


def take_times(tensors: dict[str, Tensor], count: int) -> Floats | None:
    """Remove the times of the training interactions from the tensors and return them, if any."""
    stored = tensors.pop("train.time", None)
    if stored is None:
        return None
    times: Floats = stored.cpu().numpy()
    if times.shape != (count,) or not np.isfinite(times).all():
        raise ValueError("times must be finite numbers, one for each interaction")
    return times


def take_vectors(tensors: dict[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Remove the feature vectors from the tensors and return them by column."""
    names = [name for name in tensors if name.startswith(FEATURES)]
    return {name.removeprefix(FEATURES): tensors.pop(name).cpu().numpy() for name in names}


def rebuild(
    section: dict[str, Any],
    train: sp.csr_array,
    inductive: bool,
    tensors: dict[str, Tensor],
    device: str,
) -> Model:
    """The model of a config's ``model`` section with stored tensors, ready to score."""
    settings = dict(section)
    name = settings.pop("name")
    if name not in MODELS:
        raise ItemfoldError(
            f"'model' must be one of {', '.join(MODELS)}, got {name!r}; load a custom model with "
            "itemfold --extension FILE.py …"
        )
    kind = MODELS[name]
    model: Model = kind(**check_settings(kind, name, kind.current_settings(settings, warn=False)))
    model.setup(train, inductive=inductive, generator=torch.Generator().manual_seed(0))
    for key, tensor in tensors.items():
        if key not in model.state_dict():
            model.store(key, tensor)
    model.to(device)
    model.load_state_dict(tensors)
    model.restore(train)
    return model.eval()
