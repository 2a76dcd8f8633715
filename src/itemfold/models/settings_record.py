"""A model remembers the arguments of its constructor: they are its settings."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from itemfold.errors import ItemfoldError
from itemfold.validation import name_of, shown, typed


class RecordsSettings:
    """A class whose instances know their settings; `Model` explains the attributes."""

    moved: ClassVar[Mapping[str, str]] = MappingProxyType({})  # old setting → path of today
    settings: dict[str, Any] = {}  # noqa: RUF012 - replaced by each constructor, never modified

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Record every constructor's arguments as the model's settings."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            record_settings(cls)
        if "fit" in cls.__dict__ and "solve" not in cls.__dict__:  # up to release 0.2
            warnings.warn(
                f"{cls.__name__}: 'fit' is now 'solve'; the old name still works",
                FutureWarning,
                stacklevel=2,
            )
            cls.solve = cls.__dict__["fit"]  # type: ignore[attr-defined]
            del cls.fit  # type: ignore[attr-defined]

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

    def __sklearn_clone__(self) -> Self:
        return self.fresh()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them.

        Args:
            deep: Also list the settings of models within, as `gnn__dim`.

        Returns:
            Settings by name, as they were given.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.EASE(l2=50.0).get_params()
            {'l2': 50.0, 'form': 'auto', 'neighbours': 200}
            >>> ir.models.Hybrid(gnn=ir.models.LightGCN(dim=8)).get_params()["gnn__dim"]
            8
        """
        out = dict(self.settings)
        for name, value in self.settings.items():
            if deep and isinstance(value, RecordsSettings):
                out |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return out

    def set_params(self, **params: Any) -> Self:
        """Change settings; a fitted model is then no longer fitted.

        Args:
            **params: Settings by name; those of a model within as `gnn__dim`.

        Returns:
            The model itself.

        Raises:
            ItemfoldError: A setting is unknown or invalid; the model is left unchanged.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.EASE().set_params(l2=50.0)
            EASE(l2=50.0, form='auto', neighbours=200)
        """
        if not params:
            return self
        settings, within = dict(self.settings), dict[str, dict[str, Any]]()
        for name, value in params.items():
            part, _, inner = name.partition("__")
            if part not in settings:
                raise ItemfoldError(
                    f"{type(self).__name__} has no setting {part!r}; its settings are: "
                    f"{', '.join(settings) or 'none'}"
                )
            if inner:
                within.setdefault(part, {})[inner] = value
            else:
                settings[part] = value
        for part, changes in within.items():
            if not isinstance(settings[part], RecordsSettings):
                raise ItemfoldError(
                    f"'{part}__{next(iter(changes))}' needs a model as '{part}', got "
                    f"{shown(settings[part])}"
                )
            settings[part] = settings[part].fresh().set_params(**changes)
        changed = type(self)(**settings)
        vars(self).clear()
        vars(self).update(vars(changed))
        return self

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
