"""A command of `itemfold`, called in this process or interrupted in another one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner, Result

from itemfold.cli.app import app


def call(*args: object, code: int = 0) -> Result:
    """The result of a command that must end with this exit code; no line of it is wrapped."""
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "400"})
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


@contextmanager
def sigint(handler: Any = signal.default_int_handler) -> Iterator[None]:
    """Processes that start in this context get Ctrl-C, even if it is ignored here.

    A shell ignores SIGINT in background jobs, such as `make test &`, and children inherit that; a
    handler is not inherited. With ``signal.SIG_IGN`` they ignore it.
    """
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
