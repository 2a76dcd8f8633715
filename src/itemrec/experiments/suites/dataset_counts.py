"""The table ``datasets``: users, items and interactions of every data set, counted in its files."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from itemrec.data.datasets import DATASETS, load
from itemrec.errors import ItemrecError
from itemrec.experiments.suites.options import Options
from itemrec.experiments.suites.overrides import Entry
from itemrec.experiments.suites.store import write_json


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
        except ItemrecError as error:
            if name not in DATASETS:
                raise
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
            continue
        table[name] = {
            "users": data.n_users,
            "items": data.n_items,
            "interactions": len(data),
            "test": 0 if data.held_out is None else int(data.held_out.sum()),
            "fingerprint": data.fingerprint,
        }
        console.print(f"datasets: {name} counted", highlight=False, markup=False)
    if table:
        write_json(path, {name: table[name] for name in sorted(table)})
