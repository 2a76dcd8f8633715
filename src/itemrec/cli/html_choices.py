"""The section of the HTML report on what runs tried on validation, and what they chose."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from itemrec.cli.html_table import table
from itemrec.cli.tables.layout import setting_value
from itemrec.cli.tables.results import taken_candidate
from itemrec.training.run import Run

TAKEN = "✓ taken"


def choices(group: Mapping[str, Run]) -> str:
    """What was tried and chosen, for the runs that left settings open; else nothing."""
    parts = [part for name, run in group.items() if (part := _of_run(name, run, len(group) > 1))]
    if not parts:
        return ""
    about = "Settings that were not given; every value is measured on validation, none on test."
    return f'<h3>What was tried and chosen</h3><p class="note">{about}</p>{"".join(parts)}'


def _of_run(name: str, run: Run, named: bool) -> str:
    parts = [_candidates(run), _trials(run), _chosen(run)]
    if not any(parts):
        return ""
    head = f"<h4>{escape(name)}</h4>" if named else ""
    return head + "".join(parts)


def _candidates(run: Run) -> str:
    """The networks of a race."""
    entries, metric = run.metrics.get("candidates", []), run.config["train"]["metric"]
    if not entries:
        return ""
    rows = []
    for number, entry in enumerate(entries):
        epochs = f"{entry['best_epoch']} of {entry['epochs']}"
        cells = [escape(entry["name"]), epochs, f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=number == taken_candidate(run)))
    note = "Networks that were trained, each summed with the linear part."
    return _noted(note, table(["network", "best epoch", metric, ""], rows))


def _trials(run: Run) -> str:
    """The settings of the linear model, without the network."""
    entries, metric = run.metrics.get("trials", []), run.config["train"]["metric"]
    if not entries:
        return ""
    chosen = run.metrics.get("chosen", {}).get("model", {})
    keys = [key for key in entries[0] if key not in (metric, "seconds")]
    rows = []
    for entry in entries:
        taken = all(chosen.get(f"linear_{k}", chosen.get(k)) == entry[k] for k in keys)
        cells = [*(setting_value(entry[key]) for key in keys), f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=taken))
    note = "Settings of the linear model, alone, on the most popular items."
    return _noted(note, table([*map(escape, keys), metric, ""], rows, text=0))


def _marked(cells: list[str], *, taken: bool) -> list[str]:
    """The cells and a mark; what was taken is in bold."""
    return [*(f"<b>{cell}</b>" for cell in cells), TAKEN] if taken else [*cells, ""]


def _chosen(run: Run) -> str:
    """Every setting that was left open, with the value it got."""
    chosen: Mapping[str, Mapping[str, Any]] = run.metrics.get("chosen", {})
    rows = [
        [f"<code>{escape(f'{section}.{key}')}</code>", escape(setting_value(value))]
        for section, taken in chosen.items()
        for key, value in taken.items()
    ]
    if not rows:
        return ""
    note = (
        "What was chosen; <code>config.toml</code> of the run has it, so that it can be repeated."
    )
    return _noted(note, table(["setting", "value"], rows, text=2))


def _noted(note: str, content: str) -> str:
    return f'<p class="note">{note}</p><div class="tried">{content}</div>'
