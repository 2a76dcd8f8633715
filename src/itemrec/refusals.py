"""How the command line ends when it cannot go on: one sentence, and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from itemrec.errors import ItemrecError

errors = Console(stderr=True, emoji=False)


class Commands(TyperGroup):
    """Bad input is one sentence on stderr and exit code 2; Ctrl-C is exit code 130."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except ItemrecError as error:
            say(" ".join(str(error).split()))
        except BrokenPipeError:  # whoever read our output has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            say(f"{error.filename or 'a file'}: {error.strerror or error}")
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        raise typer.Exit(2)


def say(text: str) -> None:
    """A sentence on stderr."""
    errors.print(f"itemrec: {text}", soft_wrap=True, markup=False, highlight=False)
