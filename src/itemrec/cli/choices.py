"""Help texts that list the choices of an option, or show a default.

They are filled in when help is shown, because extensions may have added to the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import copy
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from itemrec.errors import ItemrecError
from itemrec.experiments.suites import FOLDER
from itemrec.losses import LOSSES
from itemrec.models import MODELS
from itemrec.sampling import NEGATIVES
from itemrec.settings.schema import DEFAULTS, PROTOCOL, SPLIT_OF

# options that are paths
PATHS = ("out", "config", "final", "data_root", "results", "per_user", "item_table", "available")


def _metrics() -> Iterable[str]:
    from itemrec.evaluation.metrics import CUT_METRICS

    return CUT_METRICS


def _definitions() -> Iterable[str]:
    from itemrec.evaluation.metrics import DEFINITIONS

    return [" ".join(DEFINITIONS.values())]


def _full_metrics() -> Iterable[str]:
    from itemrec.evaluation.metrics import FULL_METRICS

    return FULL_METRICS


def _training_default(name: str) -> str:
    """The default of a field of `TrainConfig`."""
    from itemrec.settings.schema import TrainConfig

    default = TrainConfig.__dataclass_fields__[name].default
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)


CHOICES: dict[str, Callable[[], Iterable[str]]] = {
    "{models}": lambda: MODELS,
    "{losses}": lambda: LOSSES,
    "{negatives}": lambda: NEGATIVES,
    "{metrics}": _metrics,
    "{full_metrics}": _full_metrics,
    "{definitions}": _definitions,
    "{suites}": lambda: sorted(file.stem for file in FOLDER.glob("*.toml")),
    "{default model}": lambda: [DEFAULTS["model"]],
    "{default loss}": lambda: [DEFAULTS["loss"]],
    "{default negatives}": lambda: [DEFAULTS["negatives"]],
    "{default protocol}": lambda: [PROTOCOL],
    "{default split}": lambda: (f"{split} ({name})" for name, split in SPLIT_OF.items()),
}
DEFAULT = re.compile(r"\{default train\.(\w+)\}")


class Command(TyperCommand):
    """A command whose help texts may hold names of CHOICES in braces.

    An empty path is an error: it would be the current folder, as where a shell variable is not set.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Reject empty paths, then parse."""
        flags = {flag for p in self.params if p.name in PATHS for flag in p.opts}
        for flag, value in pairwise([*args, "-"]):
            if (flag in flags and value == "") or (flag[-1:] == "=" and flag[:-1] in flags):
                raise ItemrecError(f"'{flag.rstrip('=')}' must be a path, got ''")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show help with the choices of this moment."""
        shown = copy(self)
        shown.params = [_with_choices(parameter) for parameter in self.params]
        shown.help = fill(self.help or "")
        super(Command, shown).format_help(ctx, formatter)


def _with_choices(parameter: Any) -> Any:
    filled = copy(parameter)
    if getattr(parameter, "help", None):
        filled.help = fill(parameter.help)
    return filled


def fill(text: str) -> str:
    """A help text with its lists of choices.

    >>> fill("One of {full_metrics}.")
    'One of ndcg, ap, mrr.'
    """
    for name, choices in CHOICES.items():
        if name in text:
            text = text.replace(name, ", ".join(choices()))
    return DEFAULT.sub(lambda found: _training_default(found[1]), text)
