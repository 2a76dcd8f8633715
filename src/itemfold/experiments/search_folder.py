"""The files of a hyper-parameter search, and its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itemfold.data.datasets import DATASETS
from itemfold.errors import ItemfoldError
from itemfold.experiments.search_space import SearchRange
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import difference, load_stored, normalise

FILES = ("tune.toml", "trials.jsonl", "best.toml", "running")


@dataclass(frozen=True)
class Trial:
    """One training run of a search."""

    number: int  # 0 is the given configuration, unchanged
    settings: dict[str, Any]  # {"train.lr": 0.003}; None for a default of None
    value: float | None  # the best validation value; None if the trial failed
    best_epoch: int
    epochs: int
    seconds: float
    error: str = ""


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The first of the trials with the highest value."""
    found = [(trial.value, -trial.number, trial) for trial in trials if trial.value is not None]
    if not found:
        why = (
            f", the first failed with: {trials[0].error}"
            if trials
            else ": 'time_limit' ended before the first"
        )
        raise ItemfoldError(f"none of {len(trials)} trials succeeded{why}")
    return max(found)[2]


def stored_search(folder: str | Path) -> tuple[Config, list[str]]:
    """The ``config`` and the ``search`` stored in a folder, to resume its search."""
    path = Path(folder) / "tune.toml"
    if not path.is_file():
        raise ItemfoldError(f"{folder} holds no search to resume: tune.toml is missing")
    config = load_stored(path)
    config.pop("dataset", None)
    texts = config.pop("search", {}).get("settings")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ItemfoldError(f"{path} is damaged: it has no list 'settings' in [search]")
    return config, texts


def stored_count(folder: Path) -> int | None:
    """The requested number of trials of a stored search, or None."""
    path = folder / "tune.toml"
    found = load_stored(path).get("search", {}).get("trials") if path.exists() else None
    return found if isinstance(found, int) and found > 0 else None


def with_absolute_paths(config: Config) -> Config:
    """Make paths absolute, so that a search can be resumed from any folder."""
    data = dict(config.get("data", {}))
    for key in ("data", "titles", "data_root"):
        name = str(data.get(key) or "")
        if name and name.partition(":")[0] not in DATASETS and Path(name).expanduser().exists():
            data[key] = str(Path(name).expanduser().resolve())
    return {**config, "data": data}


def stored_fingerprint(folder: Path, request: Config, resume: bool) -> str:
    """The fingerprint of the data if the folder holds this search, "" if it is new.

    A folder that holds anything else is rejected.
    """
    if any((folder / name).exists() for name in ("config.toml", "request.toml")):
        raise ItemfoldError(f"{folder} holds a run, not a search: choose another --out")
    if not any((folder / name).exists() for name in FILES):
        return ""
    if not resume:
        raise ItemfoldError(
            f"{folder} already holds a search: continue it with --resume, or choose another --out"
        )
    config, texts = stored_search(folder)
    stored = {**config, "search": {"settings": texts}}
    if changed := difference(stored, normalise(request)):
        raise ItemfoldError(f"{folder} holds a search with other settings: {changed}")
    return str(load_stored(folder / "tune.toml").get("dataset", {}).get("fingerprint", ""))


def stored_trials(path: Path, space: Mapping[str, SearchRange]) -> list[Trial]:
    """The finished trials; an incomplete last line is ignored."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines):
        try:
            content = json.loads(line)
        except json.JSONDecodeError:
            if number < len(lines) - 1:
                raise
            continue
        if not isinstance(content, dict) or set(content) != set(Trial.__dataclass_fields__):
            raise ItemfoldError(f"line {number + 1} is not a trial")
        trial = Trial(**content)
        keys = trial.settings.keys() if isinstance(trial.settings, dict) else ()
        if set(keys) != set(space) or not isinstance(trial.value, float | int | None):
            raise ItemfoldError(f"line {number + 1} is not a trial of this search")
        found.append(trial)
    return found
