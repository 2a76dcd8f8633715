"""Settings to components: a configuration becomes data, split, model, loss, negatives and a run.

A configuration has the sections ``data``, ``split``, ``model``, ``loss``, ``negatives`` and
``train``, as they stand in a run's ``config.toml``; what is left out has its default.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from itemrec.checkpoint import Run
from itemrec.components import bind, check_settings, lookup, schema
from itemrec.config import Config, load_config
from itemrec.data import Interactions, read
from itemrec.datasets import load
from itemrec.errors import ItemrecError
from itemrec.files import check_folder
from itemrec.held_out import Split
from itemrec.losses import LOSSES
from itemrec.models import MODELS
from itemrec.models.base import Model
from itemrec.negatives import NEGATIVES, Sampler
from itemrec.split import SPLITS, cold_start
from itemrec.train import TrainConfig, train

SECTIONS = ("data", "split", "model", "loss", "negatives", "train")
DEFAULTS = {"model": "lightgcn", "loss": "item-ndcg", "negatives": "uniform"}
TABLES: dict[str, Mapping[str, Any]] = {"model": MODELS, "loss": LOSSES, "negatives": NEGATIVES}
PROTOCOLS = {"interactions": "transductive", "users": "inductive"}  # the others: transductive


@dataclass(frozen=True)
class Experiment:
    """The components of one training run, ready to go."""

    split: Split
    model: Model
    loss: Callable[..., Tensor]
    negatives: Sampler
    settings: dict[str, Any]  # of `TrainConfig`

    @classmethod
    def from_config(cls, config: Config, data: Interactions | Split | None = None) -> Experiment:
        """Make the components; data that is there already, or its split, need not be made again.

        Everything that can be refused without reading the data is refused before.
        """
        config = complete(config)
        settings = check_settings(TrainConfig, "train", config["train"])
        TrainConfig(**settings)
        model = _component(config, "model")
        loss = _component(config, "loss")
        negatives = _component(config, "negatives")
        if protocol_of(config) == "inductive":
            model.check_inductive()
        if not isinstance(data, Split):
            data = make_split(config, make_data(config) if data is None else data)
        return cls(data, model, loss, negatives, settings)

    def run(
        self, out: str | Path | None = None, *, resume: bool = False, progress: bool = False
    ) -> Run:
        """Train, choose on validation, meet the test users once."""
        return train(
            self.split,
            self.model,
            loss=self.loss,
            negatives=self.negatives,
            out=out,
            resume=resume,
            progress=progress,
            **self.settings,
        )


def run_config(
    config: Config,
    out: str | Path | None = None,
    *,
    data: Interactions | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Train as a configuration says."""
    if out is not None:
        check_folder("out", out)
    return Experiment.from_config(config, data).run(out, resume=resume, progress=progress)


def complete(config: Config) -> Config:
    """Every section with its component named; unknown sections are refused."""
    for name in config:
        if name not in SECTIONS:
            raise ItemrecError(f"unknown section [{name}]; the sections are {', '.join(SECTIONS)}")
    out = {name: dict(config.get(name, {})) for name in SECTIONS}
    out["model"].setdefault("name", DEFAULTS["model"])
    model: type[Model] = lookup(MODELS, "model", out["model"]["name"])
    lossless = model.closed_form or model.own_objective
    usual = {"loss": model.usual_loss, "negatives": DEFAULTS["negatives"]}
    for name, default in usual.items():
        given = dict(config.get(name, {}))
        if not lossless and given.get("name") == "none":  # written by a model that had none
            given.pop("name")
        out[name] = {"name": "none" if lossless else default, **given}
    out["split"].setdefault("verb", "interactions")
    lookup(SPLITS, "split", out["split"]["verb"])
    return out


def protocol_of(config: Config) -> str:
    """The protocol that a split belongs to: by its verb, or by a setting of its own."""
    split = complete(config)["split"]
    return str(split.get("protocol") or PROTOCOLS.get(split["verb"], "transductive"))


def make_data(config: Config) -> Interactions:
    """The data that the ``data`` section names."""
    section = dict(config.get("data", {}))
    known = {"data": "", **schema(load), **schema(read)}
    known.pop("name")
    for key in section:
        if key not in known:
            raise ItemrecError(
                f"'data' has no setting {key!r}; its settings are: {', '.join(known)}"
            )
    if "data" not in section:
        raise ItemrecError("'data' must be given: a built-in name, a folder or a file")
    return load(section.pop("data"), **section)


