"""The run that an update makes: its settings, its facts, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from itemrec.data.interactions import Interactions
from itemrec.data.item_features import ItemFeatures
from itemrec.data.joining import Joined, as_interactions
from itemrec.models.base import Model
from itemrec.settings.schema import Config
from itemrec.training.fingerprint import fingerprint
from itemrec.training.new_data import READING
from itemrec.training.run import Run

SECTION = "update"  # of config.toml and metrics.json
OF_TRAINING = (  # metrics that an update does not have
    "users",
    "parts",
    "trials",
    "candidates",
    "among_all_items",
)


@dataclass(frozen=True)
class Outcome:
    """A model that knows the new data, and what was done."""

    model: Model
    epochs: int = 0
    linear: str = ""  # how the linear part was updated
    seconds: float = 0.0


def updated_run(
    run: Run,
    data: Interactions | None,
    joined: Joined,
    outcome: Outcome,
    features: ItemFeatures | None,
) -> Run:
    """The new run; the old one is unchanged."""
    done = _done(run, data, joined, outcome)
    config = _config(run, outcome.model, done)
    notes = (*_notes(run, done), *(() if data is None else data.notes))
    facts = _facts(run, joined)
    seconds = {"train": round(outcome.seconds, 3), "evaluate": 0.0}
    metrics = {key: value for key, value in run.metrics.items() if key not in OF_TRAINING}
    metrics |= {"dataset": facts, "notes": list(notes), "refit": False, "seconds": seconds}
    metrics |= {"valid": {}, "test": {}, SECTION: done}
    return Run(
        model=outcome.model,
        config=config,
        protocol=run.protocol,
        dataset=facts,
        user_ids=joined.user_ids,
        item_ids=joined.catalogue.item_ids,
        titles=joined.catalogue.titles,
        genres=joined.catalogue.genres,
        train=joined.train,
        notes=notes,
        metrics=metrics,
        features=features,
    )


def _facts(run: Run, joined: Joined) -> dict[str, Any]:
    """The data set: all interactions of the run, old and new."""
    name, ids = str(run.dataset["name"]), (joined.user_ids, joined.catalogue.item_ids)
    return {
        "name": name,
        "fingerprint": as_interactions(joined.train, *ids, name).fingerprint,
        "users": len(ids[0]),
        "items": len(ids[1]),
        "interactions": int(joined.train.nnz),
    }


def _done(run: Run, data: Interactions | None, joined: Joined, outcome: Outcome) -> dict[str, Any]:
    return {
        "run": fingerprint(run),
        "run_data": run.dataset["fingerprint"],
        "new_data": "none" if data is None else data.fingerprint,
        "new_interactions": joined.new_interactions,
        "new_users": joined.new_users,
        "new_items": joined.new_items,
        "known_interactions": joined.known,
        "epochs": outcome.epochs,
        "linear": outcome.linear,
        "updates": run.config.get(SECTION, {}).get("updates", 0) + 1,
    }


def _config(run: Run, model: Model, done: dict[str, Any]) -> Config:
    """The settings of the run; its data is no longer one source: only how it was read stays."""
    config = {section: dict(values) for section, values in run.config.items()}
    config["data"] = {key: config["data"][key] for key in READING if key in config["data"]}
    seed = config["split"].get("seed", 0)
    config["split"] = {"strategy": "all", "seed": seed, "protocol": run.protocol}
    config["model"] |= model.record()
    config[SECTION] = done
    return config


def _notes(run: Run, done: dict[str, Any]) -> list[str]:
    notes = []
    if not done["new_interactions"]:
        notes.append("Nothing was new: the model is the same as before.")
    if run.metrics.get("users", {}).get("judged"):
        notes.append(
            "The run that was updated holds out test interactions, which an update does not add: "
            "to deploy a model of all data, begin with `itemrec train --final RUN`."
        )
    return notes
