"""Differences between stored and current settings."""

from __future__ import annotations

from itemfold.settings.component import TABLES
from itemfold.settings.resolve import resolve
from itemfold.settings.schema import SECTIONS, Config
from itemfold.settings.stored_config import current_config
from itemfold.settings.toml_file import flat


def changes(before: Config, now: Config) -> list[str]:
    """The paths of the settings in which two comparable configurations differ.

    A setting that only one of them has is compared with its default, so older results stay valid
    when a component gets a new setting.

    Returns:
        Paths such as "train.lr".
    """
    names = {section: {"name": now[section]["name"]} for section in TABLES}
    base = resolve({**names, "split": {"strategy": now["split"]["strategy"]}}).comparable()
    before, out = current_config(before), []
    for section in SECTIONS:
        values = dict(before.get(section, {}))
        for key, value in values.items():  # a nested model may be stored as its name only
            if isinstance(value, str) and isinstance(now[section].get(key), dict):
                values[key] = {"name": value}
        one, two, default = (flat({section: v}) for v in (values, now[section], base[section]))
        out += [
            path
            for path in dict.fromkeys([*one, *two])
            if one.get(path, default.get(path)) != two.get(path, default.get(path))
        ]
    return out
