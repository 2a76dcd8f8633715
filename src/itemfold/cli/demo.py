"""A demonstration on generated data: BPR, ITEM, EASE and the default, known and unseen users."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from itemfold.cli.report.page import write_report
from itemfold.cli.tables import results
from itemfold.cli.tables.formats import on_terminal
from itemfold.cli.tables.layout import p_phrase, program
from itemfold.cli.tables.recommendations import recommendations
from itemfold.data.datasets import load
from itemfold.evaluation.compare import compare_runs
from itemfold.evaluation.significance import Comparison
from itemfold.experiments.build import run_config
from itemfold.files import check_folder
from itemfold.serving.recommender import Recommender
from itemfold.settings.schema import Config
from itemfold.training.interrupt import raise_if_stopped
from itemfold.training.run import Run
from itemfold.training.run_folder import load_runs

# Small enough that everything takes less than three minutes on two cores.
DATA = "synthetic:users=1500,items=1200,interactions=40000"
# BPR and ITEM have the default settings, except for the list size of the paper (200 negatives), a
# batch that suits small data and the smaller learning rate of BPR in the tables of RESULTS.md (one
# negative per positive, as published). To save time: two layers, fewer epochs, and no refit of any
# system. The hybrid chooses its own settings, within a limit of time.
SYSTEMS: dict[str, Config] = {
    "bpr": {
        "model": {"name": "lightgcn", "layers": 2},
        "loss": {"name": "bpr"},
        "train": {"lr": 0.003, "epochs": 100, "eval_every": 4, "patience": 12},
    },
    "item-ndcg": {
        "model": {"name": "lightgcn", "layers": 2},
        "loss": {"name": "item-ndcg"},
        "train": {
            "n_negatives": 200,
            "batch": 256,
            "epochs": 200,
            "eval_every": 10,
            "patience": 60,
        },
    },
    "ease": {"model": {"name": "ease"}},
    "hybrid": {"model": {"name": "hybrid"}, "train": {"budget": 30.0}},
}
WHAT = {
    "bpr": "LightGCN, a graph neural network, with the BPR loss",
    "item-ndcg": "the same network with ITEM's loss, a smooth NDCG",
    "ease": "EASE, a linear item–item model",
    "hybrid": "the default, the sum of a network, popularity and a linear model",
}
PROTOCOLS = {
    "transductive": ("interactions", "Known users: a fifth of each user's items is held out"),
    "inductive": ("users", "Users never seen in training: a fifth of the users is held out"),
}
METRICS = ("ndcg@20", "recall@20")
LEGEND = (
    "recall@20 is the fraction of the held-out items in a list of 20; ndcg@20 also rewards high "
    "ranks. From 0 to 1, more is better. 95 %: interval of the mean over users. change: relative "
    "to the first row. p: how often chance alone would give as large a change."
)
HISTORY = 4  # items in the history of the example user


def run_demo(
    out: str | Path,
    *,
    console: Console,
    seed: int = 0,
    data: str = DATA,
    **settings: Any,
) -> Path:
    """Train, compare, recommend and write a report; returns the path of the report.

    An interrupted demo continues where it stopped. ``settings`` override training settings.
    """

    out = check_folder("out", out)
    interactions = load(data)
    console.print(
        f"[bold]Generated film ratings[/]: {interactions.n_users:,} users, "
        f"{interactions.n_items:,} films, {len(interactions):,} interactions.\n"
        "Four systems are trained, first for known users, then for unseen ones: "
        "one to three minutes on two cores.\n",
        highlight=False,
    )
    names = [f"{protocol}-{name}" for protocol in PROTOCOLS for name in SYSTEMS]
    for protocol, (strategy, title) in PROTOCOLS.items():
        runs: dict[str, Run] = {}
        for name, system in SYSTEMS.items():
            train = {**system.get("train", {}), "refit": False, **settings, "seed": seed}
            split = {"strategy": strategy, "test": 0.2, "seed": seed}
            config = {**system, "split": split, "train": train}
            folder = out / f"{protocol}-{name}"
            step = f"{names.index(folder.name) + 1} of {len(names)}"
            console.print(f"{step}  {name}: {WHAT[name]} …", style="dim", highlight=False)
            run = run_config(config, folder, data=interactions, resume=True, progress=True)
            runs[name] = raise_if_stopped(run)
        console.print(f"\n[bold]{title}[/]")
        found = compare_runs(runs, METRICS)
        console.print(on_terminal(results.comparison(found)))
        if protocol == "transductive":
            console.print(LEGEND, style="dim", highlight=False)
        for sentence in (losses_compared(runs, found.tests), hybrid_compared(runs)):
            console.print(f"• {sentence}", highlight=False)
        console.print()
    history = recommend_to_new_user(runs["hybrid"], console)
    page = write_report(load_runs([str(out / name) for name in names]), out / "report.html")
    call, same_out = program(), "" if out == Path("demo") else f" --out {out}"
    for line in (
        f"\nruns: {out}/, report with plots and chosen settings: {page}",
        f"recommend: {call} recommend {out}/inductive-hybrid --history {history} --explain",
        f"serve over HTTP, with a web page: {call} demo{same_out} --serve",
        f"train on your own file: {call} train FILE.csv --out runs/mine",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return page


def serve_demo(out: Path) -> None:
    """Serve the runs for unseen users side by side and open the page in a browser."""
    from itemfold.serving.http import ServiceSettings, serve

    runs = [f"{name}={out / f'inductive-{name}'}" for name in reversed(SYSTEMS)]
    settings = ServiceSettings(feedback=out / "feedback")  # for the dashboard
    serve(runs, port=0, workers=1, settings=settings, when_ready=webbrowser.open)


def losses_compared(runs: Mapping[str, Run], found: Comparison) -> str:
    """A sentence that compares ITEM with BPR."""
    seconds = {name: run.metrics["seconds"]["train"] for name, run in runs.items()}
    verdict, p = _verdict(found, "item-ndcg")
    return (
        f"ITEM is {verdict} BPR in NDCG@20 here ({p}), "
        f"after {seconds['item-ndcg']:.0f} s of training against {seconds['bpr']:.0f} s."
    )


def hybrid_compared(runs: Mapping[str, Run]) -> str:
    """A sentence that compares the default with the best of the others."""
    others = {name: run.metrics["test"]["ndcg@20"] for name, run in runs.items()}
    own = others.pop("hybrid")
    best = max(others, key=others.__getitem__)
    found = compare_runs({best: runs[best], "hybrid": runs["hybrid"]})
    verdict, p = _verdict(found.tests, "hybrid")
    change = f", {own / others[best] - 1:+.1%}" if others[best] else ""
    return (
        f"The hybrid, the default of `itemfold train`, is {verdict} {best}, the best of the others "
        f"({p}{change}). It chose its settings on validation. On real data: RESULTS.md."
    )


def _verdict(found: Comparison, name: str) -> tuple[str, str]:
    """A phrase that compares a system with the baseline in NDCG, and the p-value."""
    row = found.row(name, "ndcg@20")
    verdict = "level with" if row.p_t >= 0.05 else "above" if row.test.difference > 0 else "below"
    return verdict, p_phrase(row.p_t)


def recommend_to_new_user(run: Run, console: Console) -> str:
    """Recommend to an example user who liked the most popular items of one genre.

    Returns the items of another history to try: what was recommended first.
    """
    assert run.titles is not None
    assert run.genres is not None
    main = np.array([str(genres).partition("|")[0] for genres in run.genres])
    popularity = np.bincount(run.interactions.indices, minlength=len(main))
    genre = max(sorted(set(main)), key=lambda name: int(popularity[main == name].sum()))
    rows = np.argsort(np.where(main == genre, -popularity, 0), kind="stable")[:HISTORY]
    history = run.item_ids.external(rows).tolist()
    console.print(f"[bold]A new user who is not in the data and liked some {escape(genre)}[/]")
    for row in rows:
        console.print(f"  {run.titles[row]}", highlight=False, markup=False)
    found = Recommender.from_run(run).recommend(history=history, k=5, explain=True)
    console.print(recommendations(found))
    return ",".join(str(pick.item) for pick in found.items[:3])
