"""The search space of `itemfold tune`: settings with their choices or ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.models import MODELS
from itemfold.models.base import Kind, Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.settings.overrides import assign, choose, keys, owner, parse_value
from itemfold.settings.resolve import resolve, with_names
from itemfold.settings.schema import Config
from itemfold.settings.toml_file import put
from itemfold.validation import check_settings, schema

# Model settings that are searched by default, from the default ÷ factor to the default × factor:
# EASE's λ was best at 50 to 1000, SimGCL's weight at .02 to .5.
FACTORS = {
    "l2": 10,
    "alpha": 10,
    "shrink": 10,
    "neighbours": 4,
    "weight": 30,
    "negative_weight": 10,
}
# Settings of losses that are searched by default besides the temperature, in their papers' ranges.
OF_LOSSES = {
    "sl-at-k.tau_quantile": "0.5..3.0",
    "bsl.t2": "0.8..1.4",
    "ccl.margin": "0.0..0.9",
    "ccl.weight": "1.0..300.0",
    "llpauc.alpha": "0.1..0.9",
    "llpauc.beta": "0.01..0.5",
    "warp.gap": "0.1..3.0",
    "direct-au.gamma": "0.2..10.0",
    "adv-info-nce.weight": "1.0..64.0",
}


@dataclass(frozen=True)
class SearchRange:
    """A setting to search, among choices or in a range."""

    key: str  # "train.lr"
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False  # a logarithmic scale, for ranges that span a factor of ten or more
    whole: bool = False  # whole numbers only

    def __str__(self) -> str:
        choices = ",".join(json.dumps(choice) for choice in self.choices)
        return f"{self.key}={choices or f'{self.low}..{self.high}'}"


def default_search_space(config: Config) -> dict[str, SearchRange]:
    """The default search space for the components of a configuration."""
    full = resolve(config).comparable()
    model: type[Model] = MODELS[full["model"]["name"]]
    own, texts = schema(model), []
    if model.kind is not Kind.CLOSED_FORM:
        texts.append("train.lr=0.0001..0.03")
    decays = getattr(model, "base_norms", EmbeddingModel.base_norms)
    if decays is not EmbeddingModel.base_norms and model.kind.has_lists:
        texts.append("train.l2=0.00001..0.01")
    if "tau" in full["loss"]:
        cosine = full["train"]["similarity"] == "cosine"
        texts.append("loss.tau=" + ("0.05..0.5" if cosine else "0.3..3.0"))
    for path, values in OF_LOSSES.items():
        loss, _, name = path.partition(".")
        if loss == full["loss"]["name"]:
            texts.append(f"loss.{name}={values}")
    within = next((path for path in keys(config, "model") if path.endswith(".layers")), None)
    if "layers" in own or within:
        texts.append(f"model.{within or 'layers'}=1..4")
    for name, factor in FACTORS.items():
        if isinstance(value := own.get(name), int | float) and value > 0:
            low = value / factor if isinstance(value, float) else max(value // factor, 1)
            texts.append(f"model.{name}={low:g}..{value * factor:g}")
    if "l2" in own and own["l2"] is None:
        texts.append("model.l2=1..1000")
    if not texts:
        name = full["model"]["name"]
        raise ItemfoldError(f"'search' must be given: {name!r} has no default search space")
    return parse_search_space(config, texts)


def parse_search_space(config: Config, texts: Sequence[str]) -> dict[str, SearchRange]:
    """Parse texts such as "lr=0.0001..0.03" and "layers=1,2,3".

    >>> found = parse_search_space({}, ["lr=0.001..0.1"])["train.lr"]
    >>> (found.low, found.high, found.log)
    (0.001, 0.1, True)
    """
    space: dict[str, SearchRange] = {}
    for text in texts:
        one = _parse(config, text)
        if one.key in space:
            raise ItemfoldError(f"'search' must name a setting once, got {one.key!r} twice")
        space[one.key] = one
    for key in space:
        name = f"{key.partition('.')[0]}.name"
        if name in space and key != name:
            raise ItemfoldError(
                f"'search' must not have both {name!r} and {key!r}: each component has its own "
                "settings"
            )
    _check_values(config, space)
    return space


def _parse(config: Config, text: str) -> SearchRange:
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise ItemfoldError(f"'search' must look like lr=0.001..0.1 or layers=1,2,3, got {text!r}")
    key = _key(config, name)
    low, dots, high = (part.strip() for part in value.partition(".."))
    if not dots:
        return SearchRange(key, _choices(config, key, value, text))
    ends = [_typed(config, key, parse_value(end)) for end in (low, high)]
    if not all(type(end) in (int, float) for end in ends) or not ends[0] < ends[1]:
        raise ItemfoldError(
            f"'search' must give a range by two numbers, the lower one first, got {text!r}"
        )
    whole = all(isinstance(end, int) for end in ends)
    log = not whole and ends[0] > 0 and ends[1] / ends[0] >= 10
    return SearchRange(key, low=ends[0], high=ends[1], log=log, whole=whole)


def _choices(config: Config, key: str, value: str, text: str) -> tuple[Any, ...]:
    """The distinct values between commas, converted to the type of their setting."""
    words = parse_value(f"[{value}]")
    if not isinstance(words, list):  # words without quotes
        words = [parse_value(word.strip()) for word in value.split(",")]
    choices: list[Any] = []
    for choice in (_typed(config, key, word) for word in words):
        choices += [choice] * (choice not in choices)
    if len(choices) < 2:
        raise ItemfoldError(f"'search' must give two values or more, or LOW..HIGH, got {text!r}")
    return tuple(choices)


def _key(config: Config, name: str) -> str:
    """The full name, ``section.key``, of a key with or without its section, as for ``--set``."""
    probe = {
        section: {key: value for key, value in settings.items() if key in ("name", "strategy")}
        for section, settings in with_names(config).items()
    }
    try:
        section, _, key = assign(probe, f"{name}=?").partition(".")
    except ItemfoldError as error:
        raise ItemfoldError(str(error).replace("'--set'", "'search'")) from None
    if section in ("data", "split") or (section == "train" and key in ("metric", "seed")):
        raise ItemfoldError(
            "'search' must leave data, split, metric and seed unchanged, so that trials can be "
            f"compared, got '{section}.{key}'"
        )
    return f"{section}.{key}"


def _typed(config: Config, key: str, value: Any) -> Any:
    """A value converted to the type of its setting: 1 becomes 1.0 for a float."""
    if key.endswith(".name"):
        return str(value)
    kind, name = owner(config, key)
    value = check_settings(kind, key.rpartition(".")[0], {name: value})[name]
    return list(value) if isinstance(value, tuple) else value  # as read from a file


def _check_values(config: Config, space: Mapping[str, SearchRange]) -> None:
    """Reject values that a component rejects, and settings that have no effect."""
    names = [key for key in space if key.endswith(".name")]
    chosen = [
        dict(zip(names, some, strict=True)) for some in product(*(space[n].choices for n in names))
    ]
    for key, one in space.items():
        values, has_effect = one.choices or (one.low, one.high), False
        for some in chosen:
            made = [
                resolve(without_refit(merged(config, {**some, key: value}))).comparable()
                for value in values
            ]
            has_effect = has_effect or any(other != made[0] for other in made)
        if not has_effect:
            model = with_names(config)["model"]["name"]
            raise ItemfoldError(f"'search' must name settings that affect {model!r}, got {key!r}")


def merged(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration with these settings; a new component drops the settings of the old one."""
    out = {name: dict(section) for name, section in config.items()}
    if "model.name" in settings:  # first, because the model determines the default loss
        choose(out, "model", settings["model.name"])
    out = with_names(out)
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if name != "name":
            put(out[section], name, value)
        elif section != "model":
            choose(out, section, value)
    return out


def without_refit(config: Config) -> Config:
    """The configuration of a trial, which is never refitted on its validation data."""
    return {**config, "train": {**config["train"], "refit": False}}
