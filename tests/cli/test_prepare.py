"""`itemfold prepare`, and its folder as the data of the other commands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app

pytest.importorskip("duckdb")
COLUMNS = ("--user-col", "who", "--item-col", "what", "--rating-col", "stars")


def call(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of plays, and the folder that was prepared of it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "who": [f"u{n}" for n in rng.integers(0, 60, 1500)],
        "what": rng.zipf(1.5, 1500) % 40,
        "stars": rng.integers(1, 6, 1500),
    }
    pl.DataFrame(columns).write_csv("plays.csv")
    shown = call("prepare", "plays.csv", "--out", "plays", "--memory", "1GB", *COLUMNS)
    assert "of 1,500 rows" in shown
    assert shown.splitlines()[-1] == "data: plays"
    return tmp_path


def test_every_command_takes_the_folder_as_data(folder: Path) -> None:
    expected = ir.read("plays.csv", user="who", item="what", rating="stars")
    described = [
        json.loads(call("describe", *given, "--json"))
        for given in (["plays"], ["plays.csv", *COLUMNS])
    ]
    assert described[0] == described[1]
    assert described[0]["fingerprint"] == expected.fingerprint
    model = ("--model", "lightgcn", "--dim", "8", "--epochs", "2")
    call("train", "plays", *model, "--out", "mapped")
    call("train", "plays.csv", *COLUMNS, *model, "--out", "read")
    runs = [json.loads(Path(name, "metrics.json").read_text()) for name in ("mapped", "read")]
    assert runs[0]["dataset"] == runs[1]["dataset"]
    assert runs[0]["test"] == runs[1]["test"]
    weights = [Path(name, "model.safetensors").read_bytes() for name in ("mapped", "read")]
    assert weights[0] == weights[1]
    call("compare", "mapped", "read")
    call("evaluate", "mapped")
    assert "3" in call("recommend", "mapped", "--user", "u1", "-k", "3")
    call("train", "plays", "--k-core", "3", "--min-rating", "2", *model, "--out", "core")
    call("update", "mapped", "plays", "--out", "updated")
    lines = ["who,what,stars", *(f"u{n},{n % 7},3" for n in range(60))]
    Path("later.csv").write_text("\n".join(lines) + "\n")
    call("prepare", "later.csv", "--out", "later", *COLUMNS)
    call("evaluate", "updated", "--data", "later")
    call("evaluate", "read", "--data", "plays")


def test_mistakes_are_one_sentence_and_leave_nothing(folder: Path) -> None:
    for given, sentence in (
        (("plays.csv",), "no user column; columns found: who, what, stars"),
        (("plays.csv", *COLUMNS, "--memory", "few"), "'memory' must be a size such as 4GB"),
        (("plays.csv", *COLUMNS, "--threads", "-1"), "'threads' must be a positive integer"),
        (("none.csv",), "none.csv: no such file or folder"),
    ):
        shown = call("prepare", *given, "--out", "other", code=2)
        assert len(shown.strip().splitlines()) == 1
        assert sentence in shown
        assert not Path("other").exists()
    shown = call("prepare", "plays.csv", *COLUMNS, "--out", "plays", "--min-rating", "3", code=2)
    assert "plays was prepared differently: 'min_rating' was not given and is 3.0" in shown
    shown = call("train", "plays", "--user-col", "who", code=2)
    assert "'user' has no effect on a prepared folder, and plays is one" in shown


def test_without_duckdb_a_sentence_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    shown = call("prepare", "plays.csv", *COLUMNS, "--out", "other", code=2)
    assert shown.strip() == "itemfold: 'prepare' needs duckdb: pip install duckdb"


def test_the_process_ends_without_a_word_about_itself(folder: Path) -> None:
    """DuckDB reports its objects on stderr if they are kept from the garbage collection at exit."""
    command = [sys.executable, "-m", "itemfold", "prepare", "plays.csv", "--out", "quiet", *COLUMNS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "leaked" not in done.stderr + done.stdout
