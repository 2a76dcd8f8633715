"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DATA_HELP = (
    "A built-in name, a folder with train.txt, or a .csv, .tsv, .inter (.gz) or .parquet file."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Where named data sets lie (or ITEMREC_DATA).")
]
MinRating = Annotated[float | None, typer.Option(help="Keep ratings of at least this.")]
KCore = Annotated[int | None, typer.Option(help="Keep users and items with at least this many.")]
UserCol = Annotated[str | None, typer.Option(help="Name of the user column.")]
ItemCol = Annotated[str | None, typer.Option(help="Name of the item column.")]
RatingCol = Annotated[str | None, typer.Option(help="Name of the rating column.")]
TimeCol = Annotated[str | None, typer.Option(help="Name of the time column.")]
Titles = Annotated[str | None, typer.Option(help="A file with item and title columns.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Metrics = Annotated[str | None, typer.Option(help="Such as NDCG@10,ap; all at each k by default.")]
