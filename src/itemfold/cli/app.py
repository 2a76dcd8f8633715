"""The command line: each command parses its options, then calls one function.

A command imports what it needs when it is called, so that help and mistakes in options do not wait
for torch.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import itemfold
from itemfold import ranks
from itemfold.cli import options
from itemfold.cli.choices import Command
from itemfold.cli.errors import CommandGroup, error_console
from itemfold.cli.evaluate import evaluate_command
from itemfold.cli.export import export_command
from itemfold.cli.forget import forget_command
from itemfold.cli.items import items_command
from itemfold.cli.option_groups import with_options
from itemfold.cli.parsing import parse_optional_list
from itemfold.cli.prepare import prepare_command
from itemfold.cli.recommend import recommend_command
from itemfold.cli.reproduce import reproduce_command
from itemfold.cli.serve import serve_command
from itemfold.cli.tables.layout import console, print_line
from itemfold.cli.train import train
from itemfold.cli.tune import tune
from itemfold.cli.update import update_command
from itemfold.environment import need_extra
from itemfold.extensions import load_extensions

DISTRIBUTED = ("train", "evaluate", "recommend")  # commands that use all ranks of `torchrun`

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train a recommender on a file of who liked what, for known users and for users never "
    "seen before. Begin with `itemfold train FILE --out r`, then `itemfold recommend r --history "
    "ITEM,ITEM`.",
)


def show_version(requested: bool) -> None:
    """Print the version and exit, if `--version` is given."""
    if requested:
        typer.echo(f"itemfold {itemfold.__version__}")
        raise typer.Exit


@app.callback()
def before_command(
    context: typer.Context,
    extension: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py",
            help="A Python file to run before the command, such as one that adds a model to "
            "itemfold.models.MODELS or a loss to itemfold.losses.LOSSES; may be repeated. Use only "
            "files that you trust.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Load extensions before a command reads the tables of components."""
    if ranks.wanted_size() > 1 and context.invoked_subcommand not in DISTRIBUTED:
        if not ranks.is_first():
            raise typer.Exit
        ranks.work_alone()
    load_extensions(extension or ())


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of split and training.")] = 0,
    show: Annotated[
        bool, typer.Option("--serve", help="Then serve the runs and open the web page.")
    ] = False,
) -> None:
    """Compare the default model with BPR, ITEM and EASE on generated data, and write a report.

    Example: itemfold demo
    """
    from itemfold.cli.demo import run_demo, serve_demo

    if show:
        need_extra("serve")
    run_demo(out, seed=seed, console=console)
    if show:
        serve_demo(out)


def datasets_command() -> None:
    """List the named data sets with their home pages.

    Example: itemfold datasets
    """
    from itemfold.cli.tables.catalogue import dataset_table

    console.print(dataset_table())


def models_command(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Show one model in full.")
    ] = None,
    format_: options.Format = "table",
) -> None:
    """List the models with their capabilities and measured figures, or show one in full.

    Example: itemfold models ease
    """
    from itemfold.cli.tables.catalogue import model_table, one_model
    from itemfold.cli.tables.formats import check_format, print_tables

    check_format(format_)
    print_tables([model_table()] if model is None else one_model(model), format_)


@with_options
def describe_command(
    data: options.Data,
    reading: options.DataOptions,
    pagerank: Annotated[
        bool,
        typer.Option("--ppr", help="Also show which negatives PageRank sampling would draw."),
    ] = False,
    as_json: options.AsJson = False,
    format_: options.Format = "table",
) -> None:
    """Show counts, degree histograms, warnings and the fingerprint of a data set.

    Example: itemfold describe plays.csv --user-col listener --item-col track --ppr
    """
    from itemfold.cli.tables import description
    from itemfold.cli.tables.formats import check_format, print_tables
    from itemfold.data.datasets import load
    from itemfold.data.describe import describe
    from itemfold.sampling.ppr_diagnostics import ppr_report

    format_ = "json" if as_json else check_format(format_)
    interactions = load(data, **reading.settings())
    found = describe(interactions)
    negatives = ppr_report(interactions) if pagerank else None
    if format_ == "json":
        content = found.to_dict() | ({"ppr": negatives.to_dict()} if negatives else {})
        typer.echo(json.dumps(content))
        return
    if format_ != "table":
        extra = [description.ppr_table(negatives)] if negatives else []
        print_tables([description.facts_table(found), *extra], format_)
        return
    console.print(description.description(found), soft_wrap=True)  # options can be copied
    if negatives:
        console.print(description.ppr_negatives(negatives))


