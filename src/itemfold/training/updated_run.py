"""The run that `update` returns: its settings, data set, notes and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from itemfold.data.array_types import Floats
from itemfold.data.interactions import Interactions
from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.joining import Joined, as_interactions
from itemfold.models.base import Model
from itemfold.settings.schema import Config
from itemfold.training.fingerprint import fingerprint
from itemfold.training.new_data import READING
from itemfold.training.run import Run

SECTION = "update"  # of config.toml and metrics.json
# Metrics of a trained run that do not apply to an updated one.
OF_TRAINING = ("users", "activity", "parts", "trials", "candidates", "among_all_items")


@dataclass(frozen=True)
class UpdatedModel:
    """A model trained on the old and the new data, and how it was updated."""

    model: Model
    epochs: int = 0
    linear: str = ""  # how the linear part was updated
    seconds: float = 0.0


def updated_run(
    run: Run,
    data: Interactions | None,
    joined: Joined,
    updated: UpdatedModel,
    features: ItemFeatures | None,
    times: Floats | None,
) -> Run:
    """The run with an updated model; the given run is unchanged.

    ``data`` has the new interactions, ``joined`` the old and the new ones, and ``times`` the times
    of all of them.
    """
    name, user_ids, item_ids = str(run.dataset["name"]), joined.user_ids, joined.catalogue.item_ids
    dataset = {
        "name": name,
        "fingerprint": as_interactions(joined.train, user_ids, item_ids, name).fingerprint,
        "users": len(user_ids),
        "items": len(item_ids),
        "interactions": int(joined.train.nnz),
    }
    summary = {
        "run": fingerprint(run),
        "run_data": run.dataset["fingerprint"],
        "new_data": "none" if data is None else data.fingerprint,
        "new_interactions": joined.new_interactions,
        "new_users": joined.new_users,
        "new_items": joined.new_items,
        "known_interactions": joined.known,
        "epochs": updated.epochs,
        "linear": updated.linear,
        "updates": run.config.get(SECTION, {}).get("updates", 0) + 1,
    }
    config = _config(run, updated.model, summary)
    notes = (*_notes(run, joined, data), *(() if data is None else data.notes))
    seconds = {"train": round(updated.seconds, 3), "evaluate": 0.0}
    metrics = {key: value for key, value in run.metrics.items() if key not in OF_TRAINING}
    metrics |= {"dataset": dataset, "notes": list(notes), "refit": False, "seconds": seconds}
    metrics |= {"valid": {}, "test": {}, SECTION: summary}
    return Run(
        model=updated.model,
        config=config,
        protocol=run.protocol,
        dataset=dataset,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=joined.catalogue.titles,
        genres=joined.catalogue.genres,
        interactions=joined.train,
        notes=notes,
        metrics=metrics,
        features=features,
        times=times,
    )


def _config(run: Run, model: Model, summary: dict[str, Any]) -> Config:
    """The settings of the run; section data keeps only the reading options."""
    config = {section: dict(values) for section, values in run.config.items()}
    config["data"] = {key: config["data"][key] for key in READING if key in config["data"]}
    seed = config["split"].get("seed", 0)
    config["split"] = {"strategy": "all", "seed": seed, "protocol": run.protocol}
    config["model"] |= model.record()
    config[SECTION] = summary
    return config


def _notes(run: Run, joined: Joined, data: Interactions | None) -> list[str]:
    notes = []
    new = (joined.new_users, joined.new_items)
    if data is not None and new == (data.n_users, data.n_items):
        examples = f"user {run.user_ids.ids[0]} and item {run.item_ids.ids[0]}"
        notes.append(
            "The run knows no user and no item of the new data: are ids written as in its own, "
            f"such as {examples}?"
        )
    if not joined.new_interactions:
        notes.append("The update has no new interactions: the model is unchanged.")
    if run.metrics.get("users", {}).get("judged"):
        notes.append(
            "The original run holds out test interactions, and an update does not add them: to "
            "deploy a model of all data, start from `itemfold train --final RUN`."
        )
    return notes
