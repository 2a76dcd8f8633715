"""Notebooks without Jupyter: their code cells run in order, as a reader would run them.

``python tests/notebooks.py docs/tutorial/tutorial.ipynb`` runs a notebook and stores its outputs.
"""

import ast
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def load(path: Path) -> dict[str, Any]:
    """The notebook as the JSON that it is."""
    return json.loads(path.read_text(encoding="utf-8"))


def run(notebook: dict[str, Any]) -> list[str]:
    """Run the code cells in one namespace; returns what each prints, its last value included."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [run_cell("".join(cell["source"]), names, n) for n, cell in enumerate(cells)]


def run_cell(source: str, names: dict[str, Any], number: int) -> str:
    """Run one cell; the value of an expression at its end is printed, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    told = io.StringIO()
    with redirect_stdout(told):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            if value is not None:
                print(value)
    return told.getvalue()


def with_outputs(notebook: dict[str, Any], outputs: list[str]) -> dict[str, Any]:
    """The notebook with these outputs of its code cells."""
    left = iter(outputs)
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            text = next(left).splitlines(keepends=True)
            shown = [{"name": "stdout", "output_type": "stream", "text": text}] if text else []
            cell = {**cell, "outputs": shown}
        cells.append(cell)
    return {**notebook, "cells": cells}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        notebook = load(Path(name))
        filled = with_outputs(notebook, run(notebook))
        Path(name).write_text(json.dumps(filled, indent=1, ensure_ascii=False) + "\n")
