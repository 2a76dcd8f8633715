"""Tables of results, rendered for a terminal or as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from itemfold.cli.tables.layout import add_row, console, interval_text, new_table, p_value
from itemfold.evaluation.intervals import Interval
from itemfold.validation import one_of

FORMATS = ("table", "markdown", "latex", "csv", "json")


@dataclass(frozen=True)
class Figure:
    """A cell with numbers: its text for people, and its values for CSV and JSON.

    Each value has a suffix, such as " low" for a bound. In CSV and JSON, it is in the column named
    by the cell's column and this suffix. A cell without values is left out there.
    """

    text: str
    values: tuple[tuple[str, Any], ...]

    @classmethod
    def number(cls, value: float, pattern: str = ".4f") -> Figure:
        """A number, such as 0.1234."""
        return cls(f"{value:{pattern}}", (("", float(value)),))

    @classmethod
    def p(cls, value: float) -> Figure:
        """A p-value as papers write it."""
        return cls(p_value(value), (("", float(value)),))

    @classmethod
    def again(cls, value: str | int) -> Figure:
        """A repetition of the cell above, shown as empty text."""
        return cls("", (("", value),))


def measured(found: Interval) -> tuple[Figure, Figure]:
    """Two cells: a mean whose values include the bounds, and the interval as text."""
    values = (("", found.mean), (" low", found.low), (" high", found.high))
    return Figure(f"{found.mean:.4f}", values), Figure(interval_text(found.low, found.high), ())


Cell = str | int | Figure


@dataclass(frozen=True)
class ResultTable:
    """Rows of results.

    Attributes:
        columns: Names of the columns.
        rows: Cells of each row: words, whole numbers or figures; "" if empty.
        words: Number of leading text columns; the others are numbers.
        title: The title of the table; may be empty.
        notes: Notes below the table.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: int = 1
    title: str = ""
    notes: tuple[str, ...] = ()

    def texts(self) -> list[list[str]]:
        """The cells of each row as text."""
        return [[_text(cell) for cell in row] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """Each row by column, with plain values; a mean with an interval has three columns."""
        names = [
            list(dict.fromkeys(suffix for row in self.rows for suffix, _ in _values(row[place])))
            for place in range(len(self.columns))
        ]
        return [
            {
                column + suffix: dict(_values(cell)).get(suffix)
                for column, suffixes, cell in zip(self.columns, names, row, strict=True)
                for suffix in suffixes
            }
            for row in self.rows
        ]


def check_format(name: str) -> str:
    """Return the name of a format; raise ItemfoldError if it is unknown."""
    one_of("--format", name, FORMATS)
    return name


def print_tables(tables: Sequence[ResultTable], format_: str) -> None:
    """Print tables on stdout; only the format "table" is wrapped to the terminal."""
    if format_ == "table":
        for table in tables:
            console.print(on_terminal(table))
    else:
        typer.echo(RENDERERS[format_](tables), nl=False)


def on_terminal(table: ResultTable) -> RenderableType:
    """A table for a terminal."""
    shown = new_table(*table.columns, numbers=table.columns[table.words :])
    texts = table.texts()
    for column, entries in zip(shown.columns, zip(*texts, strict=True), strict=False):
        if column.justify == "right":  # in a narrow terminal headings are folded, numbers never
            column.no_wrap, column.min_width = False, max(map(len, entries))
    has_groups = any(not cells[0] for cells in texts)
    for number, cells in enumerate(texts):
        if has_groups and number and cells[0]:
            shown.add_section()
        add_row(shown, *cells)
    title = [Text(table.title, "bold")] if table.title else []
    return Group(*title, shown, *(Text(note, "dim") for note in table.notes))


def as_markdown(tables: Sequence[ResultTable]) -> str:
    """Tables in GitHub's Markdown, with numbers aligned to the right."""
    parts = []
    for table in tables:
        marks = ["---" if n < table.words else "---:" for n in range(len(table.columns))]
        lines = [_piped(table.columns), _piped(marks), *map(_piped, table.texts())]
        title = [f"**{table.title}**", ""] if table.title else []
        notes = ["", " ".join(_sentence(note) for note in table.notes)] if table.notes else []
        parts.append("\n".join([*title, *lines, *notes]) + "\n")
    return "\n".join(parts)


def _piped(cells: Sequence[str]) -> str:
    safe = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(safe)} |"


def as_latex(tables: Sequence[ResultTable]) -> str:
    """Tables for LaTeX with the package booktabs."""
    parts = []
    for table in tables:
        kinds = "l" * table.words + "r" * (len(table.columns) - table.words)
        body = [_line(cells) for cells in table.texts()]
        caption = " ".join(_sentence(text) for text in (table.title, *table.notes) if text)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            _line(table.columns),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\caption{{{latex_text(caption)}}}"] if caption else []),
            r"\end{table}",
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "…": r"\dots{}",
}


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped.

    >>> latex_text("ndcg@20 <.001 95 %")
    'ndcg@20 $<$.001 95 \\\\%'
    """
    return "".join(LATEX.get(letter, letter) for letter in text.replace("\n", " "))


def as_csv(tables: Sequence[ResultTable]) -> str:
    """One CSV table; several tables get a column with their titles."""
    rows = []
    for table in tables:
        title = {"table": table.title or "results"} if len(tables) > 1 else {}
        rows += [title | record for record in table.records()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def as_json(tables: Sequence[ResultTable]) -> str:
    """An object with the rows and notes of each table."""
    content = [
        {"title": table.title, "rows": table.records(), "notes": list(table.notes)}
        for table in tables
    ]
    return json.dumps({"tables": content}, ensure_ascii=False) + "\n"


RENDERERS: dict[str, Callable[[Sequence[ResultTable]], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}


def _sentence(text: str) -> str:
    """A text with an initial capital and a final full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", ":", "?")) else ".")


def _text(cell: Cell) -> str:
    if isinstance(cell, Figure):
        return cell.text
    return f"{cell:,}" if isinstance(cell, int) else cell


def _values(cell: Cell) -> tuple[tuple[str, Any], ...]:
    """The values of a cell with their suffixes; NaN and ∞ are None."""
    if isinstance(cell, Figure):
        return tuple((suffix, _plain(value)) for suffix, value in cell.values)
    return () if cell == "" else (("", cell),)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
