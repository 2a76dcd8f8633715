"""Components: models, losses and samplers as a class or function with complete settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from itemfold.losses import LOSSES, bind, unbind
from itemfold.models import MODELS
from itemfold.models.base import Model
from itemfold.sampling import NEGATIVES
from itemfold.settings.schema import DEFAULTS
from itemfold.validation import check_settings, lookup, name_of, schema

Tables = Mapping[str, Mapping[str, Any]]
TABLES: Tables = {"model": MODELS, "loss": LOSSES, "negatives": NEGATIVES}


@dataclass(frozen=True)
class Component:
    """A class or function with complete settings, from which `make` creates instances."""

    kind: Callable[..., Any]
    name: str
    values: Mapping[str, Any]
    template: Model | None = None  # a model passed in Python, with its own weights

    def make(self) -> Any:
        """A new instance: a model, a sampler, or a loss with its settings bound."""
        if self.template is not None:
            return copy.deepcopy(self.template)
        if not isinstance(self.kind, type):  # a loss
            return bind(self.kind, self.values)
        return self.kind(**{name: copy.deepcopy(value) for name, value in self.values.items()})

    def choose(self, chosen: Mapping[str, Any]) -> Component:
        """The component with other settings; those of a nested model are a table."""
        values = dict(self.values)
        for name, value in chosen.items():
            within = values.get(name)
            if isinstance(value, Mapping) and isinstance(within, Model):
                value = type(within)(**{**within.settings, **value})
            elif isinstance(value, Mapping) and isinstance(within, Mapping | str):
                value = {**({"name": within} if isinstance(within, str) else within), **value}
            values[name] = value
        return replace(self, values=values, template=None)

    def record(self) -> dict[str, Any]:
        """The component as a section of a configuration."""
        if isinstance(self.kind, type) and issubclass(self.kind, Model):
            return {"name": self.name, **self.make().record()}
        return {"name": self.name, **self.values}


def component_of(section: str, part: Any) -> Component:
    """The component of an object passed in Python."""
    if section == "model":
        is_trained = "n_items" in vars(part)
        template = part.fresh() if is_trained else part  # training starts from scratch
        return Component(type(part), name_of(MODELS, type(part)), template.settings, template)
    if section == "loss":
        function, bound = unbind(part)
        return Component(function, name_of(LOSSES, function), bound)
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    return Component(type(part), name_of(NEGATIVES, type(part)), values)


def component_from(section: str, given: Mapping[str, Any], tables: Tables) -> Component:
    """The component of a section of a configuration, with all defaults."""
    settings = dict(given)
    name = settings.pop("name")
    if section != "model" and name == "none":  # closed forms and models with their own objective
        name = DEFAULTS[section]
    kind = lookup(tables[section], section, name)
    return Component(kind, name, {**schema(kind), **check_settings(kind, name, settings)})
