"""Training with several ranks: which components can, and a model of the first rank for all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import scipy.sparse as sp
import torch

from itemrec import ranks
from itemrec.errors import ItemrecError, ItemrecWarning
from itemrec.models import MODELS
from itemrec.models.base import Kind, Model
from itemrec.models.hybrid import Hybrid
from itemrec.sampling import Sampler

T = TypeVar("T")
LEAST = 8  # columns of a rank: gathering a row of less than 32 bytes takes as long as one of 32


def join_ranks(model: Model, sampler: Sampler, device: str) -> None:
    """Find the other ranks, unless the components cannot be trained by several."""
    if ranks.wanted_size() == 1:
        return
    if model.kind is not Kind.CLOSED_FORM:
        check_model(model)
        check_sampler(sampler)
    ranks.start(device)
    model.sharded = ranks.size() > 1 and model.kind is not Kind.CLOSED_FORM


def check_model(model: Model) -> None:
    """Raise if a model mixes the columns of its vectors, or has fewer of them than ranks."""
    part = model.gnn if isinstance(model, Hybrid) else model
    if not is_by_columns(type(part)):
        able = ", ".join(name for name, kind in MODELS.items() if is_by_columns(kind))
        name = "gnn" if part is not model else "model"
        raise ItemrecError(
            f"'{name}' must compute each column of its vectors alone to be trained by several "
            f"processes: {able}; or a closed form, such as ease; got {type(part).__name__}"
        )
    count, dim = ranks.wanted_size(), model.settings.get("dim")
    if dim is not None and dim < count:
        raise ItemrecError(f"'dim' must be at least the number of processes, {count}, got {dim}")
    if dim is not None and dim < LEAST * count and ranks.is_first():
        text = f"{dim} columns are few for {count} processes: each gains from {LEAST} or more"
        warnings.warn(text, ItemrecWarning, stacklevel=2)


def is_by_columns(kind: type[Model]) -> bool:
    """Whether a class itself, not one that it is derived from, says that it is by columns."""
    return vars(kind).get("by_columns", False) is True


def check_sampler(sampler: Sampler) -> None:
    """Raise if the class that scores the lists does not say that it sums over ranks."""
    scoring = next(kind for kind in type(sampler).__mro__ if "score" in vars(kind))
    if not vars(scoring).get("by_columns", False):
        raise ItemrecError(
            f"'negatives' must sum its products over the ranks to be used by several processes: "
            f"{type(sampler).__name__} does not say 'by_columns'"
        )


def solved_on_first(model: Model, train: sp.csr_array, solve: Callable[[], T]) -> T:
    """The result of a computation on the first rank that fits a model, and the model on all."""
    found, device = ranks.from_first(solve), model.device
    if ranks.size() == 1:
        return found
    settings = ranks.from_first(lambda: model.settings)
    model.take({k: v for k, v in settings.items() if model.settings[k] != v})
    for name, (kind, shape) in ranks.from_first(lambda: tensors_of(model)).items():
        tensor = torch.empty(shape, dtype=getattr(torch, kind), device=device)
        if ranks.is_first():
            tensor.copy_(model.state_dict()[name])
        ranks.broadcast(tensor, 0)
        if not ranks.is_first():
            put(model, name, tensor)
    if not ranks.is_first():
        model.restore(train)
    model.eval()
    return found


def tensors_of(model: Model) -> dict[str, Any]:
    """Type and shape of everything that a model stores."""
    return {
        name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
        for name, tensor in model.state_dict().items()
    }


def put(model: Model, name: str, tensor: torch.Tensor) -> None:
    """Replace a parameter or a buffer."""
    own = dict(model.named_parameters()).get(name)
    if own is None:
        model.store(name, tensor)
    else:
        own.data = tensor
