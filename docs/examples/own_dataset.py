"""A data set of your own by name: one JSON object a line, {"who": "ann", "tracks": ["x", "y"]}."""

import json
from pathlib import Path

import polars as pl

import itemfold as ir
from itemfold.data.datasets import DATASETS, Dataset

FILE = Path("sessions.jsonl")


def read_sessions() -> ir.Interactions:
    """The sessions as interactions; repeated plays are merged and counted."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    sessions = [json.loads(line) for line in lines if line.strip()]
    rows = [(session["who"], track) for session in sessions for track in session["tracks"]]
    return ir.read(pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row"))


DATASETS["sessions"] = Dataset(
    about="what people played in a session",
    home="our own player",
    licence="not to be shared",
    make=read_sessions,
)
