"""A demonstration on embedded data: BPR against ITEM, known and unseen users, and a report."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from itemrec.cli.html_report import report
from itemrec.cli.tables import layout, results
from itemrec.cli.tables import recommendations as recommendation_tables
from itemrec.config_file import Config
from itemrec.data.datasets import load
from itemrec.evaluation.compare import compare_runs
from itemrec.evaluation.significance import Comparison
from itemrec.experiments.build import run_config
from itemrec.files import check_folder
from itemrec.serving.recommender import Recommender
from itemrec.training.run import Run
from itemrec.training.run_folder import load_runs

# The default settings, except for list size and batch size of the paper (200 negatives, 512 users
# per step on small data) and the smaller learning rate of BPR in the tables of RESULTS.md (one
# negative per positive, as published). To save time: two layers, fewer epochs, no refit.
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
            "batch": 512,
            "epochs": 250,
            "eval_every": 10,
            "patience": 40,
        },
    },
    "ease": {"model": {"name": "ease"}},
}
PROTOCOLS = {
    "transductive": ("interactions", "Known users: a fifth of each user's items is held out"),
    "inductive": ("users", "Users never seen in training: a fifth of the users is held out"),
}
HISTORY = 4  # items in the history of the example user


def demo(
    out: str | Path = "demo",
    *,
    seed: int = 0,
    data: str = "synthetic",
    console: Console | None = None,
    **settings: Any,
) -> Path:
    """Train, compare, recommend and write a report; returns the path of the report.

    An interrupted demo continues where it stopped. ``settings`` replace training settings.
    """
    console = console or Console()
    out = check_folder("out", out)
    interactions = load(data)
    console.print(
        f"[bold]{escape(interactions.name)}[/]: {interactions.n_users:,} users, "
        f"{interactions.n_items:,} items, {len(interactions):,} interactions, "
        f"fingerprint {interactions.fingerprint}"
    )
    for protocol, (strategy, title) in PROTOCOLS.items():
        runs: dict[str, Run] = {}
        for name, system in SYSTEMS.items():
            train = {**system.get("train", {}), "refit": False, **settings, "seed": seed}
            split = {"strategy": strategy, "test": 0.2, "seed": seed}
            config = {**system, "split": split, "train": train}
            console.print(f"{protocol}: training {name} …", style="dim")
            folder = out / f"{protocol}-{name}"
            runs[name] = run_config(config, folder, data=interactions, resume=True, progress=True)
        console.print(f"\n[bold]{title}[/]")
        found = compare_runs(runs)
        console.print(results.comparison(*found))
        console.print(conclusion(runs, found[0]), highlight=False)
    recommend_to_new_user(runs["item-ndcg"], console)
    names = [f"{protocol}-{name}" for protocol in PROTOCOLS for name in SYSTEMS]
    page = report(load_runs([str(out / name) for name in names]), out / "report.html")
    again = f"itemrec recommend {out}/inductive-item-ndcg --history ID,ID,ID"
    own = "itemrec train FILE.csv --loss item-ndcg --protocol inductive --out runs/mine"
    for line in (
        f"\nruns and report: {out}/, {page}",
        f"more recommendations: {again}",
        f"the same over HTTP, with a web page: itemrec demo --out {out} --serve",
        f"your own file: {own}",
        "before deploying, retrain on all data: itemrec train --final runs/mine --out runs/serve",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return page


def serve_demo(out: Path) -> None:
    """Serve the runs for unseen users side by side and open the page in a browser."""
    from itemrec.serving.http import serve

    order = ("item-ndcg", "bpr", "ease")
    runs = [f"{name}={out / f'inductive-{name}'}" for name in order]
    serve(runs, port=0, workers=1, when_ready=webbrowser.open)


def conclusion(runs: dict[str, Run], found: Comparison) -> str:
    """A sentence on ITEM and BPR that follows from the figures of the table."""
    row = found.row("item-ndcg", "ndcg@20")
    seconds = {name: run.metrics["seconds"]["train"] for name, run in runs.items()}
    how = "level with" if row.p_t >= 0.05 else "above" if row.test.difference > 0 else "below"
    p = layout.p_value(row.p_t)
    return (
        f"ITEM is {how} BPR in NDCG@20 here (p {p if p.startswith('<') else f'= {p}'}), after "
        f"{seconds['item-ndcg']:.0f} s of training against {seconds['bpr']:.0f} s. "
        "How they compare on real data: RESULTS.md."
    )


def recommend_to_new_user(run: Run, console: Console) -> None:
    """Recommend to an example user who liked the most popular items of one genre."""
    assert run.titles is not None
    assert run.genres is not None
    main = np.array([str(genres).partition("|")[0] for genres in run.genres])
    popularity = np.bincount(run.train.indices, minlength=len(main))
    genre = max(sorted(set(main)), key=lambda name: int(popularity[main == name].sum()))
    rows = np.argsort(np.where(main == genre, -popularity, 0), kind="stable")[:HISTORY]
    history = run.item_ids.external(rows).tolist()
    console.print(f"\n[bold]A new user who is not in the data and liked some {escape(genre)}[/]")
    for row in rows:
        console.print(f"  {run.titles[row]}", highlight=False, markup=False)
    found = Recommender.from_run(run).recommend(history=history, k=8, explain=True)
    console.print(recommendation_tables.recommendations(found))
