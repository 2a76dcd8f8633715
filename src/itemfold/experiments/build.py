"""Train what a request describes: settings, data, split, fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from itemfold.data.assumptions import assumptions
from itemfold.data.datasets import is_named, load
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.default_strategy import default_strategy, prefers_time
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import SPLITS
from itemfold.data.splitting.thinning import cold_start
from itemfold.data.splitting.time_splits import time_problem
from itemfold.errors import ItemfoldError
from itemfold.files import check_folder
from itemfold.models.base import Model
from itemfold.settings.overrides import keys
from itemfold.settings.resolve import Request, Settings, given_settings, resolve
from itemfold.settings.schema import Config
from itemfold.training.across_ranks import join_ranks
from itemfold.training.fit import fit_and_test
from itemfold.training.run import Run
from itemfold.validation import check_settings, schema


def run_config(
    request: Request | Config,
    out: str | Path | None = None,
    *,
    data: Interactions | Split | None = None,
    resume: bool = False,
    progress: bool = False,
    started: float | None = None,
    report: Callable[[str], None] | None = None,
    metrics: Sequence[str] | None = None,
) -> Run:
    """Train a request; loaded data can be passed in.

    A budget counts from ``started``, by `time.monotonic`; default: from now. ``report`` is called
    with what was assumed about a file, before training. ``metrics``: see `fit_and_test`.
    """
    started = time.monotonic() if started is None else started
    if out is not None:
        check_folder("out", out)
    settings = resolve(request)
    config = data_and_split(settings)
    model = settings.make_model()
    join_ranks(model, settings.make_sampler(), settings.train.device)
    data = make_data(config) if data is None else data
    split = data if isinstance(data, Split) else make_split(config, data, model)
    if report is not None and isinstance(data, Interactions):
        report_assumptions(data, split, report)
    return fit_and_test(
        settings,
        split,
        out=out,
        resume=resume,
        progress=progress,
        started=started,
        metrics=metrics,
    )


def report_assumptions(data: Interactions, split: Split, report: Callable[[str], None]) -> None:
    """Call ``report`` with the assumptions about a file; named data needs none."""
    for sentence in () if is_named(data) else assumptions(data, split):
        report(sentence)


def data_and_split(settings: Settings) -> Config:
    """The sections ``data`` and ``split``, without settings that depend on data and model.

    If the data determines the strategy, it determines the defaults of that strategy, too.
    """
    is_open = not settings.is_given("split.strategy")
    made = {
        name: value
        for name, value in settings.split.items()
        if value is not None
        and (settings.is_given(f"split.{name}") or not (is_open or name == "new_users"))
    }
    return {"data": settings.data, "split": made}


def make_data(config: Config) -> Interactions:
    """The data of the ``data`` section."""
    section = dict(config.get("data", {}))
    known = keys(config, "data")
    for key in section:
        if key not in known:
            raise ItemfoldError(
                f"'data' has no setting {key!r}; its settings are: {', '.join(known)}"
            )
    if "data" not in section:
        raise ItemfoldError("'data' must be given: a built-in name, a folder or a file")
    return load(section.pop("data"), **section)


def make_split(config: Config, data: Interactions, model: Model | None = None) -> Split:
    """The split of the ``split`` section.

    A strategy that it leaves open depends on the data, and what happens to new users on the model.
    """
    section, notes = dict(config.get("split", {})), list[str]()
    strategy, thin = section.pop("strategy", None), section.pop("cold_start", None)
    if strategy is None:
        strategy = _open_strategy(data, section, thin is not None, notes)
    if model is not None and not model.inductive:
        if "new_users" in schema(SPLITS[strategy]) and "new_users" not in section:
            section["new_users"] = "drop"
            notes.append(f"New users are left out: {type(model).__name__} cannot score them.")
        if strategy == "all":
            section.setdefault("valid_by", "random")  # by time, users may be new
    for key in given_settings(section):
        if (data.user_parts if strategy == "users" else data.held_out) is None:
            what = "test users" if strategy == "users" else "test file"
            raise ItemfoldError(f"'split.{key}' is \"given\", but {data.name!r} has no {what}")
        section.pop(key)
    split: Split = SPLITS[strategy](data, **check_settings(SPLITS[strategy], "split", section))
    split = replace(split, notes=(*notes, *split.notes))
    if thin is None:
        return split
    if not isinstance(thin, dict):
        thin = {"keep": thin}
    return cold_start(split, **check_settings(cold_start, "split.cold_start", thin))


def _open_strategy(
    data: Interactions, section: dict[str, Any], thins: bool, notes: list[str]
) -> str:
    """The default strategy for the data; a note reports unusable times."""
    shares = {name: section[name] for name in ("valid", "test") if name in section}
    if thins or shares.get("test") == "given":
        return "interactions"
    strategy = default_strategy(data, **shares)
    if strategy != "time" and prefers_time(data):
        problem = time_problem(data, **shares)
        notes.append(f"The times are not used, and the split is random: {problem}.")
    elif strategy == "interactions" and data.held_out is None and "time" in data.left_out:
        notes.append("The split is random, because the time column was left out.")
    return strategy
