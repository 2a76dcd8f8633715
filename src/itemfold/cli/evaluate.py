"""The command `evaluate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from itemfold import ranks
from itemfold.cli import list_options, options
from itemfold.cli.errors import error_console
from itemfold.cli.option_groups import with_options
from itemfold.cli.other_system import OtherSystem
from itemfold.cli.parsing import parse_cutoffs, parse_optional_list
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.cli.tables.formats import ResultTable
    from itemfold.data.splitting.split import Split
    from itemfold.evaluation.evaluation import Evaluation
    from itemfold.evaluation.tradeoff import Sweep
    from itemfold.training.run import Run


@with_options
def evaluate_command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run folder; with --lists also DATA, as for `itemfold train`.",
            show_default=False,
        ),
    ],
    steering: list_options.SteeringOptions,
    rows: options.RowOptions,
    splitting: options.SplitOptions,
    k: Annotated[str, typer.Option(help="Cut-offs, such as 10,20.")] = "20",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics, such as ndcg@10,ap. At a cut-off: {metrics}; over the whole list: "
            "{full_metrics}. Default: all metrics at each k."
        ),
    ] = None,
    lists: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate the lists that any other system made instead: a .csv, .tsv or .parquet "
            "file with columns user and item, and rank or score. Those of a run are compared with "
            "it, by paired tests.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="With --lists and DATA: seed of the split.", rich_help_panel="Split"),
    ] = None,
    fold_in: Annotated[
        str,
        typer.Option(
            help="frozen: use the stored item vectors; joint: add the histories to the graph."
        ),
    ] = "frozen",
    metrics_as: Annotated[
        str | None,
        typer.Option(
            help="Compute metrics as another library does: recbole, lenskit, rectools, implicit or "
            "paper (recall divided by min(targets, k)). Default: as itemfold does."
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Measure lists over the range of a slider: diversity, popularity_discount, "
            "long_tail or freshness.",
            rich_help_panel=list_options.RERANKING,
        ),
    ] = None,
    as_json: options.AsJson = False,
    format_: options.Format = "table",
    plot: options.Plot = None,
    device: options.ScoringDevice = "cpu",
    data_root: options.DataRoot = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="The new location of the run's data, which must be unchanged. For an update: "
            "later interactions to test on.",
            rich_help_panel=options.DATA,
        ),
    ] = None,
) -> None:
    """Evaluate a run on the test users of its own split, which is recreated and verified.

    With --lists, evaluate the lists of any other system on the same users and by the same metrics.

    Metrics beyond accuracy: {definitions}

    Example: itemfold evaluate r --k 10,20 --diversity 0.5 --json
    """
    from itemfold.cli.result_plots import activity_plot, check_plot
    from itemfold.cli.tables.formats import check_format, print_tables
    from itemfold.validation import one_of

    one_of("--fold-in", fold_in, ("frozen", "joint"))
    cutoffs, names = parse_cutoffs(k), parse_optional_list("metrics", metrics)
    settings, format_ = steering.settings(), "json" if as_json else check_format(format_)
    file = check_plot(plot)
    if sweep is not None:
        sweep = check_sweep(sweep, cutoffs, metrics)
        if file is not None:
            raise ItemfoldError("'--plot' does not draw --sweep: itemfold report does")
    if lists is not None and (sweep or fold_in != "frozen" or not settings.is_plain):
        raise ItemfoldError(
            "'--lists' cannot be combined with --sweep, --fold-in and re-ranking options"
        )
    other = OtherSystem(rows, splitting, seed, data_root, data)
    if lists is not None:
        tables, result = other.evaluated(lists, run, cutoffs, names, metrics_as)
        _print(result, run, format_, tables, metrics_as)
        if file is not None:
            activity_plot(result.activity, file)
        return
    other.check_unused()
    from itemfold.cli.tables import results
    from itemfold.evaluation.evaluate import evaluate
    from itemfold.experiments.stored import split_of
    from itemfold.training.run import Run

    ranks.start(device)  # under torchrun every process ranks the items for some of the users
    loaded = Run.load(run, device)
    split = split_of(loaded, data_root, data)
    if sweep is not None:
        found = _sweep(loaded, split, sweep, cutoffs[0], steering)
        if format_ == "json" and ranks.is_first():
            points = [{"value": p.value, "metrics": p.metrics} for p in found.points]
            typer.echo(
                json.dumps({"run": run, "slider": sweep, "users": found.users} | {"points": points})
            )
        elif ranks.is_first():
            print_tables([results.sweep(found)], format_)
        return
    result = evaluate(
        loaded,
        split,
        cutoffs,
        metrics=names,
        fold_in=fold_in,  # type: ignore[arg-type]
        metrics_as=metrics_as,
        steering=settings,
        item_table=steering.table.read(),
    )
    if not ranks.is_first():
        return
    if file is not None:
        activity_plot(result.activity, file)
    notes = list(split.notes) if "update" in loaded.config else []
    _print(result, run, format_, results.evaluation(result, notes), metrics_as)


def _print(
    result: Evaluation, run: str, format_: str, tables: list[ResultTable], metrics_as: str | None
) -> None:
    """Print an evaluation: one JSON object, or its tables."""
    from itemfold.cli.tables.formats import print_tables
    from itemfold.evaluation.activity import activity_record

    if format_ == "json":
        intervals = {name: result.interval(name) for name in result.per_user}
        content = {"run": run, "users": len(result.ids), "metrics": result.metrics}
        content |= {} if metrics_as is None else {"metrics_as": metrics_as}
        content |= {"intervals": intervals, "activity": activity_record(result.activity)}
        content |= {"notes": list(result.notes)} if result.notes else {}
        typer.echo(json.dumps(content))
        return
    if metrics_as is not None:
        first, *others = tables
        note = f"metrics as {metrics_as} defines them"
        tables = [replace(first, notes=(*first.notes, note)), *others]
    print_tables(tables, format_)


def check_sweep(name: str, cutoffs: list[int], metrics: str | None) -> str:
    """The name of a slider; rejects options that --sweep does not allow."""
    from itemfold.reranking.steering import SLIDERS
    from itemfold.validation import one_of

    slider = name.strip().lower().replace("-", "_")
    one_of("--sweep", slider, SLIDERS)
    if len(cutoffs) > 1:
        raise ItemfoldError(f"'--k' must be one number with --sweep, got {len(cutoffs)}")
    if metrics is not None:
        raise ItemfoldError("'--sweep' reports a fixed set of metrics; remove --metrics")
    return slider


def _sweep(
    run: Run, split: Split, slider: str, k: int, steering: list_options.SteeringOptions
) -> Sweep:
    from itemfold.evaluation.tradeoff import SLIDER_VALUES, Sweeper
    from itemfold.training.progress import track

    sweeper = Sweeper(run, split, k=k, item_table=steering.table.read())
    steps = sweeper.sweep(slider, steering.settings())
    shown = track(
        steps, f"measuring {slider}", show=error_console.is_terminal, total=len(SLIDER_VALUES)
    )
    return sweeper.gathered(slider, list(shown))
