"""Users' Python files that add models, losses or samplers before anything else runs.

Such a file adds entries to the tables of components, for example
``itemrec.losses.LOSSES["own-loss"] = own_loss``. Processes started later find the same files in
the environment variable ITEMREC_EXTENSIONS.
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

from itemrec.errors import ItemrecError

VARIABLE = "ITEMREC_EXTENSIONS"  # absolute paths, separated by os.pathsep
PREFIX = "itemrec_extension_"  # of module names, so that no file hides an installed module


def load_extensions(files: Iterable[str | Path] = ()) -> None:
    """Execute the files named by ITEMREC_EXTENSIONS, then these; each runs once per process.

    What a file prints goes to stderr: stdout is reserved for the results of a command.
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
    """The absolute path of an existing .py file."""
    path = Path(name).expanduser().resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ItemrecError(f"'{source}' must be an existing .py file, got '{name}'")
    if os.pathsep in str(path):
        raise ItemrecError(f"'{source}' must have no {os.pathsep!r} in its path, got '{path}'")
    return path


def _is_loaded(path: Path) -> bool:
    return any(
        name.startswith(PREFIX) and getattr(module, "__file__", None) == str(path)
        for name, module in list(sys.modules.items())
    )


def _execute(path: Path) -> None:
    """Import a file as a module that is registered in ``sys.modules``."""
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ItemrecError(
            f"the extension {path} failed{_place(error, path)}: {type(error).__name__}: {error}"
        ) from error


def _module_name(path: Path) -> str:
    """A unique module name derived from the name of the file."""
    first = name = PREFIX + re.sub(r"\W", "_", path.stem)
    number = 1
    while name in sys.modules:  # a file of the same name in another folder
        number += 1
        name = f"{first}_{number}"
    return name


def _place(error: BaseException, path: Path) -> str:
    """The line of the file that failed, if it is known."""
    if isinstance(error, SyntaxError):
        return ""  # the message already contains it
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f" in line {lines[-1]}" if lines else ""
