"""Complete settings: a configuration is resolved once, before any data is read.

File, suite row, options and the defaults of model and loss become one frozen object, which all
later steps use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from itemrec.config_file import Config, normalise
from itemrec.data.splitters import SPLITS
from itemrec.errors import ItemrecError
from itemrec.experiments.defaults import DEFAULTS
from itemrec.experiments.registry import SECTIONS, TABLES, model_class, protocol_of, with_names
from itemrec.losses import bind
from itemrec.models.base import Kind, Model
from itemrec.sampling import Sampler
from itemrec.training.config import TrainConfig, resolve_training
from itemrec.training.plan import OPEN
from itemrec.validation import check_settings, lookup, schema

# Settings that do not affect the figures are left out of comparisons.
INDIFFERENT = (
    ("train", "device"),
    ("train", "precision"),
    ("train", "save_seconds"),
    ("negatives", "cache"),
)
OF_CLOSED_FORMS = ("metric", "refit", "seed")  # the training settings that apply to closed forms


@dataclass(frozen=True)
class Resolved:
    """The settings of one experiment, checked, with every default filled in."""

    data: dict[str, Any]
    split: dict[str, Any]
    model: Model
    loss: Callable[..., Tensor]
    sampler: Sampler
    train: TrainConfig
    given: Config  # as given, with components named
    asked: frozenset[str]  # what was given, such as "train.lr"

    def comparable(self) -> Config:
        """Every setting that affects the figures, including defaults, in TOML types."""
        given, kind = self.given, self.model.kind
        train = self.train
        if kind is Kind.CLOSED_FORM:  # no gradient descent: the other settings have no effect
            some = {key: given["train"][key] for key in OF_CLOSED_FORMS if key in given["train"]}
            train = resolve_training(self.model, self.loss, some)
        out: Config = {"data": dict(self.data), "split": dict(self.split)}
        for section, table in TABLES.items():
            settings = dict(given[section])
            name = settings.pop("name")
            if section != "model" and not kind.has_lists:
                out[section] = {"name": "none"}
                continue
            component = table[name]
            settings = check_settings(component, name, settings)
            out[section] = {"name": name, **schema(component), **settings}
        out["train"] = asdict(train)
        for section, key in INDIFFERENT:
            out[section].pop(key, None)
        return normalise(out)


def resolve(config: Config) -> Resolved:
    """Check a configuration and fill in its defaults; no data is read and nothing is sampled.

    Whatever a component's constructor rejects is rejected here.
    """
    given = with_names(config)
    made = {section: _component(given, section) for section in TABLES}
    if protocol_of(given) == "inductive":
        made["model"].check_inductive()
    train = resolve_training(made["model"], made["loss"], given["train"])
    return Resolved(
        data=given["data"],
        split=_split(given["split"]),
        model=made["model"],
        loss=made["loss"],
        sampler=made["negatives"],
        train=train,
        given=given,
        asked=frozenset(f"{part}.{key}" for part, keys in config.items() for key in keys),
    )


def changes(before: Config, now: Config) -> list[str]:
    """The settings in which two comparable configurations differ, such as "train.lr".

    If only one of them has a setting, the other is assumed to have its default: settings that are
    added to a component later leave older results valid.
    """
    names = {section: {"name": now[section]["name"]} for section in TABLES}
    base = resolve({**names, "split": {"strategy": now["split"]["strategy"]}}).comparable()
    parts = {s: [c.get(s, {}) for c in (before, now, base)] for s in SECTIONS}
    return [
        f"{section}.{key}"
        for section, (one, two, default) in parts.items()
        for key in dict.fromkeys([*one, *two])
        if one.get(key, default.get(key)) != two.get(key, default.get(key))
    ]


def left_open(config: Config) -> Config:
    """A complete configuration without the defaults that a hybrid is free to replace."""
    if model_class(config).kind is not Kind.HYBRID:
        return config
    names = {"model": {"name": config["model"]["name"]}}
    base = resolve({**names, "split": {"strategy": config["split"]["strategy"]}}).comparable()
    out = {section: dict(settings) for section, settings in config.items()}
    for section in ("loss", "negatives"):
        if out[section] == base[section]:
            del out[section]
    for name in OPEN:
        if out["train"].get(name) == base["train"].get(name):
            out["train"].pop(name, None)
    return out


def _split(section: dict[str, Any]) -> dict[str, Any]:
    """The complete split settings: strategy, its settings, and thinning of training, if any."""
    settings = dict(section)
    strategy, thin = settings.pop("strategy"), settings.pop("cold_start", None)
    given = {"test": settings.pop("test")} if settings.get("test") == "given" else {}
    settings = check_settings(SPLITS[strategy], "split", settings)
    if settings.get("seed", 0) < 0:
        raise ItemrecError(f"'split.seed' must be at least 0, got {settings['seed']}")
    known = {**schema(SPLITS[strategy]), **settings, **given}
    return {"strategy": strategy, **known, "cold_start": thin}


def _component(config: Config, section: str) -> Any:
    settings = dict(config[section])
    name = settings.pop("name")
    if section != "model" and name == "none":  # closed forms and models with their own objective
        name = DEFAULTS[section]
    component = lookup(TABLES[section], section, name)
    settings = check_settings(component, name, settings)
    if section == "loss":  # with all settings bound, so that a run's configuration is complete
        return bind(component, {**schema(component), **settings})
    return component(**settings)
