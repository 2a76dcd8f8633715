"""The main job on the embedded data: BPR against ITEM, known and unseen users, and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from itemrec import show
from itemrec.checkpoint import Run
from itemrec.compare import compare_runs, load_runs
from itemrec.config import Config
from itemrec.datasets import load
from itemrec.experiment import Experiment
from itemrec.recommend import Recommender
from itemrec.report import report

# The same model, lists of positives and negatives and budget: only the loss differs.
SETTINGS: dict[str, Any] = {
    "epochs": 200,
    "lr": 0.02,
    "batch": 512,
    "by": "users",
    "positives": 5,
    "sampled": 100,
    "every": 10,
    "patience": 50,
}
SYSTEMS: dict[str, Config] = {
    "bpr": {"model": {"name": "lightgcn"}, "loss": {"name": "bpr"}},
    "item-ndcg": {"model": {"name": "lightgcn"}, "loss": {"name": "item-ndcg"}},
    "ease": {"model": {"name": "ease"}},
}
PROTOCOLS = {
    "transductive": ("interactions", "Known users: a fifth of each user's items is held out"),
    "inductive": ("users", "Users never seen in training: a tenth of the users is held out"),
}
HISTORY = 4  # items of the made-up user


def demo(
    out: str | Path = "demo",
    *,
    seed: int = 0,
    data: str = "synthetic",
    console: Console | None = None,
    **settings: Any,
) -> Path:
    """Train, compare, recommend and report; gives the path of the report.

    An interrupted demo continues where it stopped. ``settings`` replace those of training.
    """
    console = console or Console()
    out = Path(out)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small products: on a busy machine threads wait more than they work
    try:
        return _demo(out, seed, data, console, settings)
    finally:
        torch.set_num_threads(threads)


def _demo(out: Path, seed: int, data: str, console: Console, settings: dict[str, Any]) -> Path:
    interactions = load(data)
    console.print(
        f"[bold]{interactions.name}[/]: {interactions.n_users:,} users, {interactions.n_items:,} "
        f"items, {len(interactions):,} interactions, fingerprint {interactions.fingerprint}"
    )
    for protocol, (verb, told) in PROTOCOLS.items():
        runs: dict[str, Run] = {}
        for name, system in SYSTEMS.items():
            train = {**SETTINGS, **settings, "seed": seed}
            config = {"split": {"verb": verb, "seed": seed}, "train": train, **system}
            console.print(f"{protocol}: training {name} …", style="dim")
            experiment = Experiment.from_config(config, interactions)
            folder = out / f"{protocol}-{name}"
            runs[name] = experiment.run(folder, resume=True, progress=True)
        console.print(f"\n[bold]{told}[/]")
        console.print(show.comparison(*compare_runs(runs)))
    recommend_to_newcomer(runs["item-ndcg"], console)
    names = [f"{protocol}-{name}" for protocol in PROTOCOLS for name in SYSTEMS]
    page = report(load_runs([str(out / name) for name in names]), out / "report.html")
    console.print(f"\nruns and report: {out}/, {page}", highlight=False, soft_wrap=True)
    again = f"itemrec recommend {out}/inductive-item-ndcg --history ID,ID,ID"
    own = "itemrec train FILE.csv --loss item-ndcg --protocol inductive --out runs/mine"
    console.print(f"more recommendations: {again}", highlight=False, soft_wrap=True)
    console.print(f"your own file: {own}", highlight=False, soft_wrap=True)
    return page


def recommend_to_newcomer(run: Run, console: Console) -> None:
    """A made-up user who liked the best-known items of one genre."""
    assert run.titles is not None
    assert run.genres is not None
    main = np.array([str(genres).partition("|")[0] for genres in run.genres])
    popularity = np.bincount(run.train.indices, minlength=len(main))
    genre = max(sorted(set(main)), key=lambda name: int(popularity[main == name].sum()))
    rows = np.argsort(np.where(main == genre, -popularity, 0), kind="stable")[:HISTORY]
    history = run.item_ids.external(rows).tolist()
    console.print(f"\n[bold]A new user nobody has seen, who liked some {genre}[/]")
    for row in rows:
        console.print(f"  {run.titles[row]}", highlight=False, markup=False)
    recommender = Recommender.from_run(run)
    console.print(show.recommendations(recommender.recommend(history=history, k=8, explain=True)))
