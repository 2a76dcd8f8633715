"""Settings in full: every default written out, so that two configurations can be compared."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from itemrec.components import bind, check_settings, lookup, schema
from itemrec.config import Config, normalise
from itemrec.experiment import DEFAULTS, SECTIONS, TABLES, complete, protocol_of
from itemrec.split import SPLITS
from itemrec.train import TrainConfig, resolve

# What has no bearing on the figures is left out.
INDIFFERENT = (
    ("train", "device"),
    ("train", "precision"),
    ("train", "save_seconds"),
    ("negatives", "cache"),
)


def settled(config: Config) -> Config:
    """The settings with every default written out, checked; without those of no consequence."""
    config = complete(config)
    out: dict[str, dict[str, Any]] = {"data": config["data"]}
    split = dict(config["split"])
    verb, thin = split.pop("verb"), split.pop("cold_start", None)
    given = {"test": split.pop("test")} if split.get("test") == "given" else {}
    known = {**schema(SPLITS[verb]), **check_settings(SPLITS[verb], "split", split), **given}
    out["split"] = {"verb": verb, **known, "cold_start": thin}
    made: dict[str, Any] = {}
    for section, table in TABLES.items():
        settings = dict(config[section])
        name = settings.pop("name")
        component = lookup(table, section, DEFAULTS[section] if name == "none" else name)
        known = {**schema(component), **check_settings(component, name, settings)}
        # whatever its constructor refuses is refused here
        made[section] = bind(component, known) if section == "loss" else component(**known)
        out[section] = {"name": name, **known}
    if protocol_of(config) == "inductive":
        made["model"].check_inductive()
    if made["model"].closed_form or made["model"].own_objective:
        out["loss"] = out["negatives"] = {"name": "none"}
    train = check_settings(TrainConfig, "train", config["train"])
    if made["model"].closed_form:  # nothing is descended: the rest has no bearing
        train = {key: train[key] for key in ("metric", "refit", "seed") if key in train}
    out["train"] = asdict(resolve(made["model"], made["loss"], train))
    for section, key in INDIFFERENT:
        out[section].pop(key, None)
    return normalise(out)


def changes(before: Config, now: Config) -> list[str]:
    """The settings in which two settled configurations differ, such as "train.lr".

    A setting that only one of them knows has its default in the other: settings that are added to
    a component later leave older results valid.
    """
    names = {section: {"name": now[section]["name"]} for section in TABLES}
    base = settled({**names, "split": {"verb": now["split"]["verb"]}})
    parts = {s: [c.get(s, {}) for c in (before, now, base)] for s in SECTIONS}
    return [
        f"{section}.{key}"
        for section, (one, two, default) in parts.items()
        for key in dict.fromkeys([*one, *two])
        if one.get(key, default.get(key)) != two.get(key, default.get(key))
    ]
