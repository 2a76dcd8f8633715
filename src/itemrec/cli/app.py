"""The command line: each command parses its options, then calls one function."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from itemrec.cli import options, tables
from itemrec.cli.errors import Commands, errors
from itemrec.cli.tables import console
from itemrec.cli.train import train, tune
from itemrec.data.datasets import load
from itemrec.environment import need_extra
from itemrec.errors import ItemrecError
from itemrec.evaluation.compare import compare_runs
from itemrec.evaluation.evaluate import evaluate as evaluate_run
from itemrec.experiments.stored import split_of
from itemrec.serving.recommendation_table import check_table_path
from itemrec.serving.recommender import Recommender
from itemrec.training.run import Run
from itemrec.training.run_folder import load_runs

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Top-k recommendation with message-passing GNNs trained on smooth ranking metrics, "
    "for known users and for users never seen before.",
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where runs and report go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of split and training.")] = 0,
) -> None:
    """The main job on embedded data: BPR against ITEM, both protocols, and a report.

    Example: itemrec demo
    """
    from itemrec.cli.demo import demo as run_demo

    run_demo(out, seed=seed, console=console)


@app.command()
def datasets() -> None:
    """The data sets known by name, with their homes.

    Example: itemrec datasets
    """
    console.print(tables.datasets())


@app.command()
def models() -> None:
    """The models, with their papers and what they can do.

    Example: itemrec models
    """
    console.print(tables.models())


@app.command()
def describe(
    data: options.Data,
    data_root: options.Root = None,
    min_rating: options.MinRating = None,
    k_core: options.KCore = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    rating_col: options.RatingCol = None,
    time_col: options.TimeCol = None,
    titles: options.Titles = None,
    pagerank: Annotated[
        bool, typer.Option("--ppr", help="Also what PageRank negatives would draw.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Counts, degree plot, warnings and fingerprint of a data set.

    Example: itemrec describe plays.csv --user-col target --item-col track --ppr
    """
    from itemrec.data.describe import describe as look_at
    from itemrec.data.describe import render
    from itemrec.sampling import ppr_diagnostics

    columns = (user_col, item_col, rating_col, time_col, titles)
    interactions = load(data, **options.data_of(data_root, min_rating, k_core, *columns))
    found = look_at(interactions)
    near = ppr_diagnostics.report(interactions) if pagerank else None
    if as_json:
        typer.echo(json.dumps(found.to_dict() | ({"ppr": near.to_dict()} if near else {})))
        return
    console.print(render(found))
    if near:
        console.print(ppr_diagnostics.render(near))


app.command()(train)
app.command()(tune)


@app.command()
def evaluate(
    run: options.RunFolder,
    k: Annotated[str, typer.Option(help="Cut-offs, such as 10,20.")] = "20",
    metrics: options.Metrics = None,
    fold_in: Annotated[
        str, typer.Option(help="frozen: stored item vectors; joint: histories join the graph.")
    ] = "frozen",
    as_json: options.AsJson = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data_root: options.Root = None,
) -> None:
    """Evaluator a run on the test users of its own split, which is made again and verified.

    Example: itemrec evaluate r --k 10,20 --json
    """
    if fold_in not in ("frozen", "joint"):
        raise ItemrecError(f"'fold_in' must be frozen or joint, got {fold_in!r}")
    cuts, names = (
        options.cuts_of(k),
        options.listed_if("metrics", metrics),
    )
    loaded = Run.load(run, device)
    split = split_of(loaded, data_root)
    result = evaluate_run(loaded, split, cuts, metrics=names, fold_in=fold_in)  # type: ignore[arg-type]
    if as_json:
        spans = {name: result.interval(name) for name in result.per_user}
        content = {"run": run, "users": len(result.ids), "metrics": result.metrics}
        typer.echo(json.dumps({**content, "intervals": spans}))
    else:
        console.print(tables.evaluation(result))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN …", help="The first is the base.")],
    metrics: options.Stored = None,
) -> None:
    """Runs of the same data in one table, with paired tests against the first.

    Example: itemrec compare runs/bpr runs/item
    """
    names = options.listed_if("metrics", metrics)
    console.print(tables.comparison(*compare_runs(load_runs(runs), names)))


