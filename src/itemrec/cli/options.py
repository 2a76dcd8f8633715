"""Arguments and options that several commands have, and how their lists are read."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer

from itemrec.config_file import Config, load_config
from itemrec.data.interactions import IdMap
from itemrec.errors import ItemrecError
from itemrec.experiments.registry import PROTOCOLS
from itemrec.experiments.suites.suite import row_settings

DATA_HELP = (
    "A built-in name, a folder with train.txt, or a .csv, .tsv, .inter (.gz) or .parquet file."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
DataOrNone = Annotated[
    str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)
]
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
Model = Annotated[str | None, typer.Option(help="See: itemrec models.")]
Loss = Annotated[str | None, typer.Option(help="item-ndcg, bpr, softmax, …")]
Negatives = Annotated[str | None, typer.Option(help="uniform, popularity, ppr, …")]
Protocol = Annotated[
    str | None, typer.Option(help="transductive (known users) or inductive (unseen users).")
]
Split = Annotated[str | None, typer.Option(help="interactions, users, time, last or all.")]
Epochs = Annotated[int | None, typer.Option(help="At most this many.")]
Seed = Annotated[int | None, typer.Option(help="Seed of split and training.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or auto.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, such as model.pooling=sum.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
Like = Annotated[
    str | None,
    typer.Option(help="Settings of a table's row: inductive/item-log, systems/ease@ml-1m."),
]
RunOut = Annotated[
    Path | None,
    typer.Option(help="Run folder; runs/<data>-<protocol>-<model>-<loss>-<seed> otherwise."),
]
Refit = Annotated[
    bool | None, typer.Option("--refit/--no-refit", help="Train again on training + validation.")
]
Final = Annotated[
    Path | None,
    typer.Option(help="A finished run: train it on all of its data, to be used and not judged."),
]
QUOTED = "ids with commas as '1,\"a,b\"'"
History = Annotated[
    str | None,
    typer.Option(help=f"Items of anybody, such as 1,260; {QUOTED}."),
]
Only = Annotated[
    str | None, typer.Option(help=f"Choose from these items alone, such as 1,260; {QUOTED}.")
]
Without = Annotated[
    str | None, typer.Option(help=f"Leave these items out, such as 1,260; {QUOTED}.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Stored = Annotated[
    str | None,
    typer.Option("--metrics", help="Stored in the runs, such as ndcg@20,mrr@20."),
]
Metrics = Annotated[str | None, typer.Option(help="Such as NDCG@10,ap; all at each k by default.")]


def listed(name: str, text: str) -> list[str]:
    """What stands between commas; as in a CSV file, quotes hold together what has commas itself.

    >>> listed("history", '1, "it,em""1",b')
    ['1', 'it,em"1', 'b']
    """
    try:
        rows = list(csv.reader(io.StringIO(text), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ItemrecError(
            f"'{name}' must be a list such as '1,\"a,b\"' with its quotes closed, got {text!r}"
        ) from error
    return [part.strip() for row in rows for part in row if part.strip()]


def listed_if(name: str, text: str | None) -> list[str] | None:
    """The entries of a list that was given; None where it was not."""
    return None if text is None else listed(name, text)


def ids_of(name: str, text: str, known: IdMap) -> list[str]:
    """The ids in a list; a text that is an id itself is that one, commas and all."""
    return [text] if known.index([text])[0] >= 0 else listed(name, text)


def cuts_of(text: str) -> list[int]:
    """The cuts of ``--k``, such as 10,20."""
    parts = listed("k", text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ItemrecError(f"'k' must be positive integers such as 10,20, got {text!r}")
    return [int(part) for part in parts]


def given_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, without those left alone."""
    return {name: value for name, value in options.items() if value is not None}


def base_of(
    config: Path | None,
    like: str | None,
    data: str | None,
    protocol: str | None,
    strategy: str | None,
) -> Config:
    """The settings that options come on top of: of a file, of a table's row, or none."""
    if config is not None and like is not None:
        raise ItemrecError("'--config' and '--like' each give all settings: choose one")
    if like is not None:
        kind = PROTOCOLS.get(strategy, "transductive") if strategy else None
        return row_settings(like, data or "", protocol or kind)
    return {} if config is None else load_config(config)


def data_of(
    root: Path | None,
    min_rating: float | None,
    k_core: int | None,
    user: str | None,
    item: str | None,
    rating: str | None,
    time: str | None,
    titles: str | None,
) -> dict[str, Any]:
    """The options of reading data that were given, as `load` and `read` call them."""
    columns = {"user": user, "item": item, "rating": rating, "time": time, "titles": titles}
    thin = {"data_root": root and str(root), "min_rating": min_rating, "k_core": k_core}
    return given_of({**thin, **columns})
