"""A model remembers the arguments of its constructor: they are its settings."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from itemfold.errors import ItemfoldError
from itemfold.validation import name_of, typed


class RecordsSettings:
    """A class whose instances know their settings; `Model` explains the attributes."""

    moved: ClassVar[Mapping[str, str]] = MappingProxyType({})  # old setting → path of today
    settings: dict[str, Any] = {}  # noqa: RUF012 - replaced by each constructor, never modified

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Record every constructor's arguments as the model's settings."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            record_settings(cls)

    def extra_repr(self) -> str:
        """The settings, which torch writes between the brackets of a model.

        Returns:
            The settings as arguments of the constructor.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.EASE(l2=50.0)
            EASE(l2=50.0, form='auto', neighbours=200)
        """
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

    def fresh(self) -> Self:
        """A new model with the same settings, not yet set up.

        Returns:
            The model; models within it are new, too.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.EASE(l2=50.0).fresh()
            EASE(l2=50.0, form='auto', neighbours=200)
        """
        return type(self)(**{name: _fresh(value) for name, value in self.settings.items()})

    def record(self) -> dict[str, Any]:
        """The settings as a run's configuration has them; a model within is a table with its name.

        Returns:
            Settings by name.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.Hybrid(gnn=ir.models.LightGCN(dim=8)).record()["gnn"]["dim"]
            8
        """
        return {name: _recorded(value) for name, value in self.settings.items()}

    @classmethod
    def current_settings(cls, settings: Mapping[str, Any], *, warn: bool = True) -> dict[str, Any]:
        """Settings under the names of today.

        Args:
            settings: Settings by name, of which some may have old names.
            warn: Whether to warn about each of these.

        Returns:
            The settings; those of a model within are in a table of their own.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.Hybrid.current_settings({"linear_l2": 50.0}, warn=False)
            {'linear': {'l2': 50.0}}
        """
        out = {name: value for name, value in settings.items() if name not in cls.moved}
        for old in settings.keys() & cls.moved.keys():
            part, _, name = cls.moved[old].partition(".")
            if warn:
                warnings.warn(
                    f"'{old}' is now '{cls.moved[old]}'; the old name still works",
                    FutureWarning,
                    stacklevel=3,
                )
            inner = out.get(part, {})
            if not isinstance(inner, str | Mapping):
                raise ItemfoldError(f"'{old}' cannot be combined with a model as '{part}'")
            inner = {"name": inner} if isinstance(inner, str) else inner
            out[part] = {**inner, name: settings[old]}
        return out


def record_settings(cls: type[Any]) -> None:
    """Let the constructor of a class store its arguments in `settings`, and check their types."""
    original = cls.__init__
    signature = inspect.signature(original)

    def recording(self: Any, *args: Any, **given: Any) -> None:
        if "settings" not in self.__dict__:  # the outermost constructor determines the settings
            bound = signature.bind(self, *args, **given)
            bound.apply_defaults()
            self.settings = dict(list(bound.arguments.items())[1:])
            for name, parameter in signature.parameters.items():
                if parameter.default is not parameter.empty:
                    value = self.settings[name]
                    typed(parameter.default, value, name, str(parameter.annotation))
                if parameter.kind is parameter.VAR_POSITIONAL:
                    raise ItemfoldError(f"{cls.__name__}: settings need names, '*{name}' has none")
                if parameter.kind is parameter.VAR_KEYWORD:
                    self.settings |= self.settings.pop(name)
        original(self, *args, **given)

    recording.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__ = recording


def _fresh(value: Any) -> Any:
    if isinstance(value, RecordsSettings):
        return value.fresh()
    return tuple(map(_fresh, value)) if isinstance(value, list | tuple) else value


def _recorded(value: Any) -> Any:
    from itemfold.models import MODELS

    if isinstance(value, RecordsSettings):
        return {"name": name_of(MODELS, type(value)), **value.record()}
    return tuple(map(_recorded, value)) if isinstance(value, list | tuple) else value
