"""A function of another library as a model, so that it can be evaluated like one."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.splitting.split import Split
from itemfold.errors import ItemfoldError
from itemfold.models.base import Kind, Model
from itemfold.validation import shown


class ScoringFunction(Model):
    """Scores of a function of histories and training rows."""

    kind = Kind.CLOSED_FORM
    function: Callable[[sp.csr_array, npt.NDArray[np.int64]], Any]

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """The scores of the function, checked."""
        found: Any = self.function(history, users)
        if isinstance(found, Tensor):
            found = found.detach().cpu().numpy()
        if hasattr(found, "toarray"):  # a sparse matrix
            found = found.toarray()
        try:
            values = np.array(found, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ItemfoldError(f"'run' must return scores, got {shown(found)}") from error
        if values.shape != history.shape:
            raise ItemfoldError(
                f"'run' must return scores of shape {history.shape} (users, items), "
                f"got {values.shape}"
            )
        if np.isnan(values).any():
            raise ItemfoldError("'run' must return numbers as scores, got NaN")
        return torch.from_numpy(values)


def scorer_of_function(function: Any, split: Split) -> Model:
    """A model that scores with a function; of lists, which are not scored, one without it."""
    if callable(function) and not _takes(function, 2):
        raise ItemfoldError(
            "'run' must be a function of two arguments, a sparse matrix with the history of each "
            f"user in a row and the numbers of their training rows, got {shown(function)}"
        )
    out = ScoringFunction()
    out.n_users, out.n_items = split.train.shape
    out.store("nothing", torch.empty(0))
    out.function = function
    return out


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; True if that is not known."""
    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # of some functions in C
        return True
    return True
