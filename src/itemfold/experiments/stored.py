"""Settings and splits of stored runs, to evaluate, resume or retrain them on all data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from itemfold.data.joining import later_part
from itemfold.data.preparing.prepared import is_prepared
from itemfold.data.readers.files import is_pattern, short_name
from itemfold.data.readers.remote import is_address
from itemfold.data.splitting.split import Split
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import make_data, make_split
from itemfold.settings.resolve import model_class, protocol_of, with_names
from itemfold.settings.schema import Config
from itemfold.training.new_data import COLUMNS, read_new
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder


def split_of(
    run: Run, data_root: str | Path | None = None, data: str | Path | None = None
) -> Split:
    """The split of a run, recreated from its settings and verified against the run.

    ``data`` is the new location of data that has moved; its fingerprint must be the same.
    """
    if "update" in run.config:
        return _later_split(run, data_root, data)
    config = {name: dict(section) for name, section in run.config.items()}
    if not config.get("data"):
        raise ItemfoldError("this run was trained on data in memory: evaluate it in Python")
    if data_root is not None:
        config["data"]["data_root"] = str(data_root)
    stored = str(config["data"]["data"])
    if data is not None:
        config["data"]["data"] = str(data)
        for name in ("titles", "title", "title_id"):  # evaluation does not need them
            config["data"].pop(name, None)
        if is_prepared(Path(data).expanduser()):  # its rows were read when it was prepared
            for name in COLUMNS:
                config["data"].pop(name, None)
    elif Path(stored).is_absolute() and not (Path(stored).exists() or is_pattern(Path(stored))):
        raise ItemfoldError(f"the data of this run is no longer at {stored}: name it with --data")
    found = make_data(config)
    if found.fingerprint != run.dataset["fingerprint"]:
        raise ItemfoldError(
            f"{found.name!r} is not the data of this run: its fingerprint is {found.fingerprint}, "
            f"expected {run.dataset['fingerprint']}"
        )
    split = make_split(config, found)
    if run.metrics.get("refit"):
        split = split.refit()
    if split.train.shape != run.interactions.shape or not all(
        np.array_equal(getattr(split.train, part), getattr(run.interactions, part))
        for part in ("indptr", "indices")
    ):
        raise ItemfoldError(
            f"the split differs from that of this run: {found.name!r} or the run's config.toml has "
            "changed since it was trained"
        )
    return split


def _later_split(run: Run, data_root: str | Path | None, data: str | Path | None) -> Split:
    """The split of an updated run, with later interactions of its users as the test part."""
    if data is None:
        raise ItemfoldError(
            "this run is an update, which has no test part: name later interactions with --data"
        )
    root = None if data_root is None else str(data_root)
    later = read_new(run.config["data"], str(data), {"data_root": root})
    if later is None:
        raise ItemfoldError(f"{data}: has no interactions")
    test, notes = later_part(run.interactions, run.user_ids, run.item_ids, later)
    return Split(
        protocol="transductive",
        train=run.interactions,
        valid=None,
        test=test,
        user_ids=run.user_ids,
        item_ids=run.item_ids,
        titles=run.titles,
        genres=run.genres,
        dataset=run.dataset,
        settings=run.config["split"],
        notes=tuple(notes),
    )


def default_folder(config: Config) -> Path:
    """``runs/DATA-PROTOCOL-MODEL-LOSS-SEED``; without LOSS if the model has its own objective."""
    config = with_names(config)
    data = str(config["data"].get("data", "data"))
    is_path = is_address(data) or Path(data).exists() or is_pattern(Path(data))
    name = short_name(Path(data)) if is_path else data.partition(":")[0]
    parts = [name, protocol_of(config), config["model"]["name"]]
    parts += [config["loss"]["name"]] if model_class(config).kind.has_lists else []
    return Path("runs") / "-".join([*parts, str(config["train"].get("seed", 0))])


def stored_config(folder: str | Path) -> Config:
    """The request of a run to resume."""
    config = RunFolder(folder).stored_request()
    if config is None:
        raise ItemfoldError(f"{folder} holds no run to resume: request.toml is missing")
    if "update" in config:
        raise ItemfoldError(f"{folder} holds an update, which cannot be resumed: update RUN again")
    return config


def final_config(
    folder: str | Path, data: str | None, strategy: str | None, protocol: str | None
) -> Config:
    """The settings of a finished run, to train on all of its data for the selected epochs."""
    run = Run.load(folder)
    if protocol not in (None, run.protocol):
        raise ItemfoldError(
            f"'protocol' must be {run.protocol} with '--final', as in {folder}, got {protocol!r}"
        )
    if strategy not in (None, "all"):
        raise ItemfoldError(f"'split' must be all with '--final', got {strategy!r}")
    is_update = "update" in run.config
    if is_update and data is None:
        raise ItemfoldError(
            f"{folder} is an update, so '--final' needs a file of all its data: "
            "itemfold train DATA --final RUN"
        )
    if not run.config.get("data") and data is None:
        raise ItemfoldError(
            f"{folder} was trained on data in memory, so '--final' needs its file: "
            "itemfold train DATA --final RUN"
        )
    config = {name: dict(section) for name, section in run.config.items() if name != "update"}
    before = config["split"]
    config["split"] = {"strategy": "all", "seed": before["seed"], "protocol": run.protocol}
    config["split"] |= {"repeats": True} if before.get("repeats") else {}
    config["train"]["epochs"] = max(run.metrics["best_epoch"], 1)
    return config


def change_of_data(folder: str | Path, run: Run) -> str:
    """A note if the data of a run differs from that of the finished run in the folder, or ""."""
    before, now = Run.load(folder).dataset, run.dataset
    if before["fingerprint"] == now["fingerprint"]:
        return ""
    counts = (f"{data['interactions']:,}" for data in (before, now))
    return "the data has changed since {} was trained: {} interactions then, {} now".format(
        folder, *counts
    )