@app.command()
def recommend(
    run: options.RunFolder,
    user: Annotated[str | None, typer.Option(help="A user of the training data.")] = None,
    history: options.History = None,
    everybody: Annotated[bool, typer.Option("--all", help="All users, into --out.")] = False,
    k: Annotated[int, typer.Option("-k", "--k", help="How many.")] = 20,
    out: Annotated[Path | None, typer.Option(help="A .parquet, .csv or .tsv file.")] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Seen items may come back.")] = False,
    only: options.Only = None,
    without: options.Without = None,
    genre: Annotated[str | None, typer.Option(help="Of one of these genres, such as War.")] = None,
    explain: Annotated[
        bool | None, typer.Option("--explain/--no-explain", help="Reasons; on where exact.")
    ] = None,
    as_json: options.AsJson = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Recommend to a known user, to anybody with a history, or to all users.

    Example: itemrec recommend r --history "1,260,1196" -k 10
    """
    if (user is not None) + (history is not None) + everybody != 1:
        raise ItemrecError("give one of --user, --history and --all")
    if everybody and out is None:
        raise ItemrecError("'--all' needs a file to write to: give --out recs.parquet")
    for name, asked in (("--explain", explain), ("--json", as_json)):
        if everybody and asked:
            raise ItemrecError(f"'{name}' is for a single list; --all writes a table to --out")
    if out is not None:
        if not everybody:
            raise ItemrecError("'--out' is for --all; a single list is printed, also with --json")
        check_table_path(out)
    recommender = Recommender.load(run, device)
    known, given = recommender.run.item_ids, options.given_of({"only": only, "without": without})
    filters: dict[str, Any] = {
        name: options.ids_of(name, text, known) for name, text in given.items()
    }
    filters["genre"] = options.listed_if("genre", genre)
    filters["exclude_seen"] = not seen
    if everybody:
        assert out is not None
        lists = recommender.recommend_all(k, progress=errors.is_terminal, **filters)
        lists.save(out)
        console.print(tables.written(lists, k, out, recommender.run), soft_wrap=True)
        return
    found = recommender.recommend(
        user,
        history=None if history is None else options.ids_of("history", history, known),
        k=k,
        explain=recommender.model.explains if explain is None else explain,
        **filters,
    )
    if as_json:
        from dataclasses import asdict

        typer.echo(json.dumps(asdict(found)))
    else:
        console.print(tables.recommendations(found))


@app.command()
def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN …", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The .html file to write.")] = Path("report.html"),
) -> None:
    """One HTML file with settings, figures, tests, plots and examples of one run or several.

    Example: itemrec report runs/bpr runs/item --out report.html
    """
    from itemrec.cli.html_report import report as write

    write(runs, out)
    console.print(f"report: {out}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def serve(
    run: options.RunFolder,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0: everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen; 0: any that is free.")] = 8000,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Answer over HTTP, for known users and for anybody with a history, with a page to try it.

    Example: itemrec serve r --port 8000
    """
    need_extra("serve")
    from itemrec.serving.http import serve as answer

    answer(run, host=host, port=port, device=device)


@app.command()
def reproduce(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A name, datasets, qualitative, a file, all.")
    ],
    datasets_: Annotated[
        str | None, typer.Option("--datasets", help="Such as ml-1m,yelp2018/inductive.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Only these rows, such as bpr,item.")] = None,
    seeds: Annotated[int | None, typer.Option(help="So many, instead of the suite's.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    jobs: Annotated[int, typer.Option(help="Runs side by side.")] = 1,
    data_root: options.Root = None,
    results: Annotated[Path, typer.Option(help="Where figures go.")] = Path("results"),
    per_user: Annotated[
        Path | None, typer.Option(help="Where values of single users go; the cache by default.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Start no run after so many seconds.")
    ] = None,
) -> None:
    """Run a suite: rows × data sets × seeds; what is done is skipped, so call it again at will.

    Example: itemrec reproduce negatives --datasets synthetic --jobs 2
    """
    from itemrec.experiments.suites.options import Options
    from itemrec.experiments.suites.overrides import split_names
    from itemrec.experiments.suites.reproduce import reproduce_all

    chosen = Options(
        datasets=None if datasets_ is None else split_names(datasets_),
        rows=options.listed_if("rows", rows),
        seeds=seeds,
        device=device,
        jobs=jobs,
        data_root=data_root,
        results=results,
        per_user=per_user,
        time_limit=time_limit,
    )
    done = reproduce_all(suite, chosen, errors)
    if not done:
        raise typer.Exit(1)


@app.command()
def doctor() -> None:
    """Versions, devices, kernels and data: what there is and what is missing.

    Example: itemrec doctor
    """
    from itemrec.cli.doctor import checks

    found = checks()
    console.print(tables.health(found))
    if any(check.bad for check in found):
        raise typer.Exit(1)


def main() -> None:
    """The entry point of ``itemrec``."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a title may not exist in a terminal's encoding
        sys.stdout.reconfigure(errors="replace")
    app()
