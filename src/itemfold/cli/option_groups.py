"""Groups of options that several commands share, declared as fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Expand parameters that are dataclasses to one option per field.

    Typer reads the flat signature; the command itself is called with the filled dataclasses. A
    field may be a dataclass again. A class attribute ``panel`` names the panel of the options.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    ...     height: int = 2
    >>> @with_options
    ... def area(unit: str, size: Size) -> None:
    ...     print(size.width * size.height, unit)
    >>> list(inspect.signature(area).parameters)
    ['unit', 'width', 'height']
    >>> area(unit="m", width=5)
    10 m
    """
    hints = get_type_hints(command, include_extras=True)
    flat: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command).parameters.values():
        for option in _flatten(parameter.name, hints[parameter.name], parameter.default):
            if option.name in flat:
                raise TypeError(f"{command.__name__}: two options are called {option.name!r}")
            flat[option.name] = option
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def call(**given: Any) -> None:
        filled = {name: _fill(group, given) for name, group in groups.items()}
        command(**given, **filled)

    call.__signature__ = inspect.Signature(list(flat.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {name: option.annotation for name, option in flat.items()}
    return call


def _flatten(name: str, annotation: Any, default: Any) -> Iterator[inspect.Parameter]:
    """A plain parameter as it is, a dataclass as its fields."""
    if not is_dataclass(annotation):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, kind, default=default, annotation=annotation)
        return
    hints = get_type_hints(annotation, include_extras=True)
    for field in fields(annotation):
        shown = _in_panel(hints[field.name], getattr(annotation, "panel", None))
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield from _flatten(field.name, shown, default)


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """An annotated option in this help panel, unless it names another panel."""
    info = getattr(annotation, "__metadata__", (None,))[0]
    if panel is None or info is None or info.rich_help_panel is not None:
        return annotation
    info = copy(info)
    info.rich_help_panel = panel
    return Annotated[annotation.__origin__, info]


def _fill(group: Any, given: dict[str, Any]) -> Any:
    """A dataclass filled with its options, which are removed from ``given``."""
    hints = get_type_hints(group)
    values = {}
    for field in fields(group):
        if is_dataclass(hints[field.name]):
            values[field.name] = _fill(hints[field.name], given)
        elif field.name in given:
            values[field.name] = given.pop(field.name)
    return group(**values)
