"""Paired tests of a suite: every row against its baseline, over users, corrected after Holm."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from itemrec.evaluation.significance import Floats, holm, paired_test
from itemrec.experiments.suites.overrides import Entry
from itemrec.experiments.suites.suite import Suite
from itemrec.experiments.suites.worker import write_json

FILE = "tests.json"


@dataclass(frozen=True)
class Values:
    """Values of the users of one run."""

    run: str
    users: list[Any]
    metrics: dict[str, Floats]


def read_values(path: Path) -> Values | None:
    """The per-user file of a run, or None where there is none that can be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            metrics = {
                name: file[name].astype(np.float64)
                for name in file.files
                if name not in ("user", "run")
            }
            return Values(str(file["run"]), file["user"].tolist(), metrics)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None


def user_means(runs: list[Values], metric: str) -> dict[Any, float]:
    """Each user's mean over the runs that judged them."""
    total: dict[Any, list[float]] = {}
    for run in runs:
        for user, value in zip(run.users, run.metrics[metric].tolist(), strict=True):
            total.setdefault(user, []).append(value)
    return {user: math.fsum(values) / len(values) for user, values in total.items()}


def write_tests(suite: Suite, entry: Entry, results: Path, per_user: Path) -> list[str]:
    """Write ``tests.json`` of a data set; notes where it cannot be done.

    A row and its baseline are compared over the seeds that both have, user by user: a user's value
    is the mean over those seeds in which the user was judged. All p-values of the data set, over
    rows and metrics, are corrected together. Nothing is written unless the values of all finished
    runs are at hand, so that a machine that has only some of them spoils nothing.
    """
    found: dict[str, dict[int, Values]] = {row: {} for row in suite.rows}
    missing = []
    for path in sorted((results / suite.name / entry.folder).glob("*-*.json")):
        row, _, seed = path.stem.rpartition("-")
        if row not in found or not seed.isdigit():
            continue
        values = read_values(per_user / suite.name / entry.folder / f"{path.stem}.npz")
        result = json.loads(path.read_text(encoding="utf-8"))
        if values is None or values.run != result["id"]:
            missing.append(path.stem)
        else:
            found[row][int(seed)] = values
    if missing:
        return [
            f"{entry.key}: {FILE} is left as it was, the per-user values of {len(missing)} runs "
            f"are not in {per_user}"
        ]
    bases = {row: suite.baseline_of(row) for row in found}
    rows = {row: set(runs) & set(found[bases[row]]) for row, runs in found.items()}
    rows = {row: seeds for row, seeds in rows.items() if seeds and row != bases[row]}
    if not rows:
        return []
    tests = []
    for row, seeds in rows.items():
        base = found[bases[row]]
        for metric in suite.columns:
            if not all(metric in run.metrics for run in (*found[row].values(), *base.values())):
                continue  # of the catalogue, not of users
            mine = user_means([found[row][seed] for seed in sorted(seeds)], metric)
            theirs = user_means([base[seed] for seed in sorted(seeds)], metric)
            users = [user for user in mine if user in theirs]
            test = paired_test([mine[u] for u in users], [theirs[u] for u in users])
            tests.append((row, metric, sorted(seeds), test))
    p_t = holm([test.p_t for *_, test in tests])
    p_wilcoxon = holm([test.p_wilcoxon for *_, test in tests])
    content: dict[str, Any] = {"baseline": suite.baseline, "data": entry.key, "rows": {}}
    content["runs"] = {  # what was compared, to notice when a result is newer
        f"{row}-{seed}": run.run for row, runs in found.items() for seed, run in runs.items()
    }
    for n, (row, metric, used, test) in enumerate(tests):
        figures = {
            "users": test.n,
            "difference": test.difference,
            "effect_size": test.effect_size,
            "p_t": float(p_t[n]),
            "p_wilcoxon": float(p_wilcoxon[n]),
            "uncorrected": {"p_t": test.p_t, "p_wilcoxon": test.p_wilcoxon},
        }
        own = {} if bases[row] == suite.baseline else {"baseline": bases[row]}
        content["rows"].setdefault(row, {"seeds": used, **own})[metric] = _finite(figures)
    write_json(results / suite.name / entry.folder / FILE, content)
    return []


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: None stands for it."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in figures.items()
    }
