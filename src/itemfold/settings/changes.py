"""Differences between stored and current settings."""

from __future__ import annotations

from itemfold.settings.component import TABLES
from itemfold.settings.resolve import current_config, resolve
from itemfold.settings.schema import SECTIONS, Config
from itemfold.settings.toml_file import flat


def changes(before: Config, now: Config) -> list[str]:
    """The settings in which two comparable configurations differ, such as "train.lr".

    If only one of them has a setting, the other is assumed to have its default: settings that are
    added to a component later leave older results valid.
    """
    names = {section: {"name": now[section]["name"]} for section in TABLES}
    base = resolve({**names, "split": {"strategy": now["split"]["strategy"]}}).comparable()
    before, out = current_config(before), []
    for section in SECTIONS:
        values = dict(before.get(section, {}))
        for key, value in values.items():  # a model within that was stored by its name alone
            if isinstance(value, str) and isinstance(now[section].get(key), dict):
                values[key] = {"name": value}
        one, two, default = (flat({section: v}) for v in (values, now[section], base[section]))
        out += [
            path
            for path in dict.fromkeys([*one, *two])
            if one.get(path, default.get(path)) != two.get(path, default.get(path))
        ]
    return out
