"""Overrides of a suite: defaults and a row, then those of a protocol or a data set.

A setting for one data set overrides a setting for all of them, and a row overrides the defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.settings.component import TABLES
from itemfold.settings.overrides import keys
from itemfold.settings.schema import PROTOCOL_OF, SECTIONS, SPLIT_OF


@dataclass(frozen=True)
class Entry:
    """A data set under a protocol."""

    data: str
    protocol: str

    @classmethod
    def parse(cls, text: str, protocol: str = "transductive") -> Entry:
        """``DATA`` or ``DATA/PROTOCOL``.

        >>> Entry.parse("yelp2018/inductive")
        Entry(data='yelp2018', protocol='inductive')
        """
        head, slash, tail = text.rpartition("/")
        return cls(head, tail) if slash and tail in SPLIT_OF else cls(text, protocol)

    @property
    def key(self) -> str:
        """As written in a suite: DATA/PROTOCOL."""
        return f"{self.data}/{self.protocol}"

    @property
    def title(self) -> str:
        """The heading of a table."""
        return f"{self.data}, {self.protocol}"


def split_names(text: str) -> list[str]:
    """Split names at commas, except inside a name such as synthetic:users=9,items=8.

    >>> split_names("ml-1m, synthetic:users=9,items=8/inductive")
    ['ml-1m', 'synthetic:users=9,items=8/inductive']
    """
    return [part.strip() for part in re.split(r",(?!\s*\w+=)", text) if part.strip()]


def row_entries(row: Mapping[str, Any], suite: Mapping[str, Any]) -> list[Entry]:
    """The data sets of a row: its own list, or the suite's."""
    data = row.get("data", suite.get("data", ()))
    protocol = row.get("protocol", suite.get("protocol", "transductive"))
    return [Entry.parse(text, protocol) for text in ([data] if isinstance(data, str) else data)]


def section(override: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a section; a component may be just a name."""
    value = override.get(name, {})
    if name == "data" and not isinstance(value, dict):
        return {}  # a row's list of data sets
    if isinstance(value, str) and name in TABLES:
        return {"name": value}
    if not isinstance(value, dict):
        raise ItemfoldError(f"'{name}' must be a table of settings, got {value!r}")
    return dict(value)


def merge(defaults: Mapping[str, Any], row: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """The sections of a row on a data set, and "seeds" if an override sets it."""
    (general, *on_general), (own, *on_own) = _overrides(defaults, entry), _overrides(row, entry)
    order = [(general, False), (own, True)]
    order += [(each, False) for each in on_general] + [(each, True) for each in on_own]
    # first the components, which determine the settings there are
    out: dict[str, Any] = {name: {} for name in SECTIONS}
    for override, _ in order:
        for name in TABLES:
            if "name" in section(override, name):
                out[name]["name"] = section(override, name)["name"]
        strategy = section(override, "split").get("strategy")
        if strategy is not None and PROTOCOL_OF.get(strategy, "transductive") == entry.protocol:
            out["split"]["strategy"] = strategy
        if "seeds" in override:
            out["seeds"] = override["seeds"]
    out["split"].setdefault("strategy", SPLIT_OF[entry.protocol])
    known = {name: keys({s: out[s] for s in SECTIONS}, name) for name in SECTIONS}
    for override, of_row in order:
        for name in SECTIONS:
            for key, value in section(override, name).items():
                if key in ("name", "strategy"):
                    continue
                if key in known[name]:
                    out[name][key] = value
                elif of_row:
                    raise ItemfoldError(
                        f"[{name}] has no setting {key!r}; its settings are: "
                        f"{', '.join(known[name])}"
                    )
    out["data"]["data"] = entry.data
    return out


def _overrides(table: Mapping[str, Any], entry: Entry) -> Iterator[Mapping[str, Any]]:
    yield table
    for key in (entry.protocol, entry.data, entry.key):
        if key in table.get("on", {}):
            yield table["on"][key]
