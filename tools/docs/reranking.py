"""The figures and the plot of docs/how-to/reranking.md: what each slider costs on ml-latest-small.

``python tools/docs/reranking.py [FOLDER]`` trains the default model and EASE with seed 0, into
FOLDER if it is given, and writes docs/data/steering.json and docs/img/reranking.svg. It takes a few
minutes and needs ITEMFOLD_DATA or a download.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from itemfold.cli.report.page import PAGE
from itemfold.cli.report.tradeoffs import tradeoff_section
from itemfold.training.run import Run

DOCS = Path(__file__).parents[2] / "docs"
MODELS = ("hybrid", "ease")
DIGITS = 6


def command(*words: str, folder: Path) -> str:
    """The output of an itemfold command."""
    line = [sys.executable, "-m", "itemfold", *words]
    return subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, check=True, text=True).stdout


def sweep(folder: Path) -> dict[str, object]:
    """The table of `evaluate --sweep diversity`, rounded."""
    found = json.loads(
        command("evaluate", "hybrid", "--sweep", "diversity", "--json", folder=folder)
    )
    for point in found["points"]:
        point["metrics"] = {k: round(v, DIGITS) for k, v in point["metrics"].items()}
    return {name: found[name] for name in ("slider", "users", "points")}


def plot(folder: Path) -> str:
    """The plot of the report as a file of its own, with the colours of the report."""
    section = tradeoff_section({name: Run.load(folder / name) for name in MODELS})
    (svg,) = re.findall(r"<svg.*?</svg>", section, flags=re.DOTALL)
    colours = dict(re.findall(r"(--\w+): (#\w+)", PAGE.partition("@media")[0]))
    svg = re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], svg)
    background = f'<rect width="100%" height="100%" fill="{colours["--paper"]}"/>'
    return svg.replace(">", f">{background}", 1) + "\n"


def main() -> None:
    """Train the models, and write both files."""
    with tempfile.TemporaryDirectory() as own:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else own)
        for name in MODELS:
            if not (folder / name).exists():
                command("train", "ml-latest-small", "--model", name, "--out", name, folder=folder)
        text = f'{{\n "hybrid, seed 0": {json.dumps(sweep(folder))}\n}}\n'
        (DOCS / "data/steering.json").write_text(text, encoding="utf-8")
        (DOCS / "img/reranking.svg").write_text(plot(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
