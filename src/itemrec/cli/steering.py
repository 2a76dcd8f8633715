"""Options that steer lists, the same for every command that makes some."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itemrec.errors import ItemrecError

if TYPE_CHECKING:
    from itemrec.data.item_table import ItemTable
    from itemrec.reranking.steering import Steering

STEERING = "Steering"


@dataclass(frozen=True)
class TableOptions:
    """What is known of the items besides the run."""

    item_table: Annotated[
        Path | None,
        typer.Option(
            help="A .csv, .tsv or .parquet file with an item column and more columns of the "
            "items, such as year or image.",
            rich_help_panel=STEERING,
        ),
    ] = None
    available: Annotated[
        Path | None,
        typer.Option(
            help="Recommend only these items: a .txt file with an id in each line, or a table "
            "with an item column.",
            rich_help_panel=STEERING,
        ),
    ] = None

    def read(self) -> ItemTable | None:
        """The files, if any is given."""
        from itemrec.data.item_table import read_item_table

        return read_item_table(self.item_table, self.available)


@dataclass(frozen=True)
class SteeringOptions:
    """What lists should be like besides accurate."""

    table: TableOptions
    diversity: Annotated[
        float,
        typer.Option(
            help="0 to 1: how much items that are like others of the list are avoided.",
            rich_help_panel=STEERING,
        ),
    ] = 0.0
    diversity_by: Annotated[
        str,
        typer.Option(
            help="What makes items alike: model (its item vectors), or a column such as genre.",
            rich_help_panel=STEERING,
        ),
    ] = "model"
    popularity_discount: Annotated[
        float,
        typer.Option(help="0 to 1: how much popular items are avoided.", rich_help_panel=STEERING),
    ] = 0.0
    long_tail: Annotated[
        float,
        typer.Option(
            help="0 to 1: least share of a list outside of the most popular fifth of the items.",
            rich_help_panel=STEERING,
        ),
    ] = 0.0
    freshness: Annotated[
        float,
        typer.Option(
            help="0 to 1: how much newer items are preferred, by a column year, date or time of "
            "--item-table or the year in titles.",
            rich_help_panel=STEERING,
        ),
    ] = 0.0
    max_per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=N",
            help="At most N items of a list with the same value in a column, such as genre=3; may "
            "be repeated.",
            rich_help_panel=STEERING,
        ),
    ] = None

    def settings(self) -> Steering:
        """The settings, checked."""
        from itemrec.reranking.steering import Steering

        return Steering(
            diversity=self.diversity,
            popularity_discount=self.popularity_discount,
            long_tail=self.long_tail,
            freshness=self.freshness,
            max_per=parse_caps(self.max_per or ()),
            diversity_by=self.diversity_by,
        )


def parse_caps(texts: list[str] | tuple[str, ...]) -> dict[str, int]:
    """The caps of ``--max-per``.

    >>> parse_caps(["genre=3", "country=5"])
    {'genre': 3, 'country': 5}
    """
    caps: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name.strip() or not number.strip().isdecimal() or int(number) < 1:
            raise ItemrecError(f"'max_per' must be such as genre=3, got {text!r}")
        caps[name.strip()] = int(number)
    return caps
