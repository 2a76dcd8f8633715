"""Options of commands that make lists: files about the items, and re-ranking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from itemfold.cli.parsing import parse_caps

if TYPE_CHECKING:
    from itemfold.data.items.item_table import ItemTable
    from itemfold.reranking.steering import Steering

RERANKING = "Re-ranking"


@dataclass(frozen=True)
class TableOptions:
    """Files about the items."""

    panel: ClassVar = RERANKING

    item_table: Annotated[
        Path | None,
        typer.Option(help="A table with an item column and other columns, such as year or image."),
    ] = None
    available: Annotated[
        Path | None,
        typer.Option(
            help="Recommend only these items: a .txt file with one id per line, or a table with an "
            "item column."
        ),
    ] = None

    def read(self) -> ItemTable | None:
        """The files, if any is given."""
        from itemfold.data.items.item_table import read_item_table

        return read_item_table(self.item_table, self.available)


@dataclass(frozen=True)
class SteeringOptions:
    """Re-ranking options."""

    panel: ClassVar = RERANKING

    table: TableOptions
    diversity: Annotated[
        float, typer.Option(help="0 to 1: penalty for items similar to others in the list.")
    ] = 0.0
    diversity_by: Annotated[
        str,
        typer.Option(
            help="Similarity of items: model (its item vectors), or a column such as genre."
        ),
    ] = "model"
    popularity_discount: Annotated[
        float, typer.Option(help="0 to 1: penalty for popular items.")
    ] = 0.0
    long_tail: Annotated[
        float,
        typer.Option(
            help="0 to 1: minimum fraction of a list outside the most popular fifth of the items."
        ),
    ] = 0.0
    freshness: Annotated[
        float,
        typer.Option(
            help="0 to 1: preference for newer items, by a column year, date or time "
            "of --item-table, or the year in titles."
        ),
    ] = 0.0
    max_per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=N",
            help="At most N items per list with the same value in a column, such as genre=3; may "
            "be repeated.",
        ),
    ] = None

    def settings(self) -> Steering:
        """The settings, checked."""
        from itemfold.reranking.steering import Steering

        values = {name: value for name, value in vars(self).items() if name != "table"}
        return Steering(**{**values, "max_per": parse_caps(self.max_per or ())})
