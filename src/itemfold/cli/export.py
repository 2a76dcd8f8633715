"""The command `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from itemfold.cli import options
from itemfold.cli.tables.layout import print_line


def export_command(
    run: options.RunPath,
    to: Annotated[
        str,
        typer.Option(
            help="parquet: vectors and weights; usearch or faiss: the same with an index; onnx: a "
            "graph from the history of a new user to the best items."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must be new or empty.")],
) -> None:
    """Export a run to another system, and verify it against the lists of `recommend`.

    Example: itemfold export r --to parquet --out vectors
    """
    from itemfold.serving.exports.write import export

    facts = export(run, to, out, progress=True)
    whole = "the whole score" if facts["exact"] else f"all but {facts['missing']}"
    print_line(f"{out}: {whole} of {facts['model']} for {facts['for']}, {facts['items']:,} items")
    if facts["new_items_left_out"]:
        print_line(f"{facts['new_items_left_out']:,} new items without interactions were skipped")
    line = f"{facts['same_items']:.1%} of the top {facts['k']} of `recommend`"
    if "candidates" in facts:
        line += (
            f"; {facts['same_items_rescored']:.1%} if the best {facts['candidates']} are scored "
            "again with weights.parquet"
        )
    print_line(f"checked with {facts['checked_users']:,} users: {line}")
    if "approximate_recall" in facts:
        found = f"{facts['approximate_recall']:.1%} of the best {facts['k']} items"
        print_line(f"approximate search in the index finds {found} of exact search")
