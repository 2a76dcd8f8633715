"""Resolve a request to complete settings: `resolve(request) → Settings`.

A *request* holds the settings that the user passed, by section, in a file, as options or as Python
arguments. It is never modified. *Settings* are complete and immutable, and record the source of
each value. Training that selects a setting returns new settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

from itemfold.data.datasets import is_split_by_users
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.losses import default_training, extra_inputs
from itemfold.losses.base import INPUTS
from itemfold.models import MODELS
from itemfold.models.base import Kind, Model
from itemfold.sampling import Sampler
from itemfold.sampling.base import knows_expected
from itemfold.settings.component import TABLES, Component, Tables, component_from, component_of
from itemfold.settings.schema import (
    DEFAULTS,
    PROTOCOL,
    PROTOCOL_OF,
    SECTIONS,
    SPLIT_OF,
    Config,
    TrainConfig,
)
from itemfold.settings.toml_file import flat, normalise, put
from itemfold.validation import check_settings, lookup, schema

# Settings that do not affect the metrics; comparisons ignore them.
WITHOUT_EFFECT = (
    ("train", "device"),
    ("train", "precision"),
    ("train", "save_seconds"),
    ("negatives", "cache"),
)
CLOSED_FORM_SETTINGS = ("metric", "refit", "seed")  # of training


@dataclass(frozen=True)
class Request:
    """The settings that the user passed, and their sources; never modified.

    Attributes:
        values: Settings by section. Model, loss and negatives may also be objects.
        sources: The sources of single settings, such as "train.lr": "option".
        source: The source of all other settings.
    """

    values: Mapping[str, Any]
    sources: Mapping[str, str] = field(default_factory=dict)
    source: str = "given"

    @classmethod
    def from_options(cls, base: Config, values: Config, source: str) -> Request:
        """A request of a file or a stored run, overridden by options."""
        before, now = flat(base), flat(values)
        unchanged = {path: source for path, value in now.items() if before.get(path) == value}
        return cls(values, unchanged, "option")


@dataclass(frozen=True)
class Settings:
    """The complete settings of one run; immutable.

    Attributes:
        data: The source of the data.
        split: The split strategy and its settings.
        model: The model to train.
        loss: The loss; not used by closed forms and models with their own objective.
        negatives: The sampler of negatives; not used by the same models.
        train: The settings of training.
        given: The source of each requested setting, such as "train.lr": "option".
        chosen: How training selected each setting that was left open.
    """

    data: dict[str, Any]
    split: dict[str, Any]
    model: Component
    loss: Component
    negatives: Component
    train: TrainConfig
    given: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_class(self) -> type[Model]:
        """The class of the model."""
        assert isinstance(self.model.kind, type)
        return self.model.kind

    @property
    def sources(self) -> dict[str, str]:
        """The source of every setting: request, selection, or a default."""
        of_model = f"default of {self.model.name}"
        has_lists = self.model_class.kind.has_lists
        of_loss = default_training(self.loss.kind) if has_lists else {}
        labels = {f"train.{name}": f"default of {self.loss.name}" for name in of_loss}
        labels |= {f"train.{name}": of_model for name in self.model_class.default_training}
        for section, values in self.model_class.default_settings.items():
            labels |= {f"{section}.{name}": of_model for name in values}
        labels |= {section: f"default of {getattr(self, section).name}" for section in TABLES}
        labels |= {"model.name": "default", "loss.name": of_model, "negatives.name": of_model}
        labels |= {**self.given, **self.chosen}

        def source(path: str) -> str:
            while path and path not in labels:  # fall back to the source of the component
                path = path.rpartition(".")[0]
            return labels.get(path, "default")

        return {path: source(path) for path in flat(normalise(self.record()))}

    def is_given(self, path: str) -> bool:
        """Whether a setting, or any setting of a section, was requested."""
        return any(known == path or known.startswith(f"{path}.") for known in self.given)

    def make_model(self) -> Model:
        """A new model, not yet set up."""
        model: Model = self.model.make()
        return model

    def make_loss(self) -> Callable[..., Tensor]:
        """The loss with its settings bound."""
        loss: Callable[..., Tensor] = self.loss.make()
        return loss

    def make_sampler(self) -> Sampler:
        """A new sampler of negatives."""
        sampler: Sampler = self.negatives.make()
        return sampler

    def choose(self, chosen: Config, how: str) -> Settings:
        """Settings with other values, by section; a name selects another component."""
        out = self
        for section, values in chosen.items():
            if section == "train":
                out = replace(out, train=replace(out.train, **values))
                continue
            component: Component = getattr(out, section)
            if "name" in values:
                kind = TABLES[section][values["name"]]
                component = Component(kind, values["name"], schema(kind))
            own = {name: value for name, value in values.items() if name != "name"}
            changed: dict[str, Any] = {section: component.choose(own)}
            out = replace(out, **changed)
        return replace(out, chosen={**self.chosen, **dict.fromkeys(flat(chosen), how)})

    def of_split(self, split: Split, source: str | None = None) -> Settings:
        """The settings with the data and split settings of an existing split."""
        out = replace(self, data=dict(split.source), split=dict(split.settings))
        if source is None:
            return out
        made = flat({"data": out.data, "split": out.split})
        return replace(out, given={**self.given, **dict.fromkeys(made, source)})

    def refits(self, split: Split) -> bool:
        """Whether the model is refitted on training and validation data together."""
        known_users = split.protocol == "transductive"
        return self.train.refit and known_users and split.valid is not None

    def record(self) -> Config:
        """All settings by section, as in ``config.toml``."""
        none = {"name": "none"}
        lists = self.model_class.kind.has_lists
        return {
            "data": dict(self.data),
            "split": dict(self.split),
            "model": self.model.record(),
            "loss": self.loss.record() if lists else dict(none),
            "negatives": self.negatives.record() if lists else dict(none),
            "train": asdict(self.train),
        }

    def request(self) -> Config:
        """The requested settings, as stored in ``request.toml``."""
        out: Config = {"data": dict(self.data), "split": dict(self.split), "model": {}}
        for path, value in flat(normalise(self.record())).items():
            section, _, name = path.partition(".")
            parents = [path[:end] for end, letter in enumerate(f"{path}.") if letter == "."]
            if section not in ("data", "split") and any(p in self.given for p in parents):
                put(out.setdefault(section, {}), name, value)
        return normalise({**out, "model": {"name": self.model.name, **out["model"]}})

    def fixed(self) -> Config:
        """The settings that training does not select, by which requests are compared."""
        out = normalise(self.record())
        for path in self.model_class.chooses:
            section, _, name = path.partition(".")
            if not self.is_given(path):
                if name:
                    out[section].pop(name, None)
                else:
                    out[section] = {}
        return out

    def comparable(self) -> Config:
        """Every setting that affects the metrics, in the types of a TOML file."""
        out = self.record()
        if self.model_class.kind is Kind.CLOSED_FORM:  # other settings have no effect
            some = {name: getattr(self.train, name) for name in CLOSED_FORM_SETTINGS}
            train = TrainConfig(**{**self.model_class.default_training, **some})
            out["train"] = asdict(train)
        for section, key in WITHOUT_EFFECT:
            out[section].pop(key, None)
        return normalise(out)


def resolve(request: Request | Config, tables: Tables = TABLES) -> Settings:
    """Check a request and fill in the defaults, without reading data.

    This calls the constructors of the components, so it raises all their errors.
    """
    request = request if isinstance(request, Request) else Request(request)
    plain = {name: part for name, part in request.values.items() if isinstance(part, Mapping)}
    made = {
        section: component_of(section, part)
        for section, part in request.values.items()
        if part is not None and not isinstance(part, Mapping)
    }
    kind = made["model"].kind if "model" in made else None
    config = with_names(plain, tables, kind)  # type: ignore[arg-type]
    if "model" in plain:
        named: type[Model] = lookup(tables["model"], "model", config["model"]["name"])
        plain["model"] = named.current_settings(plain["model"])
        config["model"] = named.current_settings(config["model"], warn=False)
    for section in TABLES:
        if section not in made:
            made[section] = component_from(section, config[section], tables)
    train = _train_config(made["model"].kind, made["loss"].kind, config["train"])  # type: ignore[arg-type]
    given = {path: request.sources.get(path, request.source) for path in flat(plain)}
    for section, part in made.items():
        if section not in plain and request.values.get(section) is not None:
            given |= {f"{section}.{name}": request.source for name in ("name", *part.values)}
    settings = Settings(
        data=config["data"],
        split=_complete_split(config["split"]),
        model=made["model"],
        loss=made["loss"],
        negatives=made["negatives"],
        train=train,
        given=given,
    )
    model = settings.make_model()  # constructors check the settings
    loss, sampler = settings.make_loss(), settings.make_sampler()
    if model.kind.has_lists:
        _check_inputs(settings, loss, sampler)
    if protocol_of(config) == "inductive":
        model.check_inductive()
    return settings


def _check_inputs(settings: Settings, loss: Callable[..., Tensor], sampler: Sampler) -> None:
    """Raise if a loss needs an input that training or the sampler cannot provide."""
    wanted, name = extra_inputs(loss), settings.loss.name
    for unknown in (each for each in wanted if each not in INPUTS):
        raise ItemfoldError(
            f"the loss {name!r} needs the input {unknown!r}, which training does not provide: give "
            f"it a default to make it a setting, or use one of {', '.join(INPUTS)}"
        )
    if "log_expected" in wanted and not knows_expected(type(sampler)):
        raise ItemfoldError(
            f"'negatives' must be uniform, popularity or in-batch for {name!r}, which needs "
            f"the probability of drawing an item, got {settings.negatives.name!r}"
        )


def with_names(
    config: Mapping[str, Any], tables: Tables = TABLES, kind: type[Model] | None = None
) -> Config:
    """Every section with its component named; unknown sections are rejected.

    The default model is the hybrid, or LightGCN if a loss or a sampler is named. ``kind`` is the
    class of a model passed as an object.
    """
    for name in config:
        if name not in SECTIONS:
            raise ItemfoldError(f"unknown section [{name}]; the sections are {', '.join(SECTIONS)}")
    out = {name: dict(config.get(name, {})) for name in SECTIONS}
    named = any("name" in out[name] for name in ("loss", "negatives"))
    out["model"].setdefault("name", "lightgcn" if named else DEFAULTS["model"])
    model: type[Model] = kind or lookup(tables["model"], "model", out["model"]["name"])
    defaults = {"loss": model.default_loss, "negatives": model.default_negatives}
    for name, default in defaults.items():
        given = dict(config.get(name, {}))
        if not model.kind.has_lists:
            default = "none"
        elif given.get("name") == "none":  # written for a model without this component
            given.pop("name")
        own = model.default_settings.get(name, {}) if given.get("name", default) == default else {}
        out[name] = {"name": default, **own, **given}
    by_users = is_split_by_users(out["data"].get("data"))
    out["split"].setdefault("strategy", SPLIT_OF["inductive" if by_users else PROTOCOL])
    lookup(SPLITS, "split", out["split"]["strategy"])
    return out


def model_class(config: Config) -> type[Model]:
    """The class of the model in a configuration."""
    found: type[Model] = lookup(MODELS, "model", with_names(config)["model"]["name"])
    return found


def protocol_of(config: Config) -> str:
    """The protocol of a split, from its `protocol` setting or its strategy."""
    sections = ("data", "split")
    split = with_names({name: config.get(name, {}) for name in sections})["split"]
    return str(split.get("protocol") or PROTOCOL_OF.get(split["strategy"], PROTOCOL))


def _train_config(
    model: type[Model], loss: Callable[..., Tensor], given: Mapping[str, Any]
) -> TrainConfig:
    """Training settings: requested ones, then defaults of the model, then of the loss."""
    given = check_settings(TrainConfig, "train", given)
    of_loss = default_training(loss) if model.kind.has_lists else {}
    defaults = {**of_loss, **model.default_training}
    if "eval_every" in given and defaults.get("patience"):  # at least one validation
        defaults["patience"] = max(defaults["patience"], given["eval_every"])
    config = TrainConfig(**{**defaults, **given})
    if model.batch_by not in (None, config.batch_by):
        raise ItemfoldError(
            f"'batch_by' must be {model.batch_by} for {model.__name__}, got {config.batch_by!r}"
        )
    return config


def given_settings(split: Mapping[str, Any]) -> list[str]:
    """The settings of a stored split that the data itself determines."""
    return [name for name, value in split.items() if isinstance(value, str) and value == "given"]


def _complete_split(section: Mapping[str, Any]) -> dict[str, Any]:
    """Complete split settings: the strategy, its settings, and `cold_start`."""
    settings = dict(section)
    strategy, thin = settings.pop("strategy"), settings.pop("cold_start", None)
    given = {name: settings.pop(name) for name in given_settings(settings)}
    settings = check_settings(SPLITS[strategy], "split", settings)
    if settings.get("seed", 0) < 0:
        raise ItemfoldError(f"'split.seed' must be at least 0, got {settings['seed']}")
    known = {**schema(SPLITS[strategy]), **settings, **given}
    return {"strategy": strategy, **known, "cold_start": thin}
