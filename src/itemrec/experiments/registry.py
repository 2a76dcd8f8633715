"""The components by name, and the sections of a configuration that choose among them.

A configuration has the sections ``data``, ``split``, ``model``, ``loss``, ``negatives`` and
``train``, as in a run's ``config.toml``; missing settings have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from itemrec.config_file import Config
from itemrec.data.datasets import load
from itemrec.data.sources import read
from itemrec.data.splitters import SPLITS
from itemrec.errors import ItemrecError
from itemrec.experiments.defaults import DEFAULTS, PROTOCOL, STRATEGIES
from itemrec.losses import LOSSES
from itemrec.models import MODELS
from itemrec.models.base import Model
from itemrec.sampling import NEGATIVES
from itemrec.training.config import TrainConfig
from itemrec.validation import lookup, schema

SECTIONS = ("data", "split", "model", "loss", "negatives", "train")
TABLES: dict[str, Mapping[str, Any]] = {"model": MODELS, "loss": LOSSES, "negatives": NEGATIVES}
PROTOCOLS = {strategy: protocol for protocol, strategy in STRATEGIES.items()}


def with_names(config: Config) -> Config:
    """Every section with its component named; unknown sections are rejected.

    The default model is the hybrid; if only a loss or a sampler is named, it is LightGCN.
    """
    for name in config:
        if name not in SECTIONS:
            raise ItemrecError(f"unknown section [{name}]; the sections are {', '.join(SECTIONS)}")
    out = {name: dict(config.get(name, {})) for name in SECTIONS}
    named = any("name" in out[name] for name in ("loss", "negatives"))
    out["model"].setdefault("name", "lightgcn" if named else DEFAULTS["model"])
    model: type[Model] = lookup(MODELS, "model", out["model"]["name"])
    defaults = {"loss": model.default_loss, "negatives": model.default_negatives}
    for name, default in defaults.items():
        given = dict(config.get(name, {}))
        if not model.kind.has_lists:
            default = "none"
        elif given.get("name") == "none":  # written for a model without this component
            given.pop("name")
        own = model.default_settings.get(name, {}) if given.get("name", default) == default else {}
        out[name] = {"name": default, **own, **given}
    out["split"].setdefault("strategy", STRATEGIES[PROTOCOL])
    lookup(SPLITS, "split", out["split"]["strategy"])
    return out


def model_class(config: Config) -> type[Model]:
    """The class of the model in a configuration."""
    found: type[Model] = lookup(MODELS, "model", with_names(config)["model"]["name"])
    return found


def protocol_of(config: Config) -> str:
    """The protocol that a split belongs to: by its strategy, or by its own setting."""
    split = with_names(config)["split"]
    return str(split.get("protocol") or PROTOCOLS.get(split["strategy"], PROTOCOL))


def keys(config: Config, section: str) -> list[str]:
    """The settings of a section, given the components of the configuration."""
    if section == "train":
        return list(schema(TrainConfig))
    if section == "data":
        return ["data", *(key for key in {**schema(load), **schema(read)} if key != "name")]
    full = with_names(config)
    if section == "split":
        return ["strategy", *schema(SPLITS[full["split"]["strategy"]]), "cold_start"]
    name = full[section]["name"]
    if name == "none":
        return ["name"]
    return ["name", *schema(lookup(TABLES[section], section, name))]
