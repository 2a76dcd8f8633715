"""The commands that train: their options become one configuration, which is run or searched."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from itemrec.cli import options, tables
from itemrec.cli.errors import say
from itemrec.cli.tables import console
from itemrec.errors import ItemrecError
from itemrec.experiments.build import run_config
from itemrec.experiments.overrides import override
from itemrec.experiments.stored import (
    change_of_data,
    default_folder,
    final_config,
    stored_config,
)


def train(
    data: options.DataOrNone = None,
    model: options.Model = None,
    loss: options.Loss = None,
    negatives: options.Negatives = None,
    protocol: options.Protocol = None,
    split: options.Split = None,
    out: options.RunOut = None,
    config: options.ConfigFile = None,
    like: options.Like = None,
    final: options.Final = None,
    set_: options.Sets = None,
    epochs: options.Epochs = None,
    dim: Annotated[int | None, typer.Option(help="Length of a vector.")] = None,
    layers: Annotated[int | None, typer.Option(help="Depth of message passing.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    tau: Annotated[float | None, typer.Option(help="Temperature of the loss.")] = None,
    l2: Annotated[float | None, typer.Option(help="Weight of the L2 term.")] = None,
    batch: Annotated[int | None, typer.Option(help="Users (or interactions) a step.")] = None,
    seed: options.Seed = None,
    device: options.Device = None,
    refit: options.Refit = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    data_root: options.Root = None,
    min_rating: options.MinRating = None,
    k_core: options.KCore = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    rating_col: options.RatingCol = None,
    time_col: options.TimeCol = None,
    titles: options.Titles = None,
) -> None:
    """Train a model, choose the epoch on validation, meet the test users once.

    Example: itemrec train synthetic --model lightgcn --loss item-ndcg --protocol inductive --out r
    """
    if final is not None and (config is not None or like is not None):
        raise ItemrecError("'--config', '--like' and '--final' each give all settings: choose one")
    settings = options.base_of(config, like, data, protocol, split)
    if final is not None:
        settings = final_config(final, data, split)
    if resume and data is None and config is None and like is None and final is None:
        if out is None:
            raise ItemrecError("'--resume' needs the run folder: give --out")
        settings = stored_config(out)
    columns = (user_col, item_col, rating_col, time_col, titles)
    given = options.data_of(data_root, min_rating, k_core, *columns)
    short: dict[str, Any] = {"epochs": epochs, "dim": dim, "layers": layers, "lr": lr, "l2": l2}
    short |= {"tau": tau, "batch": batch, "seed": seed, "device": device, "refit": refit}
    notes = override(
        settings,
        data={"data": data, **given},
        parts={"model": model, "loss": loss, "negatives": negatives},
        protocol=protocol,
        strategy=split,
        short=short,
        sets=set_ or (),
    )
    for note in notes:
        say(note)
    folder = out or (Path(f"{final}-final") if final else default_folder(settings))
    try:
        run = run_config(settings, folder, resume=resume, progress=True)
    except KeyboardInterrupt:
        say(f"interrupted; continue with: itemrec train --resume --out {quote(str(folder))}")
        raise typer.Exit(130) from None
    if final is not None and (note := change_of_data(final, run)):
        say(note)
    console.print(tables.finished(run))
    console.print(f"run folder: {folder}", markup=False, highlight=False, soft_wrap=True)


def tune(
    data: options.DataOrNone = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="lr=0.001..0.03, layers=1,2,3, …; what is usual otherwise."),
    ] = None,
    trials: Annotated[int, typer.Option(help="So many in all, earlier ones included.")] = 20,
    time_limit: Annotated[
        float | None, typer.Option(help="Start no trial after so many seconds.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where trials and best.toml go.")] = Path("tuned"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the one in --out.")] = False,
    model: options.Model = None,
    loss: options.Loss = None,
    negatives: options.Negatives = None,
    protocol: options.Protocol = None,
    split: options.Split = None,
    config: options.ConfigFile = None,
    like: options.Like = None,
    set_: options.Sets = None,
    epochs: options.Epochs = None,
    seed: options.Seed = None,
    device: options.Device = None,
    data_root: options.Root = None,
    min_rating: options.MinRating = None,
    k_core: options.KCore = None,
    user_col: options.UserCol = None,
    item_col: options.ItemCol = None,
    rating_col: options.RatingCol = None,
    time_col: options.TimeCol = None,
    titles: options.Titles = None,
) -> None:
    """Search for settings on validation alone; the test users are not met.

    Example: itemrec tune synthetic --model ease --search model.l2=10..1000 --trials 10
    """
    from itemrec.experiments.tune import stored_search
    from itemrec.experiments.tune import tune as look_for

    settings = options.base_of(config, like, data, protocol, split)
    searched = search or []
    if resume and data is None and config is None and like is None:
        settings, stored = stored_search(out)
        searched = search or stored
    columns = (user_col, item_col, rating_col, time_col, titles)
    given = options.data_of(data_root, min_rating, k_core, *columns)
    notes = override(
        settings,
        data={"data": data, **given},
        parts={"model": model, "loss": loss, "negatives": negatives},
        protocol=protocol,
        strategy=split,
        short={"epochs": epochs, "seed": seed, "device": device},
        sets=set_ or (),
    )
    for note in notes:
        say(note)
    try:
        found = look_for(
            settings,
            out,
            search=searched,
            trials=trials,
            time_limit=time_limit,
            resume=resume,
            progress=True,
        )
    except KeyboardInterrupt:
        told = "interrupted"
        if (out / "tune.toml").exists():
            again = f"itemrec tune --resume --out {quote(str(out))} --trials {trials}"
            told = f"interrupted; continue with: {again}"
        say(told)
        raise typer.Exit(130) from None
    console.print(tables.tuned(found))
    told = f"train it: itemrec train --config {quote(str(out / 'best.toml'))} --out RUN"
    console.print(told, markup=False, highlight=False, soft_wrap=True)
