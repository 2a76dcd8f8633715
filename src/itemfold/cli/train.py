"""The command `train`."""

from __future__ import annotations

import copy
import signal
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from itemfold import ranks
from itemfold.cli.errors import error_console, print_note, report_interrupt
from itemfold.cli.option_groups import with_options
from itemfold.cli.options import CONFIGURATION, ExperimentOptions
from itemfold.cli.parsing import parse_optional_list
from itemfold.cli.signals import STARTED
from itemfold.cli.tables.formats import on_terminal
from itemfold.cli.tables.layout import console, print_line, program
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.settings.schema import Config
    from itemfold.training.run import Run

REPEATED, OUTPUT = "Several runs", "Output"
LOOKED_AT = 1000  # items, of which an example of a history names two


@dataclass(frozen=True)
class RunOptions:
    """Options of the run: its folder, what it resumes or repeats, and its output."""

    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; default: runs/ and data, protocol, model, loss and seed."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Train and test with this many seeds, into folders in --out; shows means ± "
            "standard deviations.",
            rich_help_panel=REPEATED,
        ),
    ] = None
    folds: Annotated[
        int | None,
        typer.Option(
            help="Train and test on this many folds, which test every user or interaction once; "
            "for a file with timestamps, on successive time windows.",
            rich_help_panel=REPEATED,
        ),
    ] = None
    final: Annotated[
        Path | None,
        typer.Option(
            help="A finished run folder, whose model is retrained on all data for deployment.",
            rich_help_panel=CONFIGURATION,
        ),
    ] = None
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics to print, such as ndcg@20,mrr@20,gini@20. Default: ndcg, "
            "recall, hit, coverage and novelty. All are stored.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            help="Also print all metrics, users by activity, the parts of a hybrid and the "
            "selected settings.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    track: Annotated[
        list[str] | None,
        typer.Option(
            help="At the end, also write settings, curves and metrics to mlflow or tensorboard; "
            "may be repeated.",
            rich_help_panel=OUTPUT,
        ),
    ] = None


@with_options
def train(experiment: ExperimentOptions, run: RunOptions) -> None:
    """Train a model, select its settings on validation data, and evaluate it once on test data.

    Only DATA is required; the defaults for columns, split and model are printed. To train one model
    with several processes: torchrun --nproc-per-node N -m itemfold train plays.csv.

    Example: itemfold train plays.csv --titles films.csv --budget 60s --out r
    """
    if experiment.data is not None and ranks.is_first() and error_console.is_terminal:
        print_note(f"reading {experiment.data}")
    from itemfold.cli.tables.summary import check_shown
    from itemfold.experiments.build import run_config
    from itemfold.experiments.stored import change_of_data, default_folder
    from itemfold.settings.resolve import Request
    from itemfold.training.tracking import check_tracker

    for name in run.track or ():
        check_tracker(name)
    shown = check_shown(parse_optional_list("metrics", run.metrics))
    settings, source = _settings_before_options(experiment, run)
    base = copy.deepcopy(settings)
    for note in experiment.apply(settings):
        print_note(note)
    folder = run.out or (Path(f"{run.final}-final") if run.final else default_folder(settings))
    if run.seeds is not None or run.folds is not None:
        _train_repeatedly(base, settings, source, folder, run, shown)
        return
    printed: list[str] = []  # notes printed before training

    def report(note: str) -> None:
        print_note(note)
        printed.append(note)

    with report_interrupt(lambda: _how_to_resume(folder)):
        request = Request.from_options(base, settings, source)
        trained = run_config(
            request, folder, resume=run.resume, progress=True, started=STARTED, report=report
        )
    if not ranks.is_first():
        return
    if run.final is not None and (note := change_of_data(run.final, trained)):
        print_note(note)
    _print_results(trained, shown, printed, run.details)
    print_line(f"run folder: {folder}")
    for line in _next_commands(trained, quote(str(folder))):
        print_line(line)
    for name in run.track or ():
        print_line(f"{name}: {trained.track(name, folder)}")
    if not trained.metrics.get("complete", True):
        print_note(f"stopped at the best epoch so far; {_how_to_resume(folder)}")
        raise typer.Exit(128 + signal.SIGINT)


