"""Tables of the models and the data sets."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from importlib.resources import files

from rich.console import RenderableType
from rich.markup import escape

from itemfold.cli.tables.formats import Cell, Figure, ResultTable
from itemfold.cli.tables.layout import new_table, setting_value
from itemfold.data.datasets import DATASETS
from itemfold.errors import ItemfoldError
from itemfold.models import MODELS
from itemfold.settings.schema import DEFAULTS
from itemfold.validation import schema

FIGURES = ("ndcg@20", "capped_recall@20")
SHORT = {  # columns of the table of all models
    "ml-1m/transductive": "ML-1M",
    "yelp2018/transductive": "Yelp",
    "ml-latest-small/inductive": "ML-small, new",
    "yelp2018/inductive": "Yelp, new",
}


def model_table() -> ResultTable:
    """A table of all models: capabilities, and measured NDCG on several data sets."""
    measured = _measured()
    counts = Counter(data for name in MODELS for data in measured.get(name, {}))
    shown = [data for data in SHORT if counts[data] > len(MODELS) / 2]
    rows = []
    for name, model in MODELS.items():
        cells: list[Cell] = [name, str(model.year or "")]
        cells += [_yes(model.inductive), _yes(model.explains)]
        for data in shown:
            found = measured.get(name, {}).get(data)
            cells.append("" if found is None else Figure.number(100 * found["ndcg@20"], ".2f"))
        rows.append(tuple(cells))
    columns = ("model", "year", "unseen", "explains", *(SHORT[data] for data in shown))
    return ResultTable(
        columns,
        tuple(rows),
        words=4,
        notes=(
            f"NDCG@20 × 100 on test data, 'new': for users unseen in training. Default: "
            f"{DEFAULTS['model']}. unseen: scores users without training; explains: gives the "
            "reasons of a score.",
            "Paper, settings and more figures of one: `itemfold models NAME`. "
            "`itemfold reproduce systems` repeats the runs.",
        ),
    )


def one_model(name: str) -> list[ResultTable]:
    """Tables of one model: properties, settings and measured figures."""
    if name not in MODELS:
        raise ItemfoldError(f"'MODEL' must be one of {', '.join(MODELS)}, got {name!r}")
    model = MODELS[name]
    why = "" if model.inductive else f", {model.why_not_inductive}"
    facts = {
        "paper": f"{model.paper}{f', {model.year}' if model.year else ''}",
        "training": model.kind.value,
        "unseen users": f"{_yes(model.inductive)}{why}",
        "explains": _yes(model.explains),
        "weights": ", ".join(model().weighs) or "no",  # a hybrid's follow from its parts
    }
    about = [str(inspect.getdoc(model)).partition("\n\n")[0].replace("\n", " ")]
    if model.kind.has_lists:
        facts |= {"loss": model.default_loss, "negatives": model.default_negatives}
    tables = [ResultTable(("", name), tuple(facts.items()), words=2, notes=tuple(about))]
    if settings := schema(model):
        rows = [
            (f"model.{key}", "selected by the model" if value is None else setting_value(value))
            for key, value in settings.items()
        ]
        change = "to change a setting: --set " + rows[0][0] + "=VALUE"
        tables.append(ResultTable(("setting", "default"), tuple(rows), words=2, notes=(change,)))
    if found := _measured().get(name):
        figures: list[tuple[Cell, ...]] = []
        for data, test in found.items():
            dataset, _, protocol = data.partition("/")
            values = (Figure.number(100 * test[key], ".2f") for key in FIGURES)
            figures.append((dataset, protocol, *values, int(test["seeds"])))
        columns = ("data", "protocol", "NDCG@20", "capped recall@20", "seeds")
        note = "× 100 on test data; RESULTS.md has more figures"
        tables.append(ResultTable(columns, tuple(figures), words=2, notes=(note,)))
    return tables


def _measured() -> dict[str, dict[str, dict[str, float]]]:
    text = (files("itemfold.experiments") / "measured.json").read_text("utf-8")
    found: dict[str, dict[str, dict[str, float]]] = json.loads(text)
    return found


def _yes(able: bool) -> str:
    return "yes" if able else "no"


def dataset_table() -> RenderableType:
    """Every named data set with its size, home page and licence."""
    numbers = ("users", "items", "interactions")
    table = new_table("data set", *numbers, "description, home page, licence", numbers=numbers)
    for name, entry in DATASETS.items():
        sizes = (entry.users, entry.items, entry.interactions)
        shown = [f"{size:,}" if size else "any" for size in sizes]
        about = f"{escape(entry.about)}\n{escape(entry.home)}\n[dim]{escape(entry.licence)}[/]"
        table.add_row(name, *shown, about)
        table.add_section()
    return table
