"""Shared output: the console, tables for terminals, number formats."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console(emoji=False)  # ":cat:" in a name stays as it is


def new_table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """An empty table; columns in ``numbers`` are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in columns:
        is_number = name in numbers
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=is_number or name == "metric",
            overflow="fold",
        )
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text, because rich would read parts of an id as markup or emoji."""
    table.add_row(*map(Text, cells))


def print_line(text: str) -> None:
    """Print one line on stdout as it is, without wrapping or markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def program() -> str:
    """The command to show in hints: ``itemfold``, or its path if that is not on PATH."""
    typed = Path(sys.argv[0])
    if typed.name != "itemfold":  # python -m itemfold, or a test
        return "itemfold"
    found = shutil.which("itemfold")
    is_found = found is not None and Path(found).resolve() == typed.resolve()
    return "itemfold" if is_found else str(typed)


def p_value(p: float) -> str:
    """A p-value as papers write it.

    >>> p_value(0.00001), p_value(0.0123)
    ('<.001', '.012')
    """
    return "<.001" if p < 0.001 else f"{p:.3f}".replace("0.", ".", 1)


def p_phrase(p: float) -> str:
    """A p-value in a sentence.

    >>> p_phrase(0.00001), p_phrase(0.0123)
    ('p <.001', 'p = .012')
    """
    return f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"


def interval_text(low: float, high: float) -> str:
    """An interval such as 0.1000–0.2500."""
    return f"{low:.4f}–{high:.4f}"


def setting_value(value: Any) -> str:
    """The value of a setting as text, with numbers without trailing zeros.

    >>> setting_value(50.0), setting_value(((0.0, 0.3, 16.0),))
    ('50', '[[0, 0.3, 16]]')
    """
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(setting_value(part) for part in value) + "]"
    return str(value)


def counted(count: int, things: str) -> str:
    """A count with its unit.

    >>> counted(1, "users"), counted(1200, "users")
    ('1 user', '1,200 users')
    """
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"
