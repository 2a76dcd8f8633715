"""The command `update`: what it prints, what it refuses, and what other commands do with it."""

import json
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from command import sigint
from typer.testing import CliRunner, Result

from itemfold.cli.app import app

TINY = "synthetic:users=80,items=60,interactions=900"


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run and new interactions."""
    monkeypatch.chdir(tmp_path)
    assert call("train", TINY, "--model", "ease", "--out", "r").exit_code == 0
    (tmp_path / "new.csv").write_text("user,item\neve,1\neve,2\n3,1\neve,new\n")
    (tmp_path / "later.csv").write_text("user,item\neve,5\n3,7\n3,999\nzoe,1\n4,9\n")
    return tmp_path


def test_it_says_what_was_added_and_done(place: Path) -> None:
    result = call("update", "r", "new.csv", "--out", "r2")
    assert result.exit_code == 0, result.output
    assert "1 user, 1 item; known already:" in result.output
    assert "linear part: " in result.output
    assert "nothing is held out, so there are no test metrics" in result.output
    assert "start from `itemfold train --final RUN`" in " ".join(result.output.split())
    assert result.output.rstrip().endswith("run folder: r2")
    config = tomllib.loads((place / "r2" / "config.toml").read_text())
    metrics = json.loads((place / "r2" / "metrics.json").read_text())
    assert config["update"] == metrics["update"]
    assert metrics["test"] == {}


def test_without_out_the_folder_is_named_after_the_run(place: Path) -> None:
    assert call("update", "r/", "new.csv").exit_code == 0
    assert (place / "r-updated" / "metrics.json").exists()


def test_an_update_is_taken_by_other_commands(place: Path) -> None:
    assert call("update", "r", "new.csv", "--out", "r2").exit_code == 0
    assert call("recommend", "r2", "--user", "eve", "-k", "3").exit_code == 0
    assert call("recommend", "r2", "--all", "--out", "all.csv").exit_code == 0
    assert call("report", "r2", "--out", "x.html").exit_code == 0
    result = call("evaluate", "r2", "--data", "later.csv", "--metrics", "ndcg@20")
    assert result.exit_code == 0, result.output
    assert "users that the run does not know, left out: 1." in result.output
    assert call("update", "r2", "later.csv", "--out", "r3").exit_code == 0
    known = call("update", "r3", "later.csv", "--out", "r4")
    assert "no new interactions" in known.output
    assert call("train", TINY, "--final", "r2", "--out", "f").exit_code == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["evaluate", "r2"], "is an update, which has no test part"),
        (["train", "--resume", "--out", "r2"], "holds an update, which cannot be resumed"),
        (["train", "--final", "r2"], "is an update, so '--final' needs a file of all its data"),
        (["update", "r", "new.csv", "--out", "r2"], "already holds a run"),
        (["update", "r", "none.csv", "--out", "x"], "no such file"),
        (["update", "none", "new.csv", "--out", "x"], "no such folder"),
        (["update", "r", "new.csv", "--epochs", "-1", "--out", "x"], "'epochs' must be"),
    ],
)
def test_mistakes_are_one_sentence(place: Path, words: list[str], problem: str) -> None:
    assert call("update", "r", "new.csv", "--out", "r2").exit_code == 0
    result = call(*words)
    assert result.exit_code == 2
    assert problem in result.output
    assert not (place / "x").exists()


def test_an_interrupted_update_leaves_nothing(tmp_path: Path) -> None:
    words = ["train", TINY, "--model", "lightgcn", "--epochs", "20", "--out", str(tmp_path / "r")]
    assert call(*words).exit_code == 0
    (tmp_path / "new.csv").write_text("user,item\neve,1\n")
    command = [sys.executable, "-m", "itemfold", "update", "r", "new.csv", "--out", "r2"]
    with sigint():
        process = subprocess.Popen(
            [*command, "--epochs", "1000000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
    while not (tmp_path / "r2").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.rstrip().endswith("itemfold: interrupted; nothing was saved")
    assert not (tmp_path / "r2").exists()
