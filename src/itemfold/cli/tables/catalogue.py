"""Tables of the models and the data sets."""

from __future__ import annotations

import json
from importlib.resources import files

from rich.console import Group, RenderableType
from rich.markup import escape

from itemfold.cli.tables.layout import new_table
from itemfold.data.datasets import DATASETS
from itemfold.models import MODELS
from itemfold.settings.schema import DEFAULTS
from itemfold.validation import schema


def model_table() -> RenderableType:
    """Every model with its paper, what it can do and its measured NDCG."""
    measured = json.loads((files("itemfold.experiments") / "measured.json").read_text("utf-8"))
    table = new_table("model", "year", "unseen users", "explains", "paper, settings, NDCG@20")
    for name, model in MODELS.items():
        settings = ", ".join(
            key if value is None else f"{key}={value}" for key, value in schema(model).items()
        )
        results = [
            f"{data} {100 * test['ndcg@20']:.2f}" for data, test in measured.get(name, {}).items()
        ]
        lines = [escape(model.paper)]
        lines += [f"[dim]{escape(settings)}[/]"] if settings else []
        lines += [f"[cyan]{escape(', '.join(results))}[/]"] if results else []
        abilities = ("yes" if able else "no" for able in (model.inductive, model.explains))
        mark = " (default)" if name == DEFAULTS["model"] else ""
        table.add_row(f"{name}{mark}", str(model.year or ""), *abilities, "\n".join(lines))
    caption = (
        "NDCG@20 × 100 on test data; `itemfold reproduce systems` repeats the runs and RESULTS.md "
        "has more figures. A setting without a value is chosen by the model. Every model trains "
        "and scores on a CPU and on a GPU."
    )
    return Group(table, f"[dim]{caption}[/]")


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
