"""Validation of values and settings: each error names the setting, the rule and the value.

The signature of a component is its configuration schema.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from types import FunctionType
from typing import Any

from itemfold.errors import ItemfoldError

# --- values --------------------------------------------------------------------------------------


def positive_integer(name: str, value: Any) -> int:
    """The value as an int; raise if it is not an integer of at least 1.

    >>> positive_integer("k", 0)
    Traceback (most recent call last):
    itemfold.errors.ItemfoldError: 'k' must be a positive integer, got 0
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ItemfoldError(f"'{name}' must be a positive integer, got {value!r}")
    return int(value)


def positive_integers(**values: Any) -> None:
    """Raise if a value is not an integer of at least 1."""
    for name, value in values.items():
        positive_integer(name, value)


def positive(**values: Any) -> None:
    """Raise if a value is not a number above 0."""
    for name, value in values.items():
        if not (is_number(value) and 0 < value < float("inf")):
            raise ItemfoldError(f"'{name}' must be a positive number, got {value!r}")


def at_least_zero(**values: Any) -> None:
    """Raise if a value is not a number of at least 0."""
    for name, value in values.items():
        if not (is_number(value) and 0 <= value < float("inf")):
            raise ItemfoldError(f"'{name}' must be a number of at least 0, got {value!r}")


def share_below_one(**values: Any) -> None:
    """Raise if a value is not a number in [0, 1)."""
    for name, value in values.items():
        if not (is_number(value) and 0 <= value < 1):
            raise ItemfoldError(f"'{name}' must be at least 0 and below 1, got {value!r}")


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise if a value is not one of the choices.

    >>> one_of("precision", "half", ("auto", "full"))
    Traceback (most recent call last):
    itemfold.errors.ItemfoldError: 'precision' must be auto or full, got 'half'
    """
    if value not in choices:
        *most, last = choices
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ItemfoldError(f"'{name}' must be {listed}, got {value!r}")


def shown(value: Any, most: int = 80) -> str:
    """The repr of a value for an error message, on one line and cut to ``most`` characters.

    >>> shown([1] * 100, 12)
    '[1, 1, 1, 1…'
    """
    if type(value).__name__ in ("DataFrame", "LazyFrame", "Series"):  # its repr is a table
        return f"a {type(value).__module__.split('.')[0]} {type(value).__name__}"
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- settings against a signature ----------------------------------------------------------------

cached_signature = functools.lru_cache(maxsize=256)(inspect.signature)


def schema(component: Callable[..., Any]) -> dict[str, Any]:
    """The settings of a component with their defaults: its parameters that have a default.

    >>> def loss(pos, neg, *, tau=1.0): ...
    >>> schema(loss)
    {'tau': 1.0}
    """
    return {
        p.name: p.default
        for p in _parameters(component).values()
        if p.default is not p.empty and not p.name.endswith("mask")
    }


def _parameters(component: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a component; cached, since suites ask for the same ones very often."""
    is_lasting = isinstance(component, type | FunctionType)
    return (cached_signature if is_lasting else inspect.signature)(component).parameters


def lookup(table: Mapping[str, Any], what: str, name: str) -> Any:
    """The entry of a table; raise with the list of choices if there is none."""
    check_name(table, what, name)
    return table[name]


def check_name(table: Mapping[str, Any], what: str, name: str) -> None:
    """Raise with the list of choices if a table has no entry of this name.

    >>> check_name({"ease": 1, "mf": 2}, "model", "eas")
    Traceback (most recent call last):
    itemfold.errors.ItemfoldError: 'model' must be one of ease, mf, got 'eas'; did you mean 'ease'?
    """
    if name not in table:
        hint = did_you_mean(name, table)
        raise ItemfoldError(f"'{what}' must be one of {', '.join(table)}, got {name!r}{hint}")


def did_you_mean(name: Any, choices: Iterable[str]) -> str:
    """The end of a message that suggests the most similar name, "" if none is similar.

    >>> did_you_mean("play.csv", ["plays.csv", "films.csv"]), did_you_mean("x", ["plays.csv"])
    ("; did you mean 'plays.csv'?", '')
    """
    from difflib import get_close_matches

    near = get_close_matches(str(name).lower(), choices, 1, 0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def name_of(table: Mapping[str, Any], component: Any) -> str:
    """The name of a component in a table, or its own if it is not there."""
    names = (name for name, entry in table.items() if entry is component)
    return next(names, None) or str(component.__name__)


def check_settings(
    component: Callable[..., Any], what: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings converted to their types; raise if one is unknown or has the wrong type."""
    known = schema(component)
    parameters = _parameters(component)
    out = {}
    for key, value in settings.items():
        if key not in known:
            choices = ", ".join(known) or "none"
            raise ItemfoldError(f"'{what}' has no setting {key!r}; its settings are: {choices}")
        out[key] = typed(known[key], value, f"{what}.{key}", str(parameters[key].annotation))
    return out


LISTS: dict[str, Any] = dict.fromkeys(("tuple", "list", "Sequence"), ())
EXAMPLES: dict[str, Any] = {"bool": False, "float": 0.0, "int": 0, "str": "", **LISTS}


def typed(default: Any, value: Any, name: str, annotation: str = "") -> Any:
    """The value converted to the type of its default: 1 to 1.0 for a float, a list to a tuple.

    The annotation decides if the default is None, or if a setting takes both numbers and text
    such as "auto".
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:  # without an import
        value = value.item()
    if is_number(value) and not abs(value) < 1e300:
        raise ItemfoldError(f"'{name}' must be a finite number, got {value!r}")
    if isinstance(value, str) and ("str" in annotation or "Literal" in annotation):
        return value
    if "Model" in annotation:  # a model within a model, which checks it
        return value
    if is_number(value) and isinstance(default, str) and re.search("float|int", annotation):
        return value
    if default is None:
        if value is None:
            return None
        words = re.findall(r"\w+", annotation)
        kinds = [EXAMPLES[word] for word in words if word in EXAMPLES]
        return typed(kinds[0], value, name, annotation) if kinds else value
    return _as_type_of(default, value, name)


def _as_type_of(default: Any, value: Any, name: str) -> Any:
    kinds: dict[type, tuple[str, bool]] = {
        bool: ("true or false", isinstance(value, bool)),
        float: ("a number", is_number(value)),
        int: ("a whole number", isinstance(value, int) and not isinstance(value, bool)),
        str: ("text", isinstance(value, str)),
        tuple: ("a list", isinstance(value, list | tuple)),
    }
    kind = type(default)
    if kind not in kinds:
        return value
    rule, fits = kinds[kind]
    if not fits:
        raise ItemfoldError(f"'{name}' must be {rule}, got {value!r}")
    return kind(value) if kind in (float, tuple) else value
