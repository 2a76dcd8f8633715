"""The command `forget`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from itemfold.cli.tables.layout import print_line
from itemfold.errors import ItemfoldError, UnknownIdError

WHAT_STAYS = (
    "Weights that all users share, such as item vectors, still reflect the data of this user: to "
    "remove that as well, remove the user from the original data and train again. Backups, "
    "exports and reports are not changed."
)


def forget_command(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="The id of the user.", show_default=False)
    ],
    run: Annotated[
        list[str] | None, typer.Option(help="A run folder to change; may be repeated.")
    ] = None,
    feedback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Feedback to delete from, as in `itemfold serve`: a folder, a .sqlite file or "
            "postgres; may be repeated.",
        ),
    ] = None,
) -> None:
    """Delete the data of one user from run folders and from feedback.

    A run loses the id, the history, the vectors and the metrics of the user; a service that
    serves it loads the new version by itself.

    Example: itemfold forget USER --run runs/shop --feedback feedback
    """
    if not (run or feedback):
        raise ItemfoldError("give --run, --feedback, or both, to say where to delete the user")
    if not user.strip():
        raise ItemfoldError("'USER' must not be blank")
    from itemfold.data.feedback.store import open_store

    for place in feedback or ():
        with closing(open_store(place)) as store:
            print_line(f"{place}: {store.forget(user):,} events deleted")
    if not run:
        return
    from itemfold.training.forget import forget_user

    for folder in run:
        try:
            print_line(f"{folder}: user and {forget_user(folder, user):,} interactions removed")
        except UnknownIdError:
            print_line(f"{folder}: no such user")
    print_line(WHAT_STAYS)
