"""The figures that `itemfold models` shows: means over seeds from the stored results."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from itemfold.experiments.suites.store import read_store

SUITES = ("systems", "hybrid")  # a row is taken from the first that has it
METRICS = ("capped_recall@20", "ndcg@20")
FILE = Path(__file__).parents[1] / "src/itemfold/experiments/measured.json"  # in the wheel

Figures = dict[str, dict[str, dict[str, float]]]  # name → data set/protocol → metric → mean


def collect(results: Path) -> Figures:
    """Means over seeds of every row and data set that has results.

    A row is listed by its own name, or by its model's if no row has that name.
    """
    stored = read_store(results)
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for suite in (suite for suite in SUITES if suite in stored.files):
        runs, known = stored.results(suite), {name for name, _ in found}
        rows = {run["row"] for run in runs}
        for run in runs:
            name = run["row"] if run["model"] in rows else run["model"]
            if name not in known:
                found[name, run["data"]].append(run["test"])
    out: Figures = {}
    for (name, data), tests in sorted(found.items()):
        means = {m: round(statistics.fmean(t[m] for t in tests), 8) for m in METRICS}
        out.setdefault(name, {})[data] = {**means, "seeds": len(tests)}
    return out


def to_text(found: Figures) -> str:
    """The content of the file."""
    return json.dumps(found, indent=1, sort_keys=True) + "\n"
