"""The command that adds new interactions to a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itemrec.cli import options
from itemrec.cli.errors import told_if_interrupted
from itemrec.cli.option_groups import with_options
from itemrec.cli.tables.layout import print_line

NEW_HELP = (
    "New interactions: any data that `itemrec train` reads, or the feedback that `itemrec serve` "
    "stored, a .jsonl file or its folder. It is read as the data of the run was."
)


@with_options
def update(
    run: options.RunFolder,
    new: Annotated[str, typer.Argument(metavar="NEW", help=NEW_HELP, show_default=False)],
    reading: options.DataOptions,
    out: Annotated[Path | None, typer.Option(help="New run folder; default: RUN-updated.")] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of training; default: a tenth of those of the run. 0: none, new users "
            "and items only get vectors from their neighbours.",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or auto; default: as the run was trained.",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
) -> None:
    """Add new interactions, users and items to a run without training it anew.

    The new run is for deployment: nothing is held out, so it has no test metrics. RUN stays as it
    is.

    Example: itemrec update r new.csv --out r2
    """
    from itemrec.cli.tables import results
    from itemrec.training.update import update as update_run

    folder = Path(f"{run.rstrip('/')}-updated") if out is None else out
    with told_if_interrupted(lambda: "nothing was saved"):
        found = update_run(
            run,
            new,
            out=folder,
            epochs=epochs,
            device=device,
            progress=True,
            **reading.settings(),
        )
    for line in results.updated(found):
        print_line(line)
    print_line(f"run folder: {folder}")
