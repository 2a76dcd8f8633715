"""The command that runs the suites behind the tables of results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itemrec.cli import options
from itemrec.cli.errors import error_console
from itemrec.cli.option_groups import with_options
from itemrec.cli.parsing import parse_optional_list
from itemrec.cli.tables.layout import console

if TYPE_CHECKING:
    from itemrec.experiments.suites.options import Options

SELECTION, STORAGE = "Selection", "Files"


@dataclass(frozen=True)
class SelectionOptions:
    """Which part of a suite is run."""

    datasets: Annotated[
        str | None,
        typer.Option(
            help="Only these data sets, such as ml-1m,yelp2018/inductive.",
            rich_help_panel=SELECTION,
        ),
    ] = None
    rows: Annotated[
        str | None,
        typer.Option(help="Only these rows, such as bpr,item.", rich_help_panel=SELECTION),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds. Default: that of the suite.", rich_help_panel=SELECTION
        ),
    ] = None


@dataclass(frozen=True)
class StorageOptions:
    """Where data is read and results are written."""

    data_root: options.DataRoot = None
    results: Annotated[
        Path, typer.Option(help="Folder of the results.", rich_help_panel=STORAGE)
    ] = Path("results")
    per_user: Annotated[
        Path | None,
        typer.Option(
            help="Folder for per-user values. Default: in the cache.",
            rich_help_panel=STORAGE,
        ),
    ] = None


@with_options
def reproduce(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="{suites}, datasets, qualitative, all, or a .toml file.",
            show_default=False,
        ),
    ],
    selection: SelectionOptions,
    storage: StorageOptions,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    jobs: Annotated[int, typer.Option(help="Number of runs in parallel.")] = 1,
    time_limit: Annotated[
        float | None, typer.Option(help="Start no run after this many seconds.")
    ] = None,
) -> None:
    """Run a suite: rows × data sets × seeds. Finished runs are skipped, so it can be repeated.

    Example: itemrec reproduce negatives --datasets synthetic --jobs 2
    """
    from itemrec.experiments.suites.options import Options
    from itemrec.experiments.suites.overrides import split_names
    from itemrec.experiments.suites.reproduce import OTHERS, run_tables

    names = selection.datasets
    chosen = Options(
        datasets=None if names is None else split_names(names),
        rows=parse_optional_list("rows", selection.rows),
        seeds=selection.seeds,
        device=device,
        jobs=jobs,
        data_root=storage.data_root,
        results=storage.results,
        per_user=storage.per_user,
        time_limit=time_limit,
    )
    succeeded = run_tables(suite, chosen, error_console)
    if suite not in ("all", *OTHERS):
        _print_tables(suite, chosen)
    if not succeeded:
        raise typer.Exit(1)


def _print_tables(name: str, options: Options) -> None:
    """The table of each chosen data set, with what is stored by now."""
    from itemrec.cli.tables.suites import suite_table
    from itemrec.experiments.suites.results import read_tables
    from itemrec.experiments.suites.store import read_store
    from itemrec.experiments.suites.suite import load_suite

    suite = load_suite(name)
    chosen = {cell.entry for cell in suite.cells(options.datasets)}
    for table in read_tables(suite, read_store(options.home)):
        if table.entry in chosen:
            console.print(suite_table(suite, table))
