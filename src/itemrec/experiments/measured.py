"""Measured figures of the models, shipped with the package: what the suite `systems` found.

``python -m itemrec.experiments.measured [RESULTS_FOLDER] [MEASURED.json]`` collects them from result files;
`make results` calls it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from itemrec.files import atomic

SUITE = "systems"
METRICS = ("capped_recall@20", "ndcg@20")
FILE = Path(__file__).with_name("measured.json")

Figures = dict[str, dict[str, dict[str, float]]]  # row → data set/protocol → metric → mean


def collect(results: Path) -> Figures:
    """Means over seeds of every row and data set that has results."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((results / SUITE).glob("*/*-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found[result["row"], result["data"]].append(result["test"])
    out: Figures = {}
    for (row, data), tests in sorted(found.items()):
        means = {m: round(statistics.fmean(t[m] for t in tests), 8) for m in METRICS}
        out.setdefault(row, {})[data] = {**means, "seeds": len(tests)}
    return out


def figures() -> Figures:
    """The figures shipped with this version; none if the file is absent."""
    found: Figures = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def text(found: Figures) -> str:
    """As the file has it."""
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:3]]
    folder, target = [*given, *[Path("results"), FILE][len(given) :]]
    with atomic(target) as draft:
        draft.write_text(text(collect(folder)), encoding="utf-8")
    print(target)
