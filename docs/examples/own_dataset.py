"""Data in a format of your own: one JSON object a line, {"who": "ann", "tracks": ["x", "y"]}.

As a script it writes a table that every command reads:

    python own_dataset.py sessions.jsonl sessions.csv
"""

import csv
import json
import sys
from pathlib import Path

import polars as pl

import itemrec as ir


def rows_of(path: str | Path) -> list[tuple[str, str]]:
    """A (user, item) pair for every track of every session."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    sessions = [json.loads(line) for line in lines if line.strip()]
    return [(session["who"], track) for session in sessions for track in session["tracks"]]


def read_sessions(path: str | Path) -> ir.Interactions:
    """The sessions as interactions; repeated plays are merged and counted."""
    frame = pl.DataFrame(rows_of(path), schema=["user_id", "item_id"], orient="row")
    return ir.read(frame, name=Path(path).stem)


def write_table(sessions: str | Path, table: str | Path) -> None:
    """The same pairs as a CSV file with the usual column names."""
    with Path(table).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "item_id"])
        writer.writerows(rows_of(sessions))


if __name__ == "__main__":
    write_table(*sys.argv[1:])
