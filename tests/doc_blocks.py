"""Fenced blocks of Markdown pages, and functions that run their commands as written."""

import importlib.util
import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from itemfold.cli.app import app

ROOT = Path(__file__).parent.parent


def blocks(text: str, language: str) -> list[str]:
    """The contents of all fenced blocks of a language."""
    fence = f"```{language}\n"
    return [part.partition("```")[0] for part in text.split(fence)[1:]]


def commands(text: str) -> list[list[str]]:
    """Every command of the ``sh`` blocks as a list of words; a backslash continues a line."""
    lines = "\n".join(blocks(text, "sh")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words: list[str]) -> None:
    """Run an ``itemfold`` command or a Python script in this process; it must succeed."""
    if words[0] == "python":
        before, sys.argv = sys.argv, words[1:]
        try:
            runpy.run_path(words[1], run_name="__main__")
        finally:
            sys.argv = before
        return
    assert words[0] == "itemfold", words
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, (words, result.output, result.exception)


def write_plays(folder: Path) -> None:
    """Write a user's files: one with uncommon column names, one with those that are found."""
    rng = np.random.default_rng(0)
    rows = {
        (int(u), int(t))
        for u, t in zip(rng.integers(0, 60, 1500), rng.zipf(1.5, 1500) % 80, strict=True)
    }
    lines = [f"listener{u},track{t},{1 + (u * t) % 5}" for u, t in sorted(rows)]
    (folder / "plays.csv").write_text("listener,track,stars\n" + "\n".join(lines) + "\n")
    new_plays = ["newcomer,track4,5", "newcomer,track9,4", "listener2,track999,5"]
    (folder / "new-plays.csv").write_text("listener,track,stars\n" + "\n".join(new_plays) + "\n")
    likes = [f"user{u},film{t}" for u, t in sorted(rows)]
    (folder / "likes.csv").write_text("user_id,item_id\n" + "\n".join(likes) + "\n")
    new = ["newcomer,film1", "newcomer,film2", "user1,film500", "user2,film500"]
    (folder / "new-likes.csv").write_text("user_id,item_id\n" + "\n".join(new) + "\n")
    later = [f"user{u},film{u % 5 + 1}" for u in range(60)]
    (folder / "later-likes.csv").write_text("user_id,item_id\n" + "\n".join(later) + "\n")
    (folder / "feedback").mkdir()
    event = {"timestamp": 1.0, "user_id": "user3", "item_id": "film500", "event": "liked"}
    (folder / "feedback" / "feedback.jsonl").write_text(json.dumps(event) + "\n")


def load_script(name: str) -> Any:
    """A script under tools/docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
