"""A strategy per kind of training: descent, closed form, hybrid.

Each has a function ``fit(settings, split, state, context) → FittedModel`` and a state of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from itemfold.models.base import Kind
from itemfold.training.fitted import FittedModel
from itemfold.training.state import DescentState
from itemfold.training.strategies import closed_form, descent, hybrid
from itemfold.training.strategies.hybrid_state import HybridState


@dataclass(frozen=True)
class Strategy:
    """How a kind of model is trained, and the state that an interrupted training continues from."""

    fit: Callable[..., FittedModel]
    state: type[Any]


DESCENT = Strategy(descent.fit, DescentState)
STRATEGIES = {
    Kind.LIST_LOSS: DESCENT,
    Kind.OWN_OBJECTIVE: DESCENT,
    Kind.CLOSED_FORM: Strategy(closed_form.fit, closed_form.ClosedFormState),
    Kind.HYBRID: Strategy(hybrid.fit, HybridState),
}
