"""Measured figures of the models, shipped with the package: results of two suites.

``python -m itemrec.experiments.measured [RESULTS_FOLDER] [MEASURED.json]`` collects them from the
stored results; `make results` calls it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from itemrec.experiments.suites.store import read
from itemrec.files import atomic

SUITES = ("systems", "hybrid")  # a row is taken from the first that has it
METRICS = ("capped_recall@20", "ndcg@20")
FILE = Path(__file__).with_name("measured.json")

Figures = dict[str, dict[str, dict[str, float]]]  # name → data set/protocol → metric → mean


def collect(results: Path) -> Figures:
    """Means over seeds of every row and data set that has results.

    A row is listed by its own name, or by its model's if no row has that name.
    """
    stored = read(results)
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


def figures() -> Figures:
    """The figures shipped with this version; empty if the file is absent."""
    found: Figures = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def text(found: Figures) -> str:
    """The content of the file."""
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:3]]
    folder, target = [*given, *[Path("results"), FILE][len(given) :]]
    with atomic(target) as draft:
        draft.write_text(text(collect(folder)), encoding="utf-8")
    print(target)
