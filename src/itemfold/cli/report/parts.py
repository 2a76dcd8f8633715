"""The section of the HTML report on hybrids: their parts alone, on test."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from itemfold.cli.report.table import html_table
from itemfold.cli.tables.layout import p_value
from itemfold.cli.tables.parts import part_warning, parts_alone
from itemfold.training.run import Run


def parts_section(group: Mapping[str, Run]) -> str:
    """The parts of every hybrid, with a warning if one is better than the sum; may be empty."""
    out = []
    for name, run in group.items():
        if parts := parts_alone(run):
            whole = parts[0].whole
            rows = [] if whole is None else [["the sum of the parts", f"{whole:.4f}", "", ""]]
            for part in parts:
                change = "" if part.change is None else f"{part.change:+.1%}"
                p = escape(p_value(part.p))
                rows.append([f"{escape(part.name)} alone", f"{part.value:.4f}", change, p])
            out.append(f"<h4>{escape(name)}</h4>" if len(group) > 1 else "")
            if warning := part_warning(run):
                out.append(f'<p class="warning">Warning: {escape(warning)}.</p>')
            out.append(html_table(["", run.config["train"]["metric"], "change", "p, t-test"], rows))
    if not out:
        return ""
    note = "Each part alone on test, against the sum: relative change and paired t-test over users."
    return f'<h3>Parts of the hybrid</h3>{"".join(out)}<p class="note">{note}</p>'