def compare_command(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Run folders; the first is the baseline."),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(help="Metrics that the runs have stored, such as ndcg@20,mrr@20."),
    ] = None,
    format_: options.Format = "table",
    plot: options.Plot = None,
) -> None:
    """Compare runs on the same data, with paired tests against the first, also by activity.

    Example: itemfold compare runs/bpr runs/item --format markdown --plot compared.svg
    """
    from rich.text import Text

    from itemfold.cli.result_plots import check_plot, compared_plot
    from itemfold.cli.tables import results
    from itemfold.cli.tables.activity import compared_by_activity
    from itemfold.cli.tables.formats import check_format, print_tables
    from itemfold.cli.tables.summary import compared_verdict
    from itemfold.evaluation.activity import shown_metrics
    from itemfold.evaluation.compare import compare_by_activity, compare_runs
    from itemfold.training.run_folder import load_runs

    check_format(format_)
    file = check_plot(plot)
    loaded = load_runs(runs)
    found = compare_runs(loaded, parse_optional_list("metrics", metrics))
    tables = [results.comparison(found)]
    (metric, *_) = shown_metrics(found.values[found.tests.baseline])
    if (compared := compare_by_activity(loaded, metric)).groups:
        tables.append(compared_by_activity(compared))
    if format_ == "table" and len(found.values) == len(loaded):  # otherwise seeds are joined
        console.print(Text(compared_verdict(loaded), "bold"))
    print_tables(tables, format_)
    if file is not None:
        compared_plot(found.values, file)


def report_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The .html file to write.")] = Path("report.html"),
    curves: Annotated[
        bool,
        typer.Option(
            help="Plot accuracy against what each slider, such as diversity, changes; this reads "
            "the data of the runs."
        ),
    ] = True,
) -> None:
    """Write one HTML file with settings, metrics, tests, plots and examples of runs.

    Example: itemfold report runs/bpr runs/item --out report.html
    """
    from itemfold.cli.report.page import write_report

    write_report(runs, out, curves=curves)
    print_line(f"report: {out}")


def doctor_command() -> None:
    """Check versions, devices, kernels and data, and report what is missing.

    Example: itemfold doctor
    """
    from itemfold.cli.doctor import checks, doctor_table

    found = checks()
    console.print(doctor_table(found))
    if any(check.state == "wrong" for check in found):
        raise typer.Exit(1)


COMMANDS: dict[str, dict[str, Callable[..., None]]] = {  # by panel of the help
    "Start here": {
        "train": train,
        "recommend": recommend_command,
        "report": report_command,
        "describe": describe_command,
        "demo": demo_command,
    },
    "Data": {
        "datasets": datasets_command,
        "prepare": prepare_command,
        "update": update_command,
        "items": items_command,
        "forget": forget_command,
    },
    "Models and measurements": {
        "models": models_command,
        "evaluate": evaluate_command,
        "compare": compare_command,
        "tune": tune,
        "reproduce": reproduce_command,
    },
    "Production": {
        "serve": serve_command,
        "export": export_command,
        "doctor": doctor_command,
    },
}
for panel, commands in COMMANDS.items():
    for command_name, function in commands.items():
        app.command(command_name, cls=Command, rich_help_panel=panel)(function)


def main() -> None:
    """Parse the arguments and run their command."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may not know every letter of a title
        sys.stdout.reconfigure(errors="replace")
    console.quiet = error_console.quiet = not ranks.is_first()
    app()