def _print_results(
    trained: Run, shown: list[str] | None, printed: list[str], with_details: bool
) -> None:
    """Print the summary, one list, and the notes that were not printed before training."""
    from itemfold.cli.tables.details import chosen, details
    from itemfold.cli.tables.summary import example_list, how_trained, summary

    console.print(summary(trained, shown))
    if ranks.size() == 1:  # several processes score together
        console.print(example_list(trained))
    for note in trained.notes:
        if not any(note in line for line in printed):
            console.print(Text(f"note: {note}", "dim"))
    if with_details:
        console.print(details(trained))
        for line in chosen(trained):
            print_line(line)
    print_line(how_trained(trained))


def _train_repeatedly(
    base: Config,
    settings: Config,
    source: str,
    folder: Path,
    run: RunOptions,
    shown: list[str] | None,
) -> None:
    """Train with several seeds or folds, and print means and deviations."""
    from itemfold.cli.tables.repeats import check_repeats, repeated_table, repeated_verdict
    from itemfold.experiments.repeats import repeat

    check_repeats(run.seeds, run.folds, final=run.final is not None, tracks=bool(run.track))
    with report_interrupt(lambda: f"continue with the same command and --resume, into {folder}"):
        found = repeat(
            base, settings, source, folder, seeds=run.seeds, folds=run.folds, resume=run.resume
        )
    if ranks.is_first():
        console.print(on_terminal(repeated_table(found, shown)))
        print_line(repeated_verdict(found))
        print_line(f"runs and summary.json: {folder}")


def _next_commands(trained: Run, folder: str) -> list[str]:
    """Lines with the commands that usually follow training."""
    from itemfold.cli.tables.summary import shorter_lists

    lines = []
    if trained.metrics["test"]:
        lines.append(f"all metrics, plots and settings: {program()} report {folder}")
        if k := shorter_lists(trained):
            lines.append(f"metrics of shorter lists: {program()} evaluate {folder} --k {k}")
    explain = " --explain" if trained.model.explains else ""
    lines.append(f"recommend: {program()} recommend {folder} {_example_user(trained)}{explain}")
    if trained.metrics["test"]:
        lines.append(f"before deploying, train on all data: {program()} train --final {folder}")
    return lines


def _example_user(trained: Run) -> str:
    """The option of `recommend` for a new user, or for a known one if the model needs that."""
    try:
        trained.model.check_inductive()
    except ItemfoldError:
        ends = trained.interactions.indptr
        first = (ends[1:] > ends[:-1]).argmax()  # the first user with interactions
        return f"--user {quote(str(trained.user_ids.ids[first]))}"
    ids = [str(item) for item in trained.item_ids.ids[:LOOKED_AT].tolist()]
    liked = [item for item in ids if "," not in item][:2] or ids[:1]
    return f"--history {quote(','.join(liked))}"


def _how_to_resume(folder: Path) -> str:
    if not any((folder / name).exists() for name in ("state.pt", "metrics.json")):
        return "nothing was saved"
    return f"continue with: {program()} train --resume --out {quote(str(folder))}"


def _settings_before_options(experiment: ExperimentOptions, run: RunOptions) -> tuple[Config, str]:
    """The settings of a file, a table row or a run, and the name of their source."""
    from itemfold.experiments.stored import final_config, stored_config

    configuration = experiment.configuration
    if run.final is not None:
        if configuration.config is not None or configuration.like is not None:
            raise ItemfoldError(
                "'--config', '--like' and '--final' each give all settings: use only one"
            )
        split = experiment.split
        return final_config(run.final, experiment.data, split.split, split.protocol), "--final"
    if run.resume and experiment.is_only_flags:
        if run.out is None:
            raise ItemfoldError("'--resume' needs the run folder: name it with --out")
        return stored_config(run.out), "given"
    return experiment.base(), "file" if configuration.like is None else "row of a table"
