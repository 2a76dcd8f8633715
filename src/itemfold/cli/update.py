"""The command `update`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itemfold.cli import options
from itemfold.cli.errors import report_interrupt
from itemfold.cli.option_groups import with_options
from itemfold.cli.tables.layout import print_line

NEW_HELP = (
    "New interactions: any data that `itemfold train` reads, or the feedback that `itemfold serve` "
    "stored: its folder or file, or postgres. It is read with the options of the run's data."
)


@with_options
def update_command(
    run: options.RunPath,
    new: Annotated[str, typer.Argument(metavar="NEW", help=NEW_HELP, show_default=False)],
    reading: options.DataOptions,
    out: Annotated[Path | None, typer.Option(help="New run folder. Default: RUN-updated.")] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of training. Default: a tenth of those of the run. 0: no training; new "
            "users and items get vectors from their neighbours.",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or auto. Default: as the run was trained.",
            rich_help_panel=options.TRAINING,
        ),
    ] = None,
) -> None:
    """Add new interactions, users and items to a run without retraining it.

    The new run is for deployment: nothing is held out, so it has no test metrics. RUN does not
    change.

    Example: itemfold update r new.csv --out r2
    """
    from itemfold.cli.tables import results
    from itemfold.training.update import update

    folder = Path(f"{run.rstrip('/')}-updated") if out is None else out
    with report_interrupt(lambda: "nothing was saved"):
        found = update(
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
