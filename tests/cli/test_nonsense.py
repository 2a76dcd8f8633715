"""Requests that make no sense are refused, or said to have no effect, before any work is done."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import call

import itemfold as ir
from itemfold.errors import ItemfoldError

TINY = "synthetic:users=80,items=60,interactions=900"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    call("train", TINY, "--protocol", "inductive", "--model", "ease", "--out", root / "ease")
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_final_run_keeps_the_protocol(root: Path, here: Path) -> None:
    refused = call(
        "train", "--final", root / "ease", "--protocol", "transductive", "--out", "f", code=2
    )
    assert "'protocol' must be inductive with '--final'" in refused.stderr
    assert os.listdir(here) == []
    call("train", "--final", root / "ease", "--protocol", "inductive", "--out", "f")
    assert ir.Run.load("f").protocol == "inductive"


def test_a_run_folder_is_not_data(root: Path, here: Path) -> None:
    run = root / "ease"
    for line in (["train", run], ["describe", run], ["update", run, run, "--out", "f"]):
        refused = call(*line, code=2)
        assert f"{run}: is a run folder, not data" in refused.stderr
    assert os.listdir(here) == []


def test_a_search_is_not_written_into_a_run_nor_a_run_into_a_search(root: Path, here: Path) -> None:
    pytest.importorskip("optuna")
    before = content(root / "ease")
    options = ("--model", "ease", "--search", "model.l2=10,20", "--trials", "1")
    refused = call("tune", TINY, *options, "--out", root / "ease", code=2)
    assert "holds a run, not a search: choose another --out" in refused.stderr
    assert content(root / "ease") == before
    call("tune", TINY, *options, "--out", "tuned")
    before = content(here / "tuned")
    for resume in ([], ["--resume"]):
        refused = call("train", TINY, "--model", "ease", *resume, "--out", "tuned", code=2)
        assert "holds a search, not a run: choose another --out" in refused.stderr
    assert content(here / "tuned") == before


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"save_seconds": -1}, "'save_seconds' must be a number of at least 0, got -1"),
        ({"epochs": 10**40}, r"'epochs' must be below 2\^31, got 1000"),
        ({"batch": 2**31}, r"'batch' must be below 2\^31"),
    ],
)
def test_impossible_settings_of_training(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        ir.TrainConfig(**setting)


@pytest.mark.parametrize("form", [["--out", ""], ["--out="]])
@pytest.mark.parametrize(
    "command", [["train", TINY, "--model", "ease"], ["tune", TINY], ["report", "r"]]
)
def test_an_empty_path_is_not_the_current_folder(
    here: Path, command: list[str], form: list[str]
) -> None:
    refused = call(*command, *form, code=2)
    assert refused.stderr == "itemfold: '--out' must be a path, got ''\n"
    assert os.listdir(here) == []


def test_an_empty_history_is_still_one(root: Path) -> None:
    assert "most popular" in call("recommend", root / "ease", "--history", "").output


def test_an_empty_folder_name_in_python() -> None:
    split = ir.split_users(ir.load(TINY))
    with pytest.raises(ItemfoldError, match="'folder' must be the path of a run folder, got ''"):
        ir.train(split, ir.models.EASE(), out="")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_instead_of_waited_for(here: Path) -> None:
    os.mkfifo("plays.csv")
    refused = call("describe", "plays.csv", code=2)
    assert "plays.csv: must be a file or a folder, not a pipe or a device" in refused.stderr


def test_a_model_larger_than_the_memory_is_refused_before_it_is_allocated(here: Path) -> None:
    refused = call("train", TINY, "--dim", 10**12, "--epochs", 1, "--out", "r", code=2)
    assert "'dim' must be smaller: 140 rows of 1,000,000,000,000 numbers" in refused.stderr
    assert "GiB in training; this machine has" in refused.stderr
    assert os.listdir(here) == []


def test_settings_that_a_closed_form_does_not_use_are_named(here: Path) -> None:
    done = call("train", TINY, "--model", "ease", "--epochs", 5, "--lr", 0.1, "--out", "r")
    assert "ease has a closed form: --epochs is not used" in done.stderr
    assert "ease has a closed form: --lr is not used" in done.stderr
    quiet = call(
        "train", TINY, "--model", "ease", "--seed", 3, "--no-refit", "--device", "cpu", "--out", "s"
    )
    assert quiet.stderr == ""
    assert ir.Run.load("s").config["train"]["seed"] == 3


# --- data that has moved -------------------------------------------------------------------------


@pytest.fixture
def moved(here: Path) -> Path:
    """A run whose data was moved to `archive` after training."""
    pairs = [f"u{u},i{i},title {i}" for u in range(40) for i in range(30) if (u + i) % 3]
    (here / "plays.csv").write_text("\n".join(["user,item,title", *pairs]))
    (here / "titles.csv").write_text("item,title\ni1,one\n")
    call("train", "plays.csv", "--titles", "titles.csv", "--model", "popularity", "--out", "r")
    (here / "archive").mkdir()
    shutil.move("plays.csv", "archive/old.csv")
    os.remove("titles.csv")
    return here / "archive" / "old.csv"


def test_a_run_is_evaluated_on_data_that_has_moved(moved: Path) -> None:
    refused = call("evaluate", "r", code=2)
    assert "plays.csv: name it with --data" in refused.stderr
    expected = ir.Run.load("r").metrics["test"]["ndcg@20"]
    assert f"{expected:.4f}" in call("evaluate", "r", "--data", moved).output


def test_other_data_is_refused_whatever_its_place(moved: Path) -> None:
    moved.write_text(moved.read_text() + "\nu0,i0,title 0\n")
    refused = call("evaluate", "r", "--data", moved, code=2)
    assert "'old' is not the data of this run: its fingerprint is" in refused.stderr
