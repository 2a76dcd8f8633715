"""Changes to a configuration: options, ``key=value`` texts, another component."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from itemrec.config_file import Config
from itemrec.data.splitters import SPLITS
from itemrec.errors import ItemrecError
from itemrec.experiments.config import OF_CLOSED_FORMS
from itemrec.experiments.defaults import STRATEGIES
from itemrec.experiments.registry import (
    PROTOCOLS,
    SECTIONS,
    TABLES,
    keys,
    model_class,
    protocol_of,
    with_names,
)
from itemrec.models.base import Kind
from itemrec.renamed import RENAMED, current_names
from itemrec.validation import lookup, one_of


def assign(config: Config, text: str) -> None:
    """Set ``section.key=value``, or ``key=value`` if only one section has the key.

    >>> config = {"model": {"name": "lightgcn"}}
    >>> assign(config, "dim=16")
    >>> assign(config, "split.seed=3")
    >>> config["model"]["dim"], config["split"]["seed"]
    (16, 3)
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise ItemrecError(f"'--set' must look like model.dim=64, got {text!r}")
    known = {name: keys(config, name) for name in SECTIONS}
    section, rest = _place(key, known)
    config.setdefault(section, {})[rest] = parse_value(value)


def _place(key: str, known: Mapping[str, list[str]]) -> tuple[str, str]:
    """Section and name of a key that may be written without its section, or by an old name."""
    section, dot, rest = key.partition(".")
    if dot:
        (rest,) = current_names(section, {rest: None})
        if section not in known or rest not in known[section]:
            choices = known.get(section)
            what = f"[{section}] has {', '.join(choices)}" if choices else _listing(known)
            raise ItemrecError(f"'--set' has no key {key!r}; {what}")
        return section, rest
    places = [name for name, choices in known.items() if key in choices]
    if not places:  # an unknown key may be an old name
        places = [name for name in known if key in RENAMED.get(name, {})]
    if not places:
        raise ItemrecError(f"'--set' has no key {key!r}; {_listing(known)}")
    if len(places) > 1:
        options = " or ".join(f"{name}.{key}" for name in places)
        raise ItemrecError(f"'--set' key {key!r} is ambiguous: write {options}")
    (name,) = current_names(places[0], {key: None})
    return places[0], name


def parse_value(text: str) -> Any:
    """A number, true or false, a list, or else text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also for numbers of thousands of digits
        return text


def choose(config: Config, section: str, name: str) -> str:
    """Choose a component by name; the settings of the previous component are dropped.

    Returns a note if the model does not use it, as `shortcut` does.
    """
    lookup(TABLES[section], section, name)
    if section != "model" and not model_class(config).kind.has_lists:
        model = with_names(config)["model"]["name"]
        return f"{model} has its own objective: --{section} is not used"
    if with_names(config)[section]["name"] != name:
        config[section] = {}
    config.setdefault(section, {})["name"] = name
    return ""


def choose_split(config: Config, protocol: str | None, strategy: str | None) -> None:
    """Set the split strategy from a protocol, a strategy, or both."""
    stored = config.get("split", {}).get("strategy")
    if strategy is not None:
        lookup(SPLITS, "split", strategy)
    elif stored == "all":
        strategy = "all"  # the protocol only determines whether users have their own vectors
    if protocol is not None:
        one_of("protocol", protocol, ("transductive", "inductive"))
        if strategy is None and config.get("split") and protocol_of(config) == protocol:
            return
        strategy = _strategy_for(protocol, strategy)
    if strategy is None:
        return
    if stored not in (None, strategy):
        config["split"] = {}
    config.setdefault("split", {})["strategy"] = strategy
    if strategy == "all" and protocol is not None:
        config["split"]["protocol"] = protocol


def _strategy_for(protocol: str, strategy: str | None) -> str:
    """The strategy, which must fit the protocol, or the protocol's default."""
    if strategy is None:
        return STRATEGIES[protocol]
    if strategy != "all" and PROTOCOLS.get(strategy, "transductive") != protocol:
        fitting = [name for name in SPLITS if PROTOCOLS.get(name, "transductive") == protocol]
        raise ItemrecError(
            f"'split' must be {' or '.join(fitting)} in the {protocol} protocol, got {strategy!r}"
        )
    return strategy


def shortcut(config: Config, key: str, value: Any) -> str:
    """Set the value of a short option such as ``--dim``; returns a note if nothing has the setting.

    The same options can thus be given for every model and loss of a comparison.
    """
    if key == "seed":
        for section in ("train", "split"):
            config.setdefault(section, {})["seed"] = value
        return ""
    section = {"dim": "model", "layers": "model", "tau": "loss"}.get(key, "train")
    if key == "l2" and key in keys(config, "model"):
        section = "model"
    if section == "train" and key not in (*OF_CLOSED_FORMS, "device"):
        model = with_names(config)["model"]["name"]
        if model_class(config).kind is Kind.CLOSED_FORM:
            return f"{model} has a closed form: --{key} is not used"
    if key not in keys(config, section):
        name = with_names(config)["model" if not model_class(config).kind.has_lists else section][
            "name"
        ]
        return f"{name} has no setting '{key}': --{key} is not used"
    config.setdefault(section, {})[key] = value
    return ""


def override(
    config: Config,
    *,
    data: Mapping[str, Any],
    parts: Mapping[str, str | None],
    short: Mapping[str, Any],
    protocol: str | None = None,
    strategy: str | None = None,
    sets: Sequence[str] = (),
) -> list[str]:
    """Apply the command-line options that are not None; returns notes on those without effect."""
    config.setdefault("data", {}).update({k: v for k, v in data.items() if v is not None})
    notes = [choose(config, part, name) for part, name in parts.items() if name is not None]
    choose_split(config, protocol, strategy)
    notes += [shortcut(config, key, value) for key, value in short.items() if value is not None]
    for text in sets:
        assign(config, text)
    return [note for note in notes if note]


def _listing(known: Mapping[str, list[str]]) -> str:
    return "known keys: " + "; ".join(f"[{name}] {', '.join(k)}" for name, k in known.items())