def make_split(config: Config, data: Interactions) -> Split:
    """The split that the ``split`` section describes."""
    section = dict(complete(config)["split"])
    verb = section.pop("verb")
    thin = section.pop("cold_start", None)
    if section.get("test") == "given":
        if data.held_out is None:
            raise ItemrecError(f"'split.test' is \"given\", but {data.name!r} has no test file")
        section.pop("test")
    settings = check_settings(SPLITS[verb], "split", section)
    if settings.get("seed", 0) < 0:
        raise ItemrecError(f"'split.seed' must be at least 0, got {settings['seed']}")
    split: Split = SPLITS[verb](data, **settings)
    if thin is None:
        return split
    if not isinstance(thin, dict):
        thin = {"keep": thin}
    return cold_start(split, **check_settings(cold_start, "split.cold_start", thin))


def split_of(run: Run, data_root: str | Path | None = None) -> Split:
    """The split a run was trained and judged on, made again from its settings and verified."""
    config = {name: dict(section) for name, section in run.config.items()}
    if not config.get("data"):
        raise ItemrecError("this run was trained on data in memory: evaluate it in Python")
    if data_root is not None:
        config["data"]["data_root"] = str(data_root)
    data = make_data(config)
    if data.fingerprint != run.dataset["fingerprint"]:
        raise ItemrecError(
            f"{data.name!r} is not the data of this run: its fingerprint is {data.fingerprint}, "
            f"expected {run.dataset['fingerprint']}"
        )
    split = make_split(config, data)
    if run.metrics.get("refit"):
        split = split.refit()
    same = split.train.shape == run.train.shape
    if not same or not all(
        np.array_equal(getattr(split.train, part), getattr(run.train, part))
        for part in ("indptr", "indices")
    ):
        raise ItemrecError(
            f"the split made again is not the one this run was trained on: {data.name!r} or the "
            "run's config.toml has changed since"
        )
    return split


# --- settings by name ----------------------------------------------------------------------------


def assign(config: Config, text: str) -> None:
    """Set ``section.key=value``, or ``key=value`` where only one section knows the key.

    >>> config = {"model": {"name": "lightgcn"}}
    >>> assign(config, "dim=16")
    >>> assign(config, "split.seed=3")
    >>> config["model"]["dim"], config["split"]["seed"]
    (16, 3)
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise ItemrecError(f"'--set' must look like model.dim=64, got {text!r}")
    section, dot, rest = key.partition(".")
    known = {name: keys(config, name) for name in SECTIONS}
    if dot:
        if section not in known or rest not in known[section]:
            choices = known.get(section)
            what = f"[{section}] knows {', '.join(choices)}" if choices else _listing(known)
            raise ItemrecError(f"'--set' has no key {key!r}; {what}")
    else:
        places = [name for name, choices in known.items() if key in choices]
        if not places:
            raise ItemrecError(f"'--set' has no key {key!r}; {_listing(known)}")
        if len(places) > 1:
            options = " or ".join(f"{name}.{key}" for name in places)
            raise ItemrecError(f"'--set' does not know which {key!r} is meant: write {options}")
        section, rest = places[0], key
    config.setdefault(section, {})[rest] = parse_value(value)


def keys(config: Config, section: str) -> list[str]:
    """The settings a section knows, given the components that the configuration names."""
    if section == "train":
        return list(schema(TrainConfig))
    if section == "data":
        return ["data", *(key for key in {**schema(load), **schema(read)} if key != "name")]
    full = complete(config)
    if section == "split":
        return ["verb", *schema(SPLITS[full["split"]["verb"]]), "cold_start"]
    name = full[section]["name"]
    if name == "none":
        return ["name"]
    return ["name", *schema(lookup(TABLES[section], section, name))]


def parse_value(text: str) -> Any:
    """A number, true or false, a list, or else text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also for numbers of thousands of digits
        return text


def choose(config: Config, section: str, name: str) -> str:
    """Name a component; the settings of another one that stood there go with it.

    A note where the model has no use for it, as `shortcut` gives one.
    """
    lookup(TABLES[section], section, name)
    if section != "model" and _lossless(config):
        model = complete(config)["model"]["name"]
        return f"{model} has an objective of its own: --{section} is not used"
    if complete(config)[section]["name"] != name:
        config[section] = {}
    config.setdefault(section, {})["name"] = name
    return ""


