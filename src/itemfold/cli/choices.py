"""Help texts with placeholders for the choices and defaults of options.

Placeholders are filled in when help is shown, because extensions may add choices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from importlib import import_module
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from itemfold.cli.early_checks import check_early
from itemfold.errors import ItemfoldError
from itemfold.experiments.suites import FOLDER
from itemfold.losses import LOSSES
from itemfold.models import MODELS
from itemfold.sampling import NEGATIVES
from itemfold.settings.schema import DEFAULTS, PROTOCOL, SPLIT_OF

# options that are paths
PATHS = ("out", "config", "final", "data_root", "results", "per_user", "item_table", "available")


def _metrics(table: str) -> Any:
    return getattr(import_module("itemfold.evaluation.metrics"), table)


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "{models}": lambda: MODELS,
    "{losses}": lambda: LOSSES,
    "{negatives}": lambda: NEGATIVES,
    "{metrics}": lambda: _metrics("CUT_METRICS"),
    "{full_metrics}": lambda: _metrics("FULL_METRICS"),
    "{definitions}": lambda: [" ".join(_metrics("DEFINITIONS").values())],
    "{suites}": lambda: sorted(file.stem for file in FOLDER.glob("*.toml")),
    "{default model}": lambda: [DEFAULTS["model"]],
    "{default loss}": lambda: [DEFAULTS["loss"]],
    "{default negatives}": lambda: [DEFAULTS["negatives"]],
    "{default protocol}": lambda: [PROTOCOL],
    "{default split}": lambda: (f"{split} ({name})" for name, split in SPLIT_OF.items()),
}
DEFAULT = re.compile(r"\{default train\.(\w+)\}")


class Command(TyperCommand):
    """A command that fills placeholders in its help, and rejects typos before it starts.

    Empty paths are rejected, because an unset shell variable would mean the current folder.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Reject empty paths, then parse."""
        flags = {flag for p in self.params if p.name in PATHS for flag in p.opts}
        for flag, value in pairwise([*args, "-"]):
            if (flag in flags and value == "") or (flag[-1:] == "=" and flag[:-1] in flags):
                raise ItemfoldError(f"'{flag.rstrip('=')}' must be a path, got ''")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Reject names and paths that do not exist, then run the command."""
        check_early(ctx.params)
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show help with the placeholders filled in."""
        shown = copy(self)
        shown.params = [copy(parameter) for parameter in self.params]
        parts: list[Any] = [shown, *shown.params]
        for part in parts:
            part.help = fill(getattr(part, "help", None) or "")
            if getattr(part, "is_flag", False):  # hides typer's <bool>, since a flag takes no value
                part.display_type_rich = lambda **_: None
        super(Command, shown).format_help(ctx, formatter)


def fill(text: str) -> str:
    """A help text with its placeholders filled in.

    >>> fill("One of {full_metrics}.")
    'One of ndcg, ap, mrr.'
    """
    for name, choices in CHOICES.items():
        if name in text:
            text = text.replace(name, ", ".join(choices()))
    return DEFAULT.sub(lambda found: _training_default(found[1]), text)


def _training_default(name: str) -> str:
    """The default of a field of `TrainConfig`."""
    from itemfold.settings.schema import TrainConfig

    default = TrainConfig.__dataclass_fields__[name].default
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)
