"""How the command line ends when it cannot go on: one sentence, and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from itemrec.environment import out_of_memory
from itemrec.errors import ItemrecError

errors = Console(stderr=True, emoji=False)
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # click's, or typer's copy of it


class Commands(TyperGroup):
    """Bad input is one sentence on stderr and exit code 2; Ctrl-C is exit code 130."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read what stands before a command."""
        try:
            return super().make_context(*args, **kwargs)
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
                raise
            say(usage(error))
        raise typer.Exit(2)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            say(usage(error))
        except ItemrecError as error:
            say(" ".join(str(error).split()))
        except BrokenPipeError:  # whoever read our output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            say(f"{error.filename or 'a file'}: {error.strerror or error}")
        except (MemoryError, RuntimeError) as error:
            if not (told := out_of_memory(error)):
                raise  # a fault of ours
            say(told)
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        raise typer.Exit(2)


def usage(error: Any) -> str:
    """What is wrong with options and arguments, as one sentence."""
    text = " ".join(str(error.message).split()).rstrip(".").replace(". Did", ": did")
    name = max(getattr(getattr(error, "param", None), "opts", ()), key=len, default="")
    if name and text:  # a value that is not of the option's type
        cause = error.__cause__
        if not hasattr(cause, "errors"):
            return f"'{name}': {text}"
        rule = "a whole number" if "integer" in text else "a number"
        return f"'{name}' must be {rule}, got {cause.errors()[0]['input']!r}"
    if name:
        text = f"'{error.param.metavar or name}' must be given"
    elif near := getattr(error, "possibilities", None):
        return f"no such option '{error.option_name}': did you mean {' or '.join(sorted(near))}?"
    at = f"{error.ctx.info_name} " if error.ctx and error.ctx.parent else ""
    return f"{text[:1].lower()}{text[1:]}" + ("" if "?" in text else f"; see: itemrec {at}--help")


def say(text: str) -> None:
    """A sentence on stderr."""
    errors.print(f"itemrec: {text}", soft_wrap=True, markup=False, highlight=False)
