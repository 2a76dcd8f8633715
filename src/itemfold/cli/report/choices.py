"""The sections of the HTML report on settings: those that runs tried and chose, and all."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from itemfold.cli.report.table import html_table
from itemfold.cli.tables.details import selected_candidate
from itemfold.cli.tables.layout import setting_value
from itemfold.settings.toml_file import flat
from itemfold.training.run import Run


def choices_section(group: Mapping[str, Run]) -> str:
    """The section on the settings that runs chose themselves; empty if there are none."""
    parts = []
    for name, run in group.items():
        if any(tables := (_candidates(run), _trials(run), _chosen(run))):
            parts += [f"<h4>{escape(name)}</h4>" if len(group) > 1 else "", *tables]
    if not parts:
        return ""
    about = "Settings that were not given; every value is measured on validation, none on test."
    return f'<h3>What was tried and chosen</h3><p class="note">{about}</p>{"".join(parts)}'


def _candidates(run: Run) -> str:
    metric, rows = run.config["train"]["metric"], []
    for number, entry in enumerate(run.metrics.get("candidates", [])):
        epochs = f"{entry['best_epoch']} of {entry['epochs']}"
        cells = [escape(entry["name"]), epochs, f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=number == selected_candidate(run)))
    note = "Networks that were trained, each summed with the linear part."
    return _tried(note, ["network", "best epoch", metric, ""], rows, text=1)


def _trials(run: Run) -> str:
    entries, metric = run.metrics.get("trials", []), run.config["train"]["metric"]
    chosen = flat(run.metrics.get("chosen", {}))
    keys = [key for key in (entries[0] if entries else ()) if key not in (metric, "seconds")]
    rows = []
    for entry in entries:
        # of a model of its own, of a part, or of a part in a run of release 0.2
        places = ("model.", "model.linear.", "model.linear_")
        taken = any(all(chosen.get(f"{place}{k}") == entry[k] for k in keys) for place in places)
        cells = [*(setting_value(entry[key]) for key in keys), f"{entry[metric]:.4f}"]
        rows.append(_marked(cells, taken=taken))
    note = "Settings of the linear model, alone, on the most popular items."
    return _tried(note, [*map(escape, keys), metric, ""], rows, text=0)


def _chosen(run: Run) -> str:
    rows = [
        [f"<code>{escape(path)}</code>", escape(setting_value(value))]
        for path, value in flat(run.metrics.get("chosen", {})).items()
    ]
    note = "The chosen settings; <code>config.toml</code> of the run has them as well."
    return _tried(note, ["setting", "value"], rows, text=2)


def _marked(cells: list[str], *, taken: bool) -> list[str]:
    """The cells of a row and a mark; what was taken is in bold."""
    return [*(f"<b>{cell}</b>" for cell in cells), "✓ taken"] if taken else [*cells, ""]


def _tried(note: str, head: list[str], rows: list[list[str]], text: int) -> str:
    if not rows:
        return ""
    return f'<p class="note">{note}</p><div class="tried">{html_table(head, rows, text)}</div>'


def settings_section(runs: Mapping[str, Run]) -> str:
    """Every setting; those that differ between runs are in bold."""
    names = list(
        dict.fromkeys(
            (s, k) for run in runs.values() for s, section in run.config.items() for k in section
        )
    )
    rows = []
    for section, key in names:
        values = [str(run.config.get(section, {}).get(key, "–")) for run in runs.values()]
        mark = "<b>{}</b>" if len(set(values)) > 1 else "{}"
        rows.append([f"{section}.{key}", *(mark.format(escape(value)) for value in values)])
    shown = html_table(["", *map(escape, runs)], rows, text=len(runs) + 1)
    return f"<details><summary><h3>Settings of every run</h3></summary>{shown}</details>"
