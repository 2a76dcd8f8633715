"""MkDocs hooks: generate tables from the program and from measurements, render formulas.

`committed` describes the parts of pages that are made; ``<!-- made: tutorial -->`` without an end
is replaced by the notebook.
Formulas between dollar signs become MathML, which browsers render without a script.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from html import unescape
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import typer

import itemfold as ir
from itemfold.cli.app import app
from itemfold.cli.choices import fill
from itemfold.data.datasets import DATASETS
from itemfold.evaluation.tradeoff import Sweep, SweepPoint
from itemfold.models.base import Kind
from itemfold.validation import schema

DOCS = Path(__file__).parents[2] / "docs"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with the text of each page."""
    sys.path.insert(0, str(Path(__file__).parent))
    from committed import for_site

    return for_site(markdown).replace("<!-- made: tutorial -->", tutorial())


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs calls this with each page as HTML; arithmatex has marked the formulas."""
    pattern = r'<(div|span) class="arithmatex">(?:\\\[|\\\()(.*?)(?:\\\]|\\\))</\1>'
    return re.sub(pattern, _mathml, html, flags=re.DOTALL)


def _mathml(found: re.Match[str]) -> str:
    from latex2mathml.converter import convert  # tables are made without it, too

    display = "block" if found[1] == "div" else "inline"
    formula: str = convert(unescape(found[2]).strip(), display=display)
    return formula if display == "inline" else f'<div class="formula">{formula}</div>'


# --- tables --------------------------------------------------------------------------------------


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = (
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body]) + "\n"


def commands() -> str:
    """Every command of the command line with its arguments and options."""
    group = typer.main.get_command(app)
    parts = [f"{group.help}\n"]
    if options := [p for p in group.params if p.name != "help"]:
        parts += [
            "These options go before the command and apply to all commands.\n",
            parameters(options),
        ]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        described = about(fill(command.help or ""))
        parts += [f"## itemfold {name}\n", *described, parameters(command.params)]
    return "\n".join(parts)


def about(text: str) -> list[str]:
    """The help of a command, its examples as code."""
    prose, *examples = text.split("Example: ")
    lines = [f"{prose.strip()}\n"]
    return lines + [f"```text\n{example.strip()}\n```\n" for example in examples]


def parameters(found: list[Any]) -> str:
    """Arguments and options of a command."""
    rows = [
        (spelling(p), fill(p.help or "") + default_of(p))
        for p in found
        if not getattr(p, "hidden", False) and p.name != "help"
    ]
    return table(("option", "effect"), *rows) if rows else ""


def spelling(parameter: Any) -> str:
    """How a parameter is written on the command line."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def default_of(parameter: Any) -> str:
    """The default of an option, unless it is empty."""
    value = parameter.default
    is_empty = value is None or value is False or value in ((), "")
    if parameter.required or is_empty or callable(value):
        return ""
    return f" Default: `{value}`."


def train_settings() -> str:
    """The training settings."""
    rows = [(f"`{f.name}`", f"`{f.default!r}`", f.metadata["help"]) for f in fields(ir.TrainConfig)]
    return table(("setting", "default", "meaning"), *rows)


def models() -> str:
    """Every model with its capabilities."""
    trained = {
        Kind.LIST_LOSS: "any loss",
        Kind.OWN_OBJECTIVE: "own objective",
        Kind.CLOSED_FORM: "closed form",
        Kind.HYBRID: "any loss, and a closed form",
    }
    rows = [
        (
            f"[`{name}`](api/models.md#itemfold.models.{model.__name__})",
            first_line(model),
            trained[model.kind],
            "yes" if model.inductive else "no",
            "yes" if model.explains else "no",
        )
        for name, model in ir.models.MODELS.items()
    ]
    return table(("model", "description", "trained by", "new users", "explains"), *rows)


def first_line(thing: Any) -> str:
    """The first line of a docstring, without its full stop."""
    return (thing.__doc__ or "").partition("\n")[0].rstrip(".")


def settings_of(defaults: Mapping[str, Any]) -> str:
    """Settings with their defaults."""
    return " ".join(f"`{k}`" if v is None else f"`{k}={v}`" for k, v in defaults.items())


def samplers() -> str:
    """Every negative sampler."""
    rows = [
        (f"`{name}`", first_line(sampler), settings_of(schema(sampler)))
        for name, sampler in ir.negatives.NEGATIVES.items()
    ]
    return table(("negatives", "items drawn", "settings and defaults"), *rows)


def datasets() -> str:
    """Every named data set."""
    rows = [
        (f"`{name}`", found.about, f"{found.users:,}" if found.users else "", found.licence)
        for name, found in DATASETS.items()
    ]
    return table(("name", "description", "users", "licence"), *rows)


