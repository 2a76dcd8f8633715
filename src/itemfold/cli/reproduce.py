"""The command `reproduce`, which runs the suites behind the tables of results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from itemfold.cli import options
from itemfold.cli.errors import error_console
from itemfold.cli.option_groups import with_options
from itemfold.cli.parsing import parse_optional_list
from itemfold.cli.tables.layout import add_row, console, new_table

if TYPE_CHECKING:
    from itemfold.experiments.suites.options import Options


@dataclass(frozen=True)
class SelectionOptions:
    """Which part of a suite is run."""

    panel: ClassVar = "Selection"

    datasets: Annotated[
        str | None, typer.Option(help="Only these data sets, such as ml-1m,yelp2018/inductive.")
    ] = None
    rows: Annotated[str | None, typer.Option(help="Only these rows, such as bpr,item.")] = None
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds. Default: set by the suite.")
    ] = None


@dataclass(frozen=True)
class StorageOptions:
    """Where data is read and results are written."""

    panel: ClassVar = "Files"

    data_root: options.DataRoot = None
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results")
    per_user: Annotated[
        Path | None, typer.Option(help="Folder for per-user values. Default: in the cache.")
    ] = None


@with_options
def reproduce_command(
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
    """Run a suite: rows × data sets × seeds. Call it again to continue; finished runs are skipped.

    Example: itemfold reproduce negatives --datasets synthetic --jobs 2
    """
    from itemfold.experiments.suites.options import Options
    from itemfold.experiments.suites.overrides import split_names
    from itemfold.experiments.suites.reproduce import OTHERS, run_tables

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
    """Print the stored figures of each chosen data set, as on the page of results."""
    from rich.text import Text

    from itemfold.experiments.suites.results import metric_title, read_tables
    from itemfold.experiments.suites.store import read_store
    from itemfold.experiments.suites.suite import load_suite

    suite = load_suite(name)
    chosen = {cell.entry for cell in suite.cells(options.datasets)}
    for found in read_tables(suite, read_store(options.home)):
        if found.entry not in chosen:
            continue
        numbers = (*map(metric_title, suite.columns), "seeds")
        table = new_table("row", *numbers, numbers=numbers)
        for row in found.rows:
            figures = (row.text(metric) for metric in suite.columns)
            add_row(table, row.cell.row, *figures, str(len(row.results)))
        notes = ["× 100 on test data, mean ± standard deviation over seeds"]
        if any(row.mark(metric) for row in found.rows for metric in suite.columns):
            notes.append("▲ ▼: better or worse than the baseline, p < .05")
        console.print(Text(found.entry.title, "bold"), table, Text("; ".join(notes), "dim"))
