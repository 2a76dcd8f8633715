"""From a request to a run: settings, data, split, fit."""

from __future__ import annotations

from pathlib import Path

from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.split import Split
from itemfold.data.splitters import SPLITS, cold_start
from itemfold.errors import ItemfoldError
from itemfold.files import check_folder
from itemfold.settings.overrides import keys
from itemfold.settings.resolve import Request, given_settings, resolve
from itemfold.settings.schema import Config
from itemfold.training.across_ranks import join_ranks
from itemfold.training.fit import fit_and_test
from itemfold.training.run import Run
from itemfold.validation import check_settings


def run_config(
    request: Request | Config,
    out: str | Path | None = None,
    *,
    data: Interactions | Split | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Train what a request asks for; data that is already loaded can be passed in."""
    if out is not None:
        check_folder("out", out)
    settings = resolve(request)
    made = {name: value for name, value in settings.split.items() if value is not None}
    config: Config = {"data": settings.data, "split": made}
    join_ranks(settings.make_model(), settings.make_sampler(), settings.train.device)
    data = make_data(config) if data is None else data
    split = data if isinstance(data, Split) else make_split(config, data)
    return fit_and_test(settings, split, out=out, resume=resume, progress=progress)


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


def make_split(config: Config, data: Interactions) -> Split:
    """The split that the ``split`` section describes."""
    section = dict(config.get("split", {}))
    strategy, thin = section.pop("strategy", "interactions"), section.pop("cold_start", None)
    for key in given_settings(section):
        if (data.user_parts if strategy == "users" else data.held_out) is None:
            what = "test users" if strategy == "users" else "test file"
            raise ItemfoldError(f"'split.{key}' is \"given\", but {data.name!r} has no {what}")
        section.pop(key)
    split: Split = SPLITS[strategy](data, **check_settings(SPLITS[strategy], "split", section))
    if thin is None:
        return split
    if not isinstance(thin, dict):
        thin = {"keep": thin}
    return cold_start(split, **check_settings(cold_start, "split.cold_start", thin))
