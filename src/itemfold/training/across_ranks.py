"""Training with several ranks: checks of the components, and closed forms fitted by the first."""

from __future__ import annotations

import warnings
from typing import Any

import scipy.sparse as sp
import torch

from itemfold import ranks
from itemfold.errors import ItemfoldError, ItemfoldWarning
from itemfold.models import MODELS
from itemfold.models.base import Kind, Model
from itemfold.sampling import Sampler

MIN_COLUMNS = 8  # per rank: gathering a shorter row takes as long as one of 32 bytes


def join_ranks(model: Model, sampler: Sampler, device: str) -> None:
    """Check that the components support several ranks, and connect to the other ranks."""
    if ranks.wanted_size() == 1:
        return
    if model.kind is not Kind.CLOSED_FORM:
        check_model(model)
        check_sampler(sampler)
    ranks.start(device)


def sharded(model: Model) -> Model:
    """Mark a new model as sharded: each rank holds some columns of its parameters."""
    if model.network.kind is not Kind.CLOSED_FORM:
        model.sharded = model.network.sharded = ranks.size() > 1
    return model


def check_model(model: Model) -> None:
    """Raise if a model mixes the columns of its vectors, or has fewer columns than ranks."""
    part = model.network
    for other in model.modules():
        trained = isinstance(other, Model) and other.kind is not Kind.CLOSED_FORM
        if trained and other not in (model, part):
            raise ItemfoldError(
                f"'others' must be closed forms to be trained with several processes, "
                f"got {type(other).__name__}"
            )
    if part.kind is Kind.CLOSED_FORM:  # a hybrid without a network
        return
    if not is_by_columns(type(part)):
        able = ", ".join(name for name, kind in MODELS.items() if is_by_columns(kind))
        name = "gnn" if part is not model else "model"
        raise ItemfoldError(
            f"'{name}' must compute each column of its vectors independently to be trained with "
            f"several processes: use {able}, or a closed form such as ease; "
            f"got {type(part).__name__}"
        )
    count, dim = ranks.wanted_size(), part.settings.get("dim")
    if dim is not None and dim < count:
        raise ItemfoldError(f"'dim' must be at least the number of processes, {count}, got {dim}")
    if dim is not None and dim < MIN_COLUMNS * count and ranks.is_first():
        text = f"{dim} columns are few for {count} processes: use at least {MIN_COLUMNS} for each"
        warnings.warn(text, ItemfoldWarning, stacklevel=2)


def is_by_columns(kind: type[Model]) -> bool:
    """Whether a class itself, not a base class, declares `by_columns`."""
    return vars(kind).get("by_columns", False) is True


def check_sampler(sampler: Sampler) -> None:
    """Raise if the class that scores the lists does not declare that it sums over ranks."""
    scoring = next(kind for kind in type(sampler).__mro__ if "score" in vars(kind))
    if not vars(scoring).get("by_columns", False):
        raise ItemfoldError(
            f"'negatives' must sum its products over the ranks to work with several processes: "
            f"{type(sampler).__name__} does not declare 'by_columns'"
        )


def fit_on_first(model: Model, train: sp.csr_array) -> None:
    """Fit a closed form on the first rank, and send its tensors to the others."""

    def fit() -> None:
        model.solve(train)

    ranks.from_first(fit)
    if ranks.size() == 1:
        model.eval()
        return
    for name, (kind, shape) in ranks.from_first(lambda: stored_shapes(model)).items():
        tensor = torch.empty(shape, dtype=getattr(torch, kind), device=model.device)
        if ranks.is_first():
            tensor.copy_(model.state_dict()[name])
        ranks.broadcast(tensor, 0)
        if not ranks.is_first():
            replace_tensor(model, name, tensor)
    if not ranks.is_first():
        model.restore(train)
    model.eval()


def stored_shapes(model: Model) -> dict[str, Any]:
    """Type and shape of every tensor that a model stores."""
    return {
        name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
        for name, tensor in model.state_dict().items()
    }


def replace_tensor(model: Model, name: str, tensor: torch.Tensor) -> None:
    """Replace a parameter or a buffer."""
    own = dict(model.named_parameters()).get(name)
    if own is None:
        model.store(name, tensor)
    else:
        own.data = tensor
