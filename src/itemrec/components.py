"""Components by name: a signature is a configuration schema, and nothing is declared twice."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from itemrec.errors import ItemrecError


def schema(component: Callable[..., Any]) -> dict[str, Any]:
    """Settings of a component with their defaults: its parameters that have one.

    >>> def loss(pos, neg, *, tau=1.0): ...
    >>> schema(loss)
    {'tau': 1.0}
    """
    parameters = inspect.signature(component).parameters.values()
    return {
        p.name: p.default
        for p in parameters
        if p.default is not p.empty and not p.name.endswith("mask")
    }


def lookup(table: Mapping[str, Any], what: str, name: str) -> Any:
    """The entry of a table, or an error that lists the choices."""
    if name not in table:
        raise ItemrecError(f"'{what}' must be one of {', '.join(table)}, got {name!r}")
    return table[name]


def check_settings(
    component: Callable[..., Any], what: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings with their types set right, or an error that lists the known ones."""
    known = schema(component)
    parameters = inspect.signature(component).parameters
    out = {}
    for key, value in settings.items():
        if key not in known:
            choices = ", ".join(known) or "none"
            raise ItemrecError(f"'{what}' has no setting {key!r}; its settings are: {choices}")
        out[key] = like(known[key], value, f"{what}.{key}", str(parameters[key].annotation))
    return out


def like(default: Any, value: Any, name: str, annotation: str = "") -> Any:
    """The value as its default's type: 1 becomes 1.0 for a float, a list becomes a tuple.

    A setting may allow both a number and a word such as "auto", or have no default value at all;
    then its annotation says what it takes.
    """
    if isinstance(value, np.generic):
        value = value.item()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not abs(value) < 1e300:
        raise ItemrecError(f"'{name}' must be a finite number, got {value!r}")
    if isinstance(value, str) and ("str" in annotation or "Literal" in annotation):
        return value
    if number and isinstance(default, str) and ("float" in annotation or "int" in annotation):
        return value
    if default is None:
        if value is None:
            return None
        lists = dict.fromkeys(("tuple", "list", "Sequence"), ())
        known: dict[str, Any] = {"bool": False, "float": 0.0, "int": 0, "str": "", **lists}
        kinds = [known[word] for word in re.findall(r"\w+", annotation) if word in known]
        return like(kinds[0], value, name, annotation) if kinds else value
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ItemrecError(f"'{name}' must be true or false, got {value!r}")
    elif isinstance(default, float):
        if not number:
            raise ItemrecError(f"'{name}' must be a number, got {value!r}")
        return float(value)
    elif isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ItemrecError(f"'{name}' must be a whole number, got {value!r}")
    elif isinstance(default, str):
        if not isinstance(value, str):
            raise ItemrecError(f"'{name}' must be text, got {value!r}")
    elif isinstance(default, tuple):
        if not isinstance(value, list | tuple):
            raise ItemrecError(f"'{name}' must be a list, got {value!r}")
        return tuple(value)
    return value


def named(table: dict[str, Any], component: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A component as a config section: its name in the table and its settings."""
    for name, entry in table.items():
        if entry is component:
            return {"name": name, **settings}
    return {"name": getattr(component, "__name__", type(component).__name__), **settings}


def settings_of(sampler: Any) -> dict[str, Any]:
    """The fields of a sampler."""
    return {f.name: getattr(sampler, f.name) for f in fields(sampler)}


def unbind(loss: Callable[..., Any]) -> tuple[Any, dict[str, Any]]:
    """A loss and its settings: those bound to it, and the defaults of the others."""
    if isinstance(loss, functools.partial):
        function, settings = unbind(loss.func)
        return function, {**settings, **loss.keywords}
    return loss, schema(loss)


def bind(loss: Callable[..., Any], settings: Mapping[str, Any]) -> Callable[..., Any]:
    """A loss with these settings; ours check them, and are bound by being called without scores."""
    ours = getattr(loss, "bindable", False)
    out: Callable[..., Any] = loss(**settings) if ours else functools.partial(loss, **settings)
    return out
