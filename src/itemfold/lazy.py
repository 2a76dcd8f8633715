"""Lazy imports, so that ``--help`` does not wait for torch.

A package imports its public names under ``if TYPE_CHECKING:``, where type checkers and editors find
them; `lazy_names` reads the same list and imports each name on first use (PEP 562).
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names are imported on first use."""
    module = sys.modules[package]
    homes = _homes(inspect.getsource(module))

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        if home == package:  # a submodule
            found: Any = import_module(f"{home}.{original}")
        else:
            found = getattr(import_module(home), original)
        setattr(module, name, found)
        return found

    return get, lambda: sorted({*vars(module), *homes})


def _homes(source: str) -> dict[str, tuple[str, str]]:
    """Module and original name of everything imported under ``if TYPE_CHECKING:``.

    >>> _homes("if TYPE_CHECKING:\\n    from math import sqrt as root")
    {'root': ('math', 'sqrt')}
    """
    return {
        alias.asname or alias.name: (line.module, alias.name)
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
        if isinstance(line, ast.ImportFrom) and line.module
        for alias in line.names
    }


class LazyTable(MutableMapping[str, T]):
    """Components by name, each imported from its package on first use.

    >>> table = LazyTable("math", {"root": "sqrt"})
    >>> list(table), table["root"](9.0)
    (['root'], 3.0)
    """

    def __init__(self, package: str, names: Mapping[str, str]) -> None:
        self._package = package
        self._names, self._found = dict(names), dict[str, T]()

    def __getitem__(self, key: str) -> T:
        if key not in self._found:
            self._found[key] = getattr(import_module(self._package), self._names[key])
        return self._found[key]

    def __setitem__(self, key: str, value: T) -> None:
        self._names.setdefault(key, "")
        self._found[key] = value

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        self._found.pop(key, None)

    def __contains__(self, key: object) -> bool:  # without an import
        return key in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"
