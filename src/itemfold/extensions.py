"""Extensions: users' Python files that register models, losses or samplers.

An extension adds entries to the tables of components, for example
``itemfold.losses.LOSSES["own-loss"] = own_loss``. The environment variable ITEMFOLD_EXTENSIONS
passes the files on to child processes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from itemfold.errors import ItemfoldError

VARIABLE = "ITEMFOLD_EXTENSIONS"  # absolute paths, separated by os.pathsep
PREFIX = "itemfold_extension_"  # keeps a file from shadowing an installed module


def load_extensions(files: Iterable[str | Path] = ()) -> None:
    """Run the files in ITEMFOLD_EXTENSIONS, then the given ones, each once per process.

    Their output goes to stderr, since stdout is reserved for the results of a command.
    """
    inherited = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    paths = [_checked(VARIABLE, name) for name in inherited]
    paths += [_checked("--extension", name) for name in files]
    paths = list(dict.fromkeys(paths))
    for path in paths:
        if not _is_loaded(path):
            _execute(path)
    if paths:
        os.environ[VARIABLE] = os.pathsep.join(map(str, paths))


def _checked(source: str, name: str | Path) -> Path:
    """The absolute path of a .py file; raise if it does not exist."""
    path = Path(name).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ItemfoldError(f"'{source}' must be an existing .py file, got '{name}'")
    if os.pathsep in str(path):
        raise ItemfoldError(f"'{source}' must not contain {os.pathsep!r}, got '{path}'")
    return path


def _is_loaded(path: Path) -> bool:
    return any(
        name.startswith(PREFIX) and getattr(module, "__file__", None) == str(path)
        for name, module in list(sys.modules.items())
    )


def _execute(path: Path) -> None:
    """Import a file as a module of its own in ``sys.modules``."""
    first = name = PREFIX + re.sub(r"\W", "_", path.stem)
    number = 1
    while name in sys.modules:  # an extension of the same name in another folder
        number += 1
        name = f"{first}_{number}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up type hints
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = _failed_line(error, path)
        raise ItemfoldError(
            f"the extension {path} failed{where}: {type(error).__name__}: {error}"
        ) from error


def _failed_line(error: BaseException, path: Path) -> str:
    """The phrase "in line N" for an error message; empty if the line is unknown."""
    if isinstance(error, SyntaxError):
        return ""  # its message names the line
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f" in line {lines[-1]}" if lines else ""