def choose_split(config: Config, protocol: str | None, verb: str | None) -> None:
    """Agree on a split verb from a protocol, a verb, or both."""
    if verb is not None:
        lookup(SPLITS, "split", verb)
    elif config.get("split", {}).get("verb") == "all":
        verb = "all"  # a protocol says only whether users have vectors of their own
    if protocol is not None:
        if protocol not in ("transductive", "inductive"):
            raise ItemrecError(f"'protocol' must be transductive or inductive, got {protocol!r}")
        if verb is None and config.get("split") and protocol_of(config) == protocol:
            return
        verb = verb or ("users" if protocol == "inductive" else "interactions")
        if verb != "all" and PROTOCOLS.get(verb, "transductive") != protocol:
            fitting = [v for v in SPLITS if PROTOCOLS.get(v, "transductive") == protocol]
            raise ItemrecError(
                f"'split' must be {' or '.join(fitting)} in the {protocol} protocol, got {verb!r}"
            )
    if verb is not None:
        if config.get("split", {}).get("verb", verb) != verb:
            config["split"] = {}
        config.setdefault("split", {})["verb"] = verb
    if verb == "all" and protocol is not None:
        config["split"]["protocol"] = protocol


def shortcut(config: Config, key: str, value: Any) -> str:
    """Set what a short option such as ``--dim`` stands for; a note where nothing has the setting.

    The same options can then be given for every model and loss of a comparison.
    """
    if key == "seed":
        for section in ("train", "split"):
            config.setdefault(section, {})["seed"] = value
        return ""
    section = {"dim": "model", "layers": "model", "tau": "loss"}.get(key, "train")
    if key == "l2" and key in keys(config, "model"):
        section = "model"
    if key not in keys(config, section):
        name = complete(config)["model" if _lossless(config) else section]["name"]
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
    verb: str | None = None,
    sets: Sequence[str] = (),
) -> list[str]:
    """Put what a command line gives on top, where it is not None; notes on what is not used."""
    config.setdefault("data", {}).update({k: v for k, v in data.items() if v is not None})
    notes = [choose(config, part, name) for part, name in parts.items() if name is not None]
    choose_split(config, protocol, verb)
    notes += [shortcut(config, key, value) for key, value in short.items() if value is not None]
    for text in sets:
        assign(config, text)
    return [note for note in notes if note]


def default_folder(config: Config) -> Path:
    """runs/<data>-<protocol>-<model>-<loss>-<seed>; a model's own objective has no name."""
    config = complete(config)
    data = str(config["data"].get("data", "data"))
    name = Path(data).stem if Path(data).exists() else data.partition(":")[0]
    parts = [name, protocol_of(config), config["model"]["name"]]
    parts += [] if _lossless(config) else [config["loss"]["name"]]
    return Path("runs") / "-".join([*parts, str(config["train"].get("seed", 0))])


def _lossless(config: Config) -> bool:
    model: type[Model] = lookup(MODELS, "model", complete(config)["model"]["name"])
    return model.closed_form or model.own_objective


def stored_config(folder: str | Path) -> Config:
    """The settings of a run that is to be resumed."""
    path = Path(folder) / "config.toml"
    if not path.is_file():
        raise ItemrecError(f"{folder} holds no run to resume: config.toml is missing")
    return load_config(path)


def final_config(folder: str | Path, data: str | None, verb: str | None) -> Config:
    """The settings of a finished run with all of its data in training, for as long as it chose."""
    run = Run.load(folder)
    if verb not in (None, "all"):
        raise ItemrecError(f"'split' must be all with '--final', got {verb!r}")
    if not run.config.get("data") and data is None:
        raise ItemrecError(f"{folder} was trained on data in memory: give its file before --final")
    config = {name: dict(section) for name, section in run.config.items()}
    config["split"] = {"verb": "all", "seed": config["split"]["seed"], "protocol": run.protocol}
    config["train"]["epochs"] = max(run.metrics["best_epoch"], 1)
    return config


def change_of_data(folder: str | Path, run: Run) -> str:
    """A note where a run was trained on other data than the one in the folder was chosen on."""
    before, now = Run.load(folder).dataset, run.dataset
    if before["fingerprint"] == now["fingerprint"]:
        return ""
    counts = (f"{data['interactions']:,}" for data in (before, now))
    return "the data has changed since {} was chosen: {} interactions then, {} now".format(
        folder, *counts
    )


def _component(config: Config, section: str) -> Any:
    settings = dict(config[section])
    name = settings.pop("name")
    if section != "model" and name == "none":  # closed forms and models with their own objective
        name = DEFAULTS[section]
    component = lookup(TABLES[section], section, name)
    settings = check_settings(component, name, settings)
    if section == "loss":  # bound in full, so that a run's configuration tells all of it
        return bind(component, {**schema(component), **settings})
    return component(**settings)


def _listing(known: Mapping[str, list[str]]) -> str:
    return "known are " + "; ".join(f"[{name}] {', '.join(k)}" for name, k in known.items())
