"""Errors and notes on stderr, one sentence each."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from itemfold import ranks
from itemfold.cli.signals import received
from itemfold.environment import out_of_memory
from itemfold.errors import ItemfoldError, ItemfoldWarning

error_console = Console(stderr=True, emoji=False)
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's, or typer's copy of it
RANK0_GRACE_S = 10.0  # time for the first rank to report the same error
OLD_NAME = re.compile(r"'\w+' is now '[\w.]+'; the old name")  # `Model.current_settings`


class CommandGroup(TyperGroup):
    """Commands that report errors in one sentence and exit with 2, 130 (Ctrl-C) or 143."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the options before the command."""
        try:
            return super().make_context(*args, **kwargs)
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
                raise
            print_error(usage_sentence(error))
        raise typer.Exit(2)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with warnings_as_notes(), report_interrupt():
                return super().invoke(ctx)
        except typer.Exit:
            raise
        except BrokenPipeError:  # the reader of our output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except Exception as error:
            if not (sentence := error_sentence(error)):
                ranks.publish_failure(repr(error))
                raise  # a bug
            print_error(sentence)
        raise typer.Exit(2)


@contextmanager
def report_interrupt(advice: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Report a signal that ends the command, with advice on what to do next."""
    try:
        yield
    except typer.Exit:
        raise
    except BaseException as error:
        if not received.explains(error):
            raise
        if received.number:  # a handler is installed: this process belongs to the command
            received.ignore_others()
        # `torchrun` also sends a signal if another rank has failed
        print_note(ranks.read_failure() or received.report(advice()))
        raise typer.Exit(received.exit_code) from None


def error_sentence(error: Exception) -> str:
    """The message for an error of the user or the system; empty for a bug."""
    if isinstance(error, UsageError):
        return usage_sentence(error)
    if isinstance(error, ItemfoldError):
        return " ".join(str(error).split())
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or error}"
    return out_of_memory(error) if isinstance(error, MemoryError | RuntimeError) else ""


def usage_sentence(error: Any) -> str:
    """The message for invalid options or arguments."""
    text = " ".join(str(error.message).split()).rstrip(".").replace(". Did", ": did")
    name = max(getattr(getattr(error, "param", None), "opts", ()), key=len, default="")
    if name and text:  # a value of the wrong type
        cause = error.__cause__
        if not hasattr(cause, "errors"):
            return f"'{name}': {text}"
        rule = "a whole number" if "integer" in text else "a number"
        return f"'{name}' must be {rule}, got {cause.errors()[0]['input']!r}"
    if name:
        text = f"'{error.param.metavar or name}' must be given"
    elif near := getattr(error, "possibilities", None):
        return f"no such option '{error.option_name}': did you mean {' or '.join(sorted(near))}?"
    command = f"{error.ctx.info_name} " if error.ctx and error.ctx.parent else ""
    hint = "" if "?" in text else f"; see: itemfold {command}--help"
    if re.match("no such option: -[0-9]", text, re.IGNORECASE):
        hint = f"; put -- before an id that begins with a minus: itemfold {command}… -- -20"
    if "extra argument" in text and "data" in [p.name for p in error.ctx.command.params]:
        hint = "; several files are one DATA: put a pattern such as 'plays/*.csv' in quotes"
    return f"{text[:1].lower()}{text[1:]}{hint}"


def print_note(text: str) -> None:
    """Print one line on stderr."""
    error_console.print(f"itemfold: {text}", soft_wrap=True, markup=False, highlight=False)


def print_error(sentence: str) -> None:
    """Print the error that ends this process; with several ranks, only the first one prints it.

    Ranks that are not connected usually fail with the same error: the first one prints it and
    exits, and ``torchrun`` ends the others while they wait here. A rank that survives the wait is
    the only one that failed, so it prints its own error.
    """
    if ranks.publish_failure(sentence):
        return
    if ranks.is_first():
        print_note(sentence)
        return
    time.sleep(RANK0_GRACE_S)
    print(f"itemfold: rank {ranks.rank()}: {sentence}", file=sys.stderr)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of this package as notes, each once."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        show_others = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            text = str(message)
            old_name = issubclass(category, FutureWarning) and OLD_NAME.match(text)
            if not (old_name or issubclass(category, ItemfoldWarning)):
                show_others(message, category, *args, **kwargs)
            elif text not in printed:
                printed.add(text)
                print_note(text)

        warnings.filterwarnings("always", message=OLD_NAME.pattern, category=FutureWarning)
        warnings.filterwarnings("always", category=ItemfoldWarning)
        warnings.showwarning = show
        yield
