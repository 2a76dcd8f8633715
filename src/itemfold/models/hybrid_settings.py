"""Settings of a hybrid: its parts as models, names or tables, half-lives, and rows of the blend."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from itemfold.data.weights import fades, half_life_seconds
from itemfold.errors import ItemfoldError
from itemfold.models.base import Kind, Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.rlae import RLAE
from itemfold.validation import check_settings, is_number, lookup, shown

PartSettings = Model | Mapping[str, Any] | str | None
Rows = tuple[tuple[float, ...], ...]  # of a blend


def make_part(what: str, value: PartSettings, default: str) -> tuple[Model | None, PartSettings]:
    """A part of a hybrid, and its record; `left_open` settings of a network by name stay None."""
    from itemfold.models import MODELS

    if value is None or value == "none":
        return None, "none"
    if isinstance(value, Model):
        return value, value
    if not isinstance(value, str | Mapping):
        raise ItemfoldError(f"'{what}' must be a model, a name or a table, got {shown(value)}")
    given = {"name": value} if isinstance(value, str) else dict(value)
    name = given.pop("name", default)
    kind = lookup(MODELS, what, name)
    given = {key: entry for key, entry in given.items() if entry is not None}
    if what == "gnn" and not is_network(kind):  # before its settings are checked
        return kind(), value
    part = renewed(kind(**check_settings(kind, name, kind.current_settings(given))))
    is_open = {*part.left_open} if what == "gnn" and isinstance(part, EmbeddingModel) else set()
    if {"dim", "pooling"} <= {*given}:  # stored by release 0.2, which started at random
        is_open -= {"start"}
    return part, {"name": name, **part.record(), **dict.fromkeys(is_open - {*given})}


def as_list(others: Any) -> list[PartSettings]:
    """The values of `others`; a single model needs no list, and "none" is an empty one."""
    if others is None or others == "none":
        return []
    return [others] if isinstance(others, str | Mapping | Model) else list(others)


def renewed(part: Model, **settings: Any) -> Model:
    """A new model with the settings of a part, some of them changed."""
    new = type(part)(**{**part.settings, **settings})
    if isinstance(new, RLAE):
        new.compact = True
    return new


def is_network(kind: type[Model]) -> bool:
    """Whether a model can be the network: trained vectors, and fold-in of unseen users."""
    trained = kind.kind is not Kind.CLOSED_FORM
    return issubclass(kind, EmbeddingModel) and kind.inductive and trained


def networks() -> list[str]:
    """The names of the models that can be the network."""
    from itemfold.models import MODELS

    return [name for name, model in MODELS.items() if is_network(model)]


def shown_part(value: Any) -> str:
    """The name of a part in a message."""
    if isinstance(value, Model):
        return type(value).__name__
    return repr(value["name"] if isinstance(value, Mapping) else value)


def check_half_life(name: str, value: Any) -> None:
    """Raise unless a value is a duration, "never" or None."""
    if not fades(value):
        return
    try:
        half_life_seconds(value)
    except ItemfoldError:
        raise ItemfoldError(
            f"'{name}' must be a duration such as 12h, 30d or 1y, or never, got {value!r}"
        ) from None


def check_blend(name: str, blend: Any, parts: int) -> Rows | None:
    """Checked rows of 3 + ``parts`` numbers, or None; the first row has history length 0.

    Rows of release 0.2 lack recent popularity and the weight of the first part, which was 1.
    """
    if blend is None:
        return None
    rows = blend if isinstance(blend, list | tuple) else ()
    rows = [tuple(row) if isinstance(row, list | tuple) else () for row in rows]
    rows = [(*row[:2], 0.0, 1.0, *row[2:]) if len(row) == parts + 1 else row for row in rows]
    valid = bool(rows) and all(
        len(row) == parts + 3 and all(is_number(value) and isfinite(value) for value in row)
        for row in rows
    )
    starts = [row[0] for row in rows] if valid else []
    if not valid or starts != sorted({0.0, *starts}):
        raise ItemfoldError(
            f"'{name}' must be rows of (minimum history length, weight of popularity, weight of "
            f"recent popularity, weight of each of {parts} parts) that begin with length 0, "
            f"got {blend!r}"
        )
    return tuple(tuple(float(value) for value in row) for row in rows)