def tutorial() -> str:
    """The notebook as a page: its text, its code, and what the code printed."""
    path = DOCS / "tutorial" / "tutorial.ipynb"
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.removeprefix("# From a data frame to recommendations").strip())
            continue
        parts.append(f"```python\n{text}\n```")
        printed = "".join(line for output in cell["outputs"] for line in output["text"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def changed(value: float, before: float) -> str:
    """A value and its relative change."""
    return f"{value:.4f} ({value / before - 1:+.1%})"


def steering() -> str:
    """The cost of diversity on ml-latest-small, from ``evaluate --sweep --json``."""
    stored = json.loads((DOCS / "data" / "steering.json").read_text(encoding="utf-8"))
    sweeps = {
        name: Sweep(
            found["slider"], 20, found["users"], tuple(SweepPoint(**p) for p in found["points"])
        )
        for name, found in stored.items()
    }
    first = sweeps["hybrid, seed 0"]
    plain = first.points[0].metrics
    names = ("ndcg", "diversity", "genre_diversity", "miscalibration", "popularity_bias")
    rows = [
        (
            f"{point.value:g}",
            *(changed(point.metrics[f"{name}@20"], plain[f"{name}@20"]) for name in names),
        )
        for point in first.points
    ]
    head = ("`--diversity`", *(f"`{name}@20`" for name in names))
    return f"{first.users} users, split and training of seed 0:\n\n" + table(head, *rows)


def diversity() -> str:
    """The effect of a slider selected on other users, from ``benchmarks/diversity.py``."""
    stored = json.loads((DOCS / "data" / "diversity.json").read_text(encoding="utf-8"))
    rows = []
    for model, by in dict.fromkeys((row["model"], row["by"]) for row in stored):
        own = [row for row in stored if (row["model"], row["by"]) == (model, by)]
        sliders = [row["slider"] for row in own]
        cells = [f"{min(sliders):g} to {max(sliders):g}"]
        for metric in ("ndcg@20", "diversity@20", "genre_diversity@20"):
            values = [
                mean(row["change"][metric] for row in own if row["seed"] == seed)
                for seed in dict.fromkeys(row["seed"] for row in own)
            ]
            cells.append(f"{mean(values):+.1%} ± {stdev(values):.1%}")
        rows.append((model, f"`{by}`", *cells))
    head = ("model", "`--diversity-by`", "`--diversity`")
    metrics = ("`ndcg@20`", "`diversity@20`", "`genre_diversity@20`")
    losses = [-row["change"]["ndcg@20"] for row in stored]
    halves = f"Single halves lost {min(losses):.1%} to {max(losses):.1%} of NDCG."
    return f"{table((*head, *metrics), *rows)}\n{halves}"


def _scale() -> dict[str, Any]:
    """The output of ``benchmarks/scaling.py --constant-degree --store``."""
    text = (DOCS / "data" / "scale.json").read_text(encoding="utf-8")
    stored: dict[str, Any] = json.loads(text)
    return stored


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.2f}" if count < 1e10 else f"{count / 1e9:,.0f}"


def scale_measured() -> str:
    """Seconds and peak memory of training at several sizes, and memory by the formula."""
    stored = _scale()
    found = stored["measured"]
    first = found[0]["seconds"] / found[0]["interactions"]
    rows = []
    for row in found:
        cost, formula = row["seconds"] / row["interactions"], sum(row["formula"].values())
        cells = f"{cost * 1e6:.2f}", f"{cost / first:.2f}", _gigabytes(row["memory"])
        sizes = f"{row['interactions'] / 1e6:g}", f"{row['users'] + row['items']:,}"
        ratio = f"{row['memory'] / formula:.2f}"
        rows.append((*sizes, *cells, _gigabytes(formula), ratio))
    head = ("million interactions", "nodes", "seconds per epoch and million", "× the first")
    head += ("peak GB", "GB by the formula", "measured ÷ formula")
    return f"{stored['hardware']}; load average {stored['load']}:\n\n{table(head, *rows)}"


def scale_projected() -> str:
    """Memory, traffic and time by the formulas, at sizes that were not run."""
    stored = _scale()
    last = stored["measured"][-1]
    pace = last["seconds"] / last["interactions"] / 16  # of one step
    rows = []
    for row in stored["projected"]:
        parts = row["formula"]
        divided = parts["tables"] + parts["activations"]
        shared = sum(parts.values()) - divided
        sizes = (f"{row[name] / 1e6:g}" for name in ("users", "items", "interactions"))
        memory = (_gigabytes(shared + divided / count) for count in (1, 4, 8))
        hours = row["steps"] * row["interactions"] * pace / 3600
        times = f"{row['gathered'] / 2.4e12:.2g}", f"{hours:,.2g}"
        steps = f"{row['steps']} of {row['batch']:,} users"
        rows.append((*sizes, steps, *memory, _gigabytes(row["sent"]), *times))
    head = ("million users", "items", "interactions", "steps per epoch", "GB, one process", "of 4")
    head += ("of 8", "GB sent per step", "GPU-seconds per step", "CPU-hours per epoch")
    return table(head, *rows)


MADE: dict[str, Callable[[], str]] = {
    "commands": commands,
    "train-settings": train_settings,
    "models": models,
    "samplers": samplers,
    "datasets": datasets,
    "tutorial": tutorial,
    "steering": steering,
    "diversity": diversity,
    "scale-measured": scale_measured,
    "scale-projected": scale_projected,
}
