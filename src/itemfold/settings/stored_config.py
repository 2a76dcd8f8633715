"""Stored configurations: the current names of old settings, and comparison with a request."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.models import MODELS
from itemfold.settings.component import TABLES
from itemfold.settings.resolve import Settings, resolve
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import difference
from itemfold.validation import schema

OLD_DEFAULTS = {  # fixed behaviour up to release 0.2, now settings
    "rolling": {"valid_by": "random"},
    "all": {"valid_by": "random"},
    "time": {"new_users": "drop"},
}


def current_config(config: Config) -> Config:
    """A stored configuration with the current names of settings."""
    if "split" in config:
        config = {**config, "split": current_split(config["split"])}
    name = str(config.get("model", {}).get("name"))
    if name not in MODELS:
        return config
    return {**config, "model": MODELS[name].current_settings(config["model"], warn=False)}


def current_split(section: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings of a split, completed with the fixed behaviour of release 0.2."""
    strategy = section.get("strategy")
    if strategy == "all" and not section.get("valid"):
        return dict(section)  # nothing is drawn
    before = {"rounding": "nearest", **OLD_DEFAULTS.get(str(strategy), {})}
    known = schema(SPLITS[strategy]) if strategy in SPLITS else {}
    return {**{key: before[key] for key in before if key in known}, **section}


def difference_of_requests(stored: Config, settings: Settings) -> str:
    """The first setting in which a stored request differs from these settings; "" if none."""
    tables = {
        section: ChainMap({getattr(settings, section).name: getattr(settings, section).kind}, table)  # type: ignore[arg-type]
        for section, table in TABLES.items()
    }
    components = {name: part for name, part in stored.items() if name not in ("data", "split")}
    try:
        before = resolve(components, tables).fixed()
    except ItemfoldError as error:
        return str(error)
    before |= {"data": stored.get("data", {}), "split": stored.get("split", {})}
    return difference(before, settings.fixed())
