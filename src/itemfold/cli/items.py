"""The command `items`: search the items of a run by title."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from itemfold.cli import options
from itemfold.cli.errors import print_note
from itemfold.cli.tables.layout import add_row, console, new_table
from itemfold.errors import ItemfoldError
from itemfold.validation import positive_integer


def items_command(
    run: options.RunPath,
    query: Annotated[
        str,
        typer.Argument(
            metavar="[TEXT]",
            help="Words of a title, or parts of them, or an id. Default: the most popular items.",
            show_default=False,
        ),
    ] = "",
    k: Annotated[int, typer.Option("-k", "--k", help="Maximum number of items.")] = 20,
    as_json: options.AsJson = False,
) -> None:
    """Search the items of a run by title and list them with their ids.

    Example: itemfold items r "toy st"
    """
    positive_integer("--k", k)
    from itemfold.serving.item_lookup import ItemLookup
    from itemfold.serving.recommender import Recommender

    found = ItemLookup(Recommender.load(run)).find(query, k + 1)
    rows, is_cut = found[:k], len(found) > k
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows]))
        return
    if not rows:
        raise ItemfoldError(f"no item of {run} contains {query!r}")
    has = {"title": any(row.title for row in rows), "genres": any(row.genres for row in rows)}
    columns = [name for name, is_there in has.items() if is_there]
    table = new_table("item", *columns, "interactions", numbers=("interactions",))
    for row in rows:
        texts = [getattr(row, name) for name in columns]
        add_row(table, str(row.item), *texts, f"{row.interactions:,}")
    console.print(table)
    if is_cut:
        print_note(f"there are more: -k {2 * k} lists twice as many")
