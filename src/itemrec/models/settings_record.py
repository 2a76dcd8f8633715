"""A model remembers the arguments of its constructor: they are its settings."""

from __future__ import annotations

import inspect
from typing import Any

from itemrec.errors import ItemrecError
from itemrec.validation import typed


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
                    raise ItemrecError(f"{cls.__name__}: settings need names, '*{name}' has none")
                if parameter.kind is parameter.VAR_KEYWORD:
                    self.settings |= self.settings.pop(name)
        original(self, *args, **given)

    recording.__signature__ = signature  # type: ignore[attr-defined]
    cls.__init__ = recording
