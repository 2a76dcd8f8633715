"""Checks of a suite file; an error names the key, the rule and the valid names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from itemfold.data.datasets import DATASETS
from itemfold.errors import ItemfoldError
from itemfold.evaluation.metrics import parse_metric
from itemfold.experiments.suites.overrides import Entry, merge, row_entries, section
from itemfold.settings.overrides import keys
from itemfold.settings.schema import SECTIONS, SPLIT_OF
from itemfold.validation import lookup

SUITE_KEYS = (
    *("title", "description", "baseline", "columns", "plot", "cost", "curve"),
    *("data", "protocol", "seeds", "source"),
)
ROW_KEYS = (
    *("name", "baseline", "data", "protocol", "seeds", "on"),
    *("paper", "band", "tuned", "note"),
)
SETTINGS = tuple(name for name in SECTIONS if name != "data")


def check_table(table: dict[str, Any]) -> None:
    """Reject a suite with unknown keys, names or values."""
    _check_keys(table, (*SUITE_KEYS, "defaults", "row"), "a suite")
    rows = table.get("row", [])
    if not rows or not isinstance(rows, list):
        raise ItemfoldError("a suite needs at least one [[row]]")
    names = [str(row.get("name", "")) for row in rows]
    for name in names:
        if not re.fullmatch(r"[\w][\w.-]*", name):
            raise ItemfoldError(f"a row's 'name' must be of letters, digits, '.-_', got {name!r}")
    if len(set(names)) < len(names):
        raise ItemfoldError(f"rows must have different names, got {', '.join(names)}")
    data = {entry.data for row in rows for entry in row_entries(row, table)}
    _check_part("[defaults]", table.get("defaults", {}), (*SECTIONS, "on"), data)
    for row in rows:
        _check_part(f"row '{row['name']}'", row, (*ROW_KEYS, *SETTINGS), data)
    _check_seeds(table, "the suite")
    if not isinstance(table.get("cost", False), bool):
        raise ItemfoldError(f"'cost' must be true or false, got {table['cost']!r}")
    curve = table.get("curve", "")
    if not isinstance(curve, str):
        raise ItemfoldError(f"'curve' must be a text, such as \"window\", got {curve!r}")
    for row in rows:
        _check_row(row, table)
        if curve and not re.search(r".-\d+$", row["name"]):
            name = row["name"]
            raise ItemfoldError(f"the rows of a 'curve' must be called NAME-NUMBER, got {name!r}")
    _check_defaults(table)


def check_data(name: str) -> None:
    """Raise unless a data set is built in or a file."""
    built_in = name in DATASETS or name.startswith("synthetic:")
    if not built_in and not Path(name).expanduser().exists():
        raise ItemfoldError(
            f"unknown data '{name}': neither a file or folder nor one of {', '.join(DATASETS)}"
        )


def _check_part(where: str, part: Any, known: Iterable[str], data: set[str]) -> None:
    """Check the keys of the defaults or of a row, and of their overrides."""
    _check_keys(part, known, where)
    for key, settings in part.get("on", {}).items():
        if key not in SPLIT_OF and Entry.parse(key).data not in {*data, *DATASETS}:
            choices = ", ".join([*SPLIT_OF, *sorted(data)])
            raise ItemfoldError(f"{where} has 'on' {key!r}, which is none of {choices}")
        _check_keys(settings, (*SECTIONS, "seeds"), f"{where} on {key}")
        _check_seeds(settings, where)
    _check_seeds(part, where)


def _check_row(row: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Check the data sets of a row, and its figures and counts for them."""
    where, own = f"row '{row['name']}'", row_entries(row, table)
    if not own:
        raise ItemfoldError(f"{where} has no 'data', and neither has the suite")
    for name in (row.get("protocol"), table.get("protocol")):
        if name is not None:
            lookup(SPLIT_OF, "protocol", name)
    for entry in own:
        check_data(entry.data)
    if not isinstance(tuned := row.get("tuned", {}), dict):
        raise ItemfoldError(f"{where}: 'tuned' must be a table by data set, got {tuned!r}")
    names = {*DATASETS, *(name for entry in own for name in (entry.data, entry.key))}
    for what in ("tuned", "paper", "band"):
        for key, value in row.get(what, {}).items():
            if what != "tuned" and key == "source":
                continue
            if key not in names:
                raise ItemfoldError(f"{where} has '{what}' for {key!r}, not one of its data sets")
            if what != "tuned":
                for metric, figure in value.items():
                    parse_metric(metric)
                    _check_figure(f"{where}: '{what}.{key}.{metric}'", figure, what)
            elif not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ItemfoldError(
                    f"{where}: 'tuned.{key}' must be a whole number of at least 0, got {value!r}"
                )


def _check_figure(where: str, value: Any, what: str) -> None:
    """Raise unless a published figure is a fraction and a band has two."""
    rule, count = ("a fraction", 1) if what == "paper" else ("two fractions", 2)
    values = [value] if what == "paper" else value
    if (
        not isinstance(values, list)
        or len(values) != count
        or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in values)
    ):
        raise ItemfoldError(f"{where} must be {rule}, got {value!r}")


def _check_defaults(table: Mapping[str, Any]) -> None:
    """Raise for a default that is a setting of no row's component."""
    defaults = table.get("defaults", {})
    known: dict[str, set[str]] = {name: set() for name in SECTIONS}
    for row in table["row"]:
        for entry in row_entries(row, table):
            merged = merge(defaults, row, entry)
            for name in SECTIONS:
                known[name].update(keys({s: merged[s] for s in SECTIONS}, name))
    for override in (defaults, *defaults.get("on", {}).values()):
        for name in SECTIONS:
            for key in section(override, name):
                if key not in known[name]:
                    raise ItemfoldError(
                        f"[defaults.{name}] has {key!r}, which no row has as a setting; "
                        f"known settings: {', '.join(sorted(known[name]))}"
                    )


def _check_seeds(table: Mapping[str, Any], where: str) -> None:
    seeds = table.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise ItemfoldError(f"{where}: 'seeds' must be a positive integer, got {seeds!r}")


def _check_keys(table: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(table, dict):
        raise ItemfoldError(f"{where} must be a table, got {table!r}")
    known = list(known)
    for key in table:
        if key not in known:
            raise ItemfoldError(f"{where} has no key {key!r}; known keys: {', '.join(known)}")
