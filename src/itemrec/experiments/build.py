"""From settings to a run: data, split, and the training plan."""

from __future__ import annotations

from pathlib import Path

from itemrec.config_file import Config
from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.split import Split
from itemrec.data.splitters import SPLITS, cold_start
from itemrec.errors import ItemrecError
from itemrec.experiments.config import Resolved, resolve
from itemrec.experiments.registry import keys
from itemrec.files import check_folder
from itemrec.training.across_ranks import join_ranks
from itemrec.training.loop import run_plan
from itemrec.training.plan import Plan, check_epochs_known
from itemrec.training.run import Run
from itemrec.validation import check_settings


def run_config(
    config: Config,
    out: str | Path | None = None,
    *,
    data: Interactions | Split | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Train according to a configuration; data that is already loaded can be passed in."""
    if out is not None:
        check_folder("out", out)
    settings = resolve(config)
    join_ranks(settings.model, settings.sampler, settings.train.device)  # before data is read
    plan = make_plan(settings, data)
    return run_plan(plan, out=out, resume=resume, progress=progress)


def make_plan(settings: Resolved, data: Interactions | Split | None = None) -> Plan:
    """The plan of resolved settings; the data is read now, unless it or its split is given."""
    if data is None:
        data = make_data(settings.given)
    split = data if isinstance(data, Split) else make_split(settings.given, data)
    check_epochs_known(split, settings.model, settings.given["train"])
    parts = (settings.model, settings.loss, settings.sampler, settings.train)
    return Plan(split, *parts, settings.asked)


def make_data(config: Config) -> Interactions:
    """The data of the ``data`` section."""
    section = dict(config.get("data", {}))
    known = keys(config, "data")
    for key in section:
        if key not in known:
            raise ItemrecError(
                f"'data' has no setting {key!r}; its settings are: {', '.join(known)}"
            )
    if "data" not in section:
        raise ItemrecError("'data' must be given: a built-in name, a folder or a file")
    return load(section.pop("data"), **section)


def make_split(config: Config, data: Interactions) -> Split:
    """The split that the ``split`` section describes."""
    section = dict(config.get("split", {}))
    strategy, thin = section.pop("strategy", "interactions"), section.pop("cold_start", None)
    if section.get("test") == "given":
        if data.held_out is None:
            raise ItemrecError(f"'split.test' is \"given\", but {data.name!r} has no test file")
        section.pop("test")
    split: Split = SPLITS[strategy](data, **check_settings(SPLITS[strategy], "split", section))
    if thin is None:
        return split
    if not isinstance(thin, dict):
        thin = {"keep": thin}
    return cold_start(split, **check_settings(cold_start, "split.cold_start", thin))
