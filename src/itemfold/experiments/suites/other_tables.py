"""The two tables that are not suites: counts of data sets, and example recommendations.

``datasets`` counts users, items and interactions in the files. ``qualitative`` shows lists of a few
unseen users by title, ITEM next to BPR. These users are not picked by hand: sorted by how much
better ITEM's NDCG@20 is than BPR's, they are those at 10 %, 50 % and 90 % of the order.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from rich.console import Console

from itemfold.data.datasets import DATASETS, load
from itemfold.data.splitting.split import Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.ranking import mask_history, padded_scores, top_items
from itemfold.experiments.build import make_split, run_config
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.store import write_json
from itemfold.experiments.suites.suite import load_suite
from itemfold.experiments.suites.worker import hardware, load_data
from itemfold.settings.changes import changes
from itemfold.training.interrupt import raise_if_stopped
from itemfold.training.run import Run

SUITE = "inductive"
SYSTEMS = {"ITEM": "item", "BPR": "lightgcn"}  # as shown → row of the suite
DATA = "ml-latest-small"
QUANTILES = (0.1, 0.5, 0.9)
K = 20


def count_datasets(options: Options, console: Console) -> None:
    """Write ``results/datasets.json``; counts of earlier calls stay in the file.

    Data sets that are not available are reported and skipped.
    """
    path = options.home / "datasets.json"
    table: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    names = [name for name in DATASETS if name != "synthetic"]
    if options.datasets is not None:
        names = [Entry.parse(text).data for text in options.datasets]
    for name in dict.fromkeys(names):
        try:
            data = load(name, data_root=options.data_root)
        except ItemfoldError as error:
            if name not in DATASETS:
                raise
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
            continue
        table[name] = {
            "users": data.n_users,
            "items": data.n_items,
            "interactions": len(data),
            "test": data.n_held_out,
            "fingerprint": data.fingerprint,
        }
        console.print(f"datasets: {name} counted", highlight=False, markup=False)
    if table:
        write_json(path, {name: table[name] for name in sorted(table)})


def write_example_lists(options: Options, console: Console) -> None:
    """Write ``results/qualitative.json`` from two trained models, unless it has their settings."""
    first = options.datasets[0] if options.datasets else DATA
    entry = Entry(Entry.parse(first).data, "inductive")
    cells = {cell.row: cell for cell in load_suite(SUITE).cells([entry.key])}
    configs = {name: cells[row].seeded(0) for name, row in SYSTEMS.items()}
    path = options.home / "qualitative.json"
    if path.exists():
        stored = json.loads(path.read_text("utf-8"))["configs"]
        if not any(changes(stored[name], config) for name, config in configs.items()):
            console.print("qualitative: done", highlight=False)
            return
    runs: dict[str, Run] = {}
    for name, config in configs.items():
        console.print(f"qualitative: training {name} on {entry.key}", highlight=False, markup=False)
        here = {part: dict(settings) for part, settings in config.items()}
        here["train"]["device"] = options.device
        if options.data_root is not None:
            here["data"]["data_root"] = str(options.data_root)
        data = load_data(here)
        runs[name] = raise_if_stopped(run_config(here, data=data))
    split = make_split(configs["ITEM"], data)
    content = {
        "users": example_lists(runs, split),
        "data": entry.key,
        "dataset": split.dataset,
        "configs": configs,
        "hardware": hardware(options.device, 1),
    }
    write_json(path, content)


def example_lists(runs: dict[str, Run], split: Split) -> list[dict[str, Any]]:
    """The users shown and their lists: titles, and whether each item is a hit."""
    users = list(next(iter(runs.values())).per_user["user"])
    first, second = (run.per_user["ndcg@20"] for run in runs.values())
    order = np.argsort(first - second, kind="stable")
    shown = []
    for quantile in QUANTILES:
        user = users[order[round(quantile * (len(order) - 1))]]
        row = int(np.flatnonzero(split.test.ids == user)[0])
        taken = set(split.test.target[[row]].indices.tolist())
        lists = {}
        for name, run in runs.items():
            history = split.test.history[[row]]
            scores = padded_scores(run.model, history, split.test.users[row : row + 1])
            top = top_items(mask_history(scores, history), K)[0].tolist()
            lists[name] = {
                "ndcg@20": round(float(run.per_user["ndcg@20"][users.index(user)]), 6),
                "items": [{"title": _name(split, i), "hit": i in taken} for i in top if i >= 0],
            }
        known = int(np.diff(split.test.history.indptr)[row])
        counts = {"history": known, "targets": len(taken)}
        shown.append({"user": str(user), "quantile": quantile, **counts, "lists": lists})
    return shown


def _name(split: Split, item: int) -> str:
    """An item's title, or its id if it has none."""
    title = "" if split.titles is None else str(split.titles[item])
    return title or str(split.item_ids.external(np.array([item]))[0])
