"""The command `tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from itemfold.cli.errors import print_note, report_interrupt
from itemfold.cli.option_groups import with_options
from itemfold.cli.options import ExperimentOptions
from itemfold.cli.tables.layout import console, print_line, program

SEARCH = "Search"


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search: space, length and folder."""

    search: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting to search, such as lr=0.001..0.03 or layers=1,2,3; may be repeated. "
            "Default: ranges that suit the model and the loss.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option(
            help="Total number of trials, including those of earlier calls. Default: 20; with "
            "--resume, the earlier number.",
            rich_help_panel=SEARCH,
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(help="Start no trial after this many seconds.", rich_help_panel=SEARCH),
    ] = None
    out: Annotated[Path, typer.Option(help="Folder of the trials and best.toml.")] = Path("tuned")
    resume: Annotated[bool, typer.Option("--resume", help="Continue the search in --out.")] = False


@with_options
def tune(experiment: ExperimentOptions, search: SearchOptions) -> None:
    """Search for good settings on validation data alone; the test users are not used.

    Example: itemfold tune synthetic --model ease --search model.l2=10..1000 --trials 10
    """
    from itemfold.cli.tables import results
    from itemfold.experiments.search_folder import stored_search
    from itemfold.experiments.tune import tune as run_search

    searched = search.search or []
    if search.resume and experiment.is_only_flags:
        settings, stored = stored_search(search.out)
        searched = search.search or stored
    else:
        settings = experiment.base()
    for note in experiment.apply(settings):
        print_note(note)
    with report_interrupt(lambda: _how_to_resume_search(search)):
        found = run_search(
            settings,
            search.out,
            search=searched,
            trials=search.trials,
            time_limit=search.time_limit,
            resume=search.resume,
            progress=True,
            report=print_note,
        )
    console.print(results.tuned(found))
    best = quote(str(search.out / "best.toml"))
    print_line(f"train with the best settings: {program()} train --config {best} --out RUN")


def _how_to_resume_search(search: SearchOptions) -> str:
    if not (search.out / "tune.toml").exists():
        return "nothing was saved"
    folder = quote(str(search.out))
    return f"continue with: {program()} tune --resume --out {folder}"
