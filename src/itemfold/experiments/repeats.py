"""Repeated runs of one configuration, with several seeds or folds, and their summary."""

from __future__ import annotations

import copy
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itemfold.data.interactions import Interactions
from itemfold.data.splitting.default_strategy import default_strategy
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import data_and_split, make_data, run_config
from itemfold.files import check_folder, write_text
from itemfold.settings.resolve import Request, resolve
from itemfold.settings.schema import Config
from itemfold.training.interrupt import raise_if_stopped
from itemfold.training.run import Run

BY_TIME = ("time", "rolling")
RANDOM = ("interactions", "users")
SUMMARY = "summary.json"


@dataclass(frozen=True)
class Repeats:
    """Runs of one configuration with different seeds, folds or time windows.

    Attributes:
        kind: "seeds", "folds" or "time windows".
        runs: The runs by the names of their folders.
    """

    kind: str
    runs: dict[str, Run]

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(next(iter(self.runs.values())).metrics["model"])

    def values(self, metric: str, of: str = "test") -> list[float]:
        """A metric of every run; `of` is "test" or "popularity"."""
        found = [run.metrics.get(of) or {} for run in self.runs.values()]
        return [float(metrics[metric]) for metrics in found if metric in metrics]

    def record(self) -> dict[str, Any]:
        """Means, standard deviations and the figures of every run, as in summary.json."""
        first = next(iter(self.runs.values()))
        return {
            "kind": self.kind,
            "model": self.model,
            "metrics": {
                metric: {
                    "mean": statistics.fmean(self.values(metric)),
                    "deviation": deviation(self.values(metric)),
                    "runs": dict(zip(self.runs, self.values(metric), strict=True)),
                }
                for metric in first.metrics["test"]
            },
        }


def deviation(values: list[float]) -> float | None:
    """The standard deviation over runs; None for a single one."""
    return statistics.stdev(values) if len(values) > 1 else None


def repeat(
    base: Config,
    settings: Config,
    source: str,
    folder: Path,
    *,
    seeds: int | None = None,
    folds: int | None = None,
    resume: bool = False,
) -> Repeats:
    """Train and test `seeds` or `folds` times, into folders in ``folder``; data is read once.

    Folds of data that is split by time are successive time windows.

    Raises:
        ItemfoldError: The split has no folds, such as one that was given with the data.
    """
    check_folder("out", folder)
    complete = resolve(Request.from_options(base, settings, source))
    config = data_and_split(complete)
    data = make_data(config)
    if seeds is not None:
        kind, first = "seeds", int(complete.train.seed)
        changes = {
            f"seed-{seed}": {"train": {"seed": seed}, "split": {"seed": seed}}
            for seed in range(first, first + seeds)
        }
    else:
        kind, changes = _folds(folds or 0, config["split"], data)
    runs = {}
    for name, change in changes.items():
        own = copy.deepcopy(settings)
        for section, values in change.items():
            own.setdefault(section, {}).update(values)
        request = Request.from_options(base, own, source)
        run = run_config(request, folder / name, data=data, resume=resume, progress=True)
        runs[name] = raise_if_stopped(run)
        if not run.metrics["test"]:
            raise ItemfoldError(f"'--{kind}' needs a test part, and this split has none")
    found = Repeats(kind, runs)
    write_text(folder / SUMMARY, json.dumps(found.record(), indent=1) + "\n")
    return found


def _folds(
    folds: int, split: dict[str, Any], data: Interactions
) -> tuple[str, dict[str, dict[str, dict[str, Any]]]]:
    """The settings of each fold: the fold of a random split, or the time window."""
    strategy = split.get("strategy") or default_strategy(data)
    if strategy in BY_TIME:
        changed = {"strategy": "rolling", "windows": folds}
        return "time windows", {
            f"window-{n}": {"split": {**changed, "window": n}} for n in range(1, folds + 1)
        }
    given = data.held_out if strategy == "interactions" else data.user_parts
    if strategy not in RANDOM or given is not None:
        why = "the data has a test part of its own" if given is not None else f"got '{strategy}'"
        raise ItemfoldError(f"'--folds' needs a split by interactions, users or time: {why}")
    return "folds", {
        f"fold-{n}": {"split": {"strategy": strategy, "folds": folds, "fold": n}}
        for n in range(1, folds + 1)
    }
