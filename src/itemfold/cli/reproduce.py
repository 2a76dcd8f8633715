"""The command `reproduce`, which runs the suites of the tables of results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from itemfold.cli import options
from itemfold.cli.errors import error_console
from itemfold.cli.option_groups import with_options
from itemfold.cli.parsing import parse_optional_list
from itemfold.errors import ItemfoldError


@dataclass(frozen=True)
class SelectionOptions:
    """Options that select a part of a suite."""

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
    """Options for the data and the results."""

    panel: ClassVar = "Files"

    data_root: options.DataRoot = None
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results")
    against: Annotated[
        Path | None,
        typer.Option(
            help="Folder of stored results to compare the new ones with, such as a copy of "
            "results/. Default: those in --results before this call."
        ),
    ] = None
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
    format_: options.Format = "table",
    plot: options.Plot = None,
) -> None:
    """Run a suite: rows × data sets × seeds. Run it again to continue; finished runs are skipped.

    A figure that was stored before, in --results or in --against, is printed beside the new one.

    Example: itemfold reproduce negatives --datasets synthetic --jobs 2
    """
    from itemfold.cli.result_plots import check_plot, write_plot
    from itemfold.cli.tables.formats import check_format, print_tables
    from itemfold.cli.tables.suites import runs_before, suite_panels, suite_tables
    from itemfold.experiments.suites.options import Options
    from itemfold.experiments.suites.overrides import split_names
    from itemfold.experiments.suites.reproduce import OTHERS, run_tables
    from itemfold.experiments.suites.store import read_store
    from itemfold.experiments.suites.suite import load_suite

    check_format(format_)
    file = check_plot(plot)
    is_suite = suite not in ("all", *OTHERS)
    if not is_suite and (file is not None or format_ != "table"):
        raise ItemfoldError(f"'--format' and '--plot' are for one suite, got '{suite}'")
    if storage.against is not None and not storage.against.is_dir():
        raise ItemfoldError(f"'--against' must be an existing folder, got '{storage.against}'")
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
    before = (
        runs_before(read_store(storage.against or chosen.home), load_suite(suite))
        if is_suite
        else {}
    )
    succeeded = run_tables(suite, chosen, error_console)
    if is_suite:
        loaded, store = load_suite(suite), read_store(chosen.home)
        entries = {cell.entry for cell in loaded.cells(chosen.datasets)}
        print_tables(suite_tables(loaded, store, entries, before), format_)
        if file is not None:
            write_plot(suite_panels(loaded, store, entries), file)
    if not succeeded:
        raise typer.Exit(1)
