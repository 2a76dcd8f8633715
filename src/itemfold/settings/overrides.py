"""Overrides of a configuration: options, ``key=value`` texts, other components."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from itemfold.data.datasets import load
from itemfold.data.sources import read
from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.models import MODELS
from itemfold.models.base import Kind
from itemfold.settings.component import TABLES
from itemfold.settings.resolve import CLOSED_FORM_SETTINGS, model_class, protocol_of, with_names
from itemfold.settings.schema import PROTOCOL, PROTOCOL_OF, SECTIONS, SPLIT_OF, Config, TrainConfig
from itemfold.settings.toml_file import put
from itemfold.validation import lookup, one_of, schema


def keys(config: Config, section: str) -> list[str]:
    """The keys of a section, given the components of the configuration.

    Keys of a nested model have a prefix, such as gnn.dim.
    """
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
    kind = lookup(TABLES[section], section, name)
    within = _nested_models(kind, full[section]) if section == "model" else {}
    nested = [f"{part}.{key}" for part, model in within.items() for key in ("name", *schema(model))]
    return ["name", *schema(kind), *nested]


def _nested_models(kind: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, type[Any]]:
    """The classes of the nested models of a model, by the setting that holds each."""
    out = {}
    for part, default in schema(kind).items():
        if isinstance(default, str) and default in MODELS:
            value = given.get(part, default)
            name = value.get("name", default) if isinstance(value, Mapping) else value
            if name in MODELS:
                out[part] = MODELS[name]
    return out


def owner(config: Config, path: str) -> tuple[Callable[..., Any], str]:
    """The component that a setting belongs to, and the name of the setting there.

    >>> kind, name = owner({}, "model.gnn.dim")
    >>> kind.__name__, name
    ('LightGCN', 'dim')
    """
    section, _, name = path.partition(".")
    if section == "train":
        return TrainConfig, name
    full = with_names(config)[section]
    kind: Callable[..., Any] = lookup(TABLES[section], section, full["name"])
    part, dot, rest = name.partition(".")
    return (_nested_models(kind, full)[part], rest) if dot else (kind, name)


def assign(config: Config, text: str) -> str:
    """Set ``section.key=value``, or ``key=value`` if only one section has it; returns its path.

    >>> config = {"model": {"name": "lightgcn"}}
    >>> assign(config, "dim=16"), assign(config, "split.seed=3")
    ('model.dim', 'split.seed')
    >>> config
    {'model': {'name': 'lightgcn', 'dim': 16}, 'split': {'seed': 3}}
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value or len(text.splitlines()) > 1:
        raise ItemfoldError(f"'--set' must look like model.dim=64, got {text!r}")
    section, name = _locate(config, key)
    if section == "model" and name in (moved := model_class(config).moved):
        model_class(config).current_settings({name: None})  # warns
        name = moved[name]
    put(config.setdefault(section, {}), name, parse_value(value))
    return f"{section}.{name}"


def _locate(config: Config, key: str) -> tuple[str, str]:
    """Section and name of a key that may be written without its section or part."""
    known, moved = {name: keys(config, name) for name in SECTIONS}, model_class(config).moved
    section, dot, rest = key.partition(".")
    if dot and section in known:
        if rest in known[section] or (section == "model" and rest in moved):
            return section, rest
        raise ItemfoldError(
            f"'--set' has no key {key!r}; [{section}] has {', '.join(known[section])}"
        )
    places = [(name, key) for name, choices in known.items() if key in choices]
    if not places:
        places = [
            (name, path)
            for name, choices in known.items()
            for path in choices
            if path.endswith(f".{key}") and not path.endswith(".name")
        ]
        places = places or [("model", key)] * (key in moved)
    if not places:
        listing = "; ".join(f"[{name}] {', '.join(choices)}" for name, choices in known.items())
        raise ItemfoldError(f"'--set' has no key {key!r}; known keys: {listing}")
    if len(places) > 1:
        options = " or ".join(f"{section}.{name}" for section, name in places)
        raise ItemfoldError(f"'--set' key {key!r} is ambiguous: write {options}")
    return places[0]


def parse_value(text: str) -> Any:
    """Parse a number, true or false, or a list; everything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also for numbers of thousands of digits
        return text


def choose(config: Config, section: str, name: str) -> str:
    """Select a component by name; the settings of another component are dropped.

    Returns a note if the model does not use the component.
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
    """Set the split strategy from a protocol, a strategy, or both.

    The transductive protocol has no default strategy: it depends on the data.
    """
    stored = config.get("split", {}).get("strategy")
    if strategy is not None:
        lookup(SPLITS, "split", strategy)
    elif stored == "all":
        strategy = "all"  # the protocol only decides whether users have their own vectors
    if protocol is not None:
        one_of("protocol", protocol, ("transductive", "inductive"))
        if strategy is None and config.get("split") and protocol_of(config) == protocol:
            return
        fitting = [name for name in SPLITS if PROTOCOL_OF.get(name, "transductive") == protocol]
        if strategy is None:
            strategy = None if protocol == PROTOCOL else SPLIT_OF[protocol]
        elif strategy not in ("all", *fitting):
            raise ItemfoldError(
                f"'split' must be {' or '.join(fitting)} in the {protocol} protocol, "
                f"got {strategy!r}"
            )
        if strategy is None and PROTOCOL_OF.get(str(stored), protocol) != protocol:
            config["split"] = {}  # the stored strategy belongs to the other protocol
    if strategy is None:
        return
    if stored not in (None, strategy):
        config["split"] = {}
    config.setdefault("split", {})["strategy"] = strategy
    if strategy == "all" and protocol is not None:
        config["split"]["protocol"] = protocol


def shortcut(config: Config, key: str, value: Any) -> str:
    """Set the value of a short option such as ``--dim``; returns a note if no component has it.

    A note instead of an error allows the same options for every model of a comparison.
    """
    if key == "seed":
        for section in ("train", "split"):
            config.setdefault(section, {})["seed"] = value
        return ""
    section = {"dim": "model", "layers": "model", "tau": "loss"}.get(key, "train")
    known = keys(config, "model")
    if key == "l2" and key in known:
        section = "model"
    kind, names = model_class(config), with_names(config)
    is_closed = kind.kind is Kind.CLOSED_FORM
    if section == "train" and is_closed and key not in (*CLOSED_FORM_SETTINGS, "device"):
        return f"{names['model']['name']} has a closed form: --{key} is not used"
    if section == "model" and key not in known:  # a setting of a hybrid's network
        key = next((path for path in known if path.endswith(f".{key}")), key)
    if key not in keys(config, section):
        name = names[section if kind.kind.has_lists else "model"]["name"]
        return f"{name} has no setting '{key}': --{key} is not used"
    put(config.setdefault(section, {}), key, value)
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
