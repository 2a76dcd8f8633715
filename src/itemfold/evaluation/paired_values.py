"""Values of several runs for the same users, so that they can be compared in pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats
from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import USER_COLUMNS
from itemfold.evaluation.metrics import parse_metrics

COMPARED_METRICS = ("recall@20", "capped_recall@20", "ndcg@20")
Values = dict[str, dict[str, Floats]]  # by system and metric, of users or [seeds, users]


class EvaluatedRun(Protocol):
    """The attributes of a run that a comparison uses."""

    config: dict[str, dict[str, Any]]
    protocol: str
    dataset: dict[str, Any]
    metrics: dict[str, Any]
    per_user: dict[str, npt.NDArray[Any]]


def paired_values(
    runs: Mapping[str, EvaluatedRun], metrics: Sequence[str] | None
) -> tuple[Values, npt.NDArray[Any], tuple[str, ...]]:
    """Values of each system, ``[users]`` or ``[seeds, users]``, the users' ids, and notes."""
    systems = by_system(runs)
    if 1 < len(systems) < len(runs):
        return _values_of_systems(systems, metrics)
    values, users = common_values(runs, metrics)
    notes = [f"{len(users)} users in common"]
    splits = [run.config.get("split") for run in runs.values()]
    if any(split != splits[0] for split in splits):
        notes.append("the runs were split differently: different items of a user were held out")
    return values, users, tuple(notes)


def common_values(
    runs: Mapping[str, EvaluatedRun], metrics: Sequence[str] | None = None
) -> tuple[Values, npt.NDArray[Any]]:
    """Per-user values of each run, aligned over their common users, and the ids of these."""
    _check_comparable(runs)
    wanted = _stored_metrics(runs, metrics)
    users = _common_users(runs)
    values = {}
    for name, run in runs.items():
        rows = IdMap(run.per_user["user"]).index(users)
        values[name] = {metric: run.per_user[metric][rows] for metric in wanted}
    return values, users


def _common_users(runs: Mapping[str, EvaluatedRun]) -> npt.NDArray[Any]:
    """Ids of the users that every run evaluated, in the order of the first."""
    users = [run.per_user["user"] for run in runs.values()]
    shared = np.all([IdMap(ids).index(users[0]) >= 0 for ids in users], axis=0)
    if not shared.any():
        raise ItemfoldError(
            "the runs must have evaluated users in common, got none; split them with the same seed"
        )
    found: npt.NDArray[Any] = users[0][shared]
    return found


def _check_comparable(runs: Mapping[str, EvaluatedRun]) -> None:
    """Raise if the users of the runs cannot be paired."""
    if len(runs) < 2:
        raise ItemfoldError(f"'runs' must be at least two different runs, got {len(runs)}")
    prints = {name: run.dataset["fingerprint"] for name, run in runs.items()}
    if len(set(prints.values())) > 1:
        listed = ", ".join(f"{name} {value}" for name, value in prints.items())
        raise ItemfoldError(f"the runs must use the same data, got the fingerprints {listed}")
    protocols = {run.protocol for run in runs.values()}
    if len(protocols) > 1:
        raise ItemfoldError("the runs must use one protocol, got transductive and inductive")
    windows = {run.config.get("split", {}).get("window") for run in runs.values()}
    if len(windows) > 1:
        raise ItemfoldError(
            "the runs must be of one time window; itemfold report shows runs of several"
        )
    for name, run in runs.items():
        if "user" not in run.per_user:
            why = "per_user.npz is missing" if run.metrics["test"] else "nothing was held out"
            raise ItemfoldError(f"{name} must have per-user values, got none: {why}")


def _stored_metrics(runs: Mapping[str, EvaluatedRun], metrics: Sequence[str] | None) -> list[str]:
    """The metrics to compare; every run must have stored all of them."""
    wanted = list(COMPARED_METRICS) if metrics is None else [m.key for m in parse_metrics(metrics)]
    known = [
        name
        for name in next(iter(runs.values())).per_user
        if name not in USER_COLUMNS and all(name in run.per_user for run in runs.values())
    ]
    missing = [name for name in wanted if name not in known]
    if missing:
        raise ItemfoldError(
            f"'metrics' must be stored in all runs ({', '.join(known)}), got {missing[0]!r}; "
            "itemfold evaluate computes others"
        )
    return wanted


# --- several seeds of one system ----------------------------------------------------------------

Seed = tuple[Any, Any]  # of the split and of training
Seeds = dict[Seed, EvaluatedRun]
NOT_THE_SYSTEM = ("seed", "device", "precision", "save_seconds")


def by_system(runs: Mapping[str, EvaluatedRun]) -> dict[str, Seeds]:
    """Group runs that differ only in their seeds, under the name of the first run of each group."""
    names: dict[str, str] = {}
    systems: dict[str, Seeds] = {}
    for name, run in runs.items():
        config = {
            section: {key: settings[key] for key in settings if key not in NOT_THE_SYSTEM}
            for section, settings in run.config.items()
        }
        first = names.setdefault(json.dumps(config, sort_keys=True, default=str), name)
        systems.setdefault(first, {})[_seed(run)] = run
    if sum(len(own) for own in systems.values()) < len(runs):  # a run and its copy
        return {name: {_seed(run): run} for name, run in runs.items()}
    return systems


def _seed(run: EvaluatedRun) -> Seed:
    return run.config.get("split", {}).get("seed"), run.config.get("train", {}).get("seed")


def _values_of_systems(
    systems: Mapping[str, Seeds], metrics: Sequence[str] | None
) -> tuple[Values, npt.NDArray[Any], tuple[str, ...]]:
    """Values of systems of several seeds, ``[seeds, users]``, the users' ids, and notes."""
    runs = {f"{name} {seed}": run for name, own in systems.items() for seed, run in own.items()}
    _check_comparable(runs)
    wanted = _stored_metrics(runs, metrics)
    seeds = list(dict.fromkeys(seed for own in systems.values() for seed in own))
    users = IdMap(np.unique(np.concatenate([run.per_user["user"] for run in runs.values()])))
    values = {
        name: {metric: _table(own, seeds, users, metric) for metric in wanted}
        for name, own in systems.items()
    }
    first = next(iter(systems))
    notes = [f"seeds: {', '.join(f'{name} {len(own)}' for name, own in systems.items())}"]
    notes += [
        f"{name} shares no seed with {first}, so it is not tested"
        for name, own in systems.items()
        if not set(own) & set(systems[first])
    ]
    return values, users.ids, tuple(notes)


def _table(own: Seeds, seeds: Sequence[Seed], users: IdMap, metric: str) -> Floats:
    """The values of a metric, ``[seeds, users]``, NaN where a user was not evaluated."""
    out = np.full((len(seeds), len(users.ids)), np.nan)
    for row, seed in enumerate(seeds):
        if seed in own:
            out[row, users.index(own[seed].per_user["user"])] = own[seed].per_user[metric]
    return out
