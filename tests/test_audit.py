"""One test for each defect that an audit of the command line and the run folders found."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command import call
from small import board_split
from torch import Tensor

import itemfold as ir
from itemfold.environment import out_of_memory
from itemfold.experiments import tune as search
from itemfold.experiments.search_folder import stored_search
from itemfold.experiments.tune import tune
from itemfold.files import remove_drafts
from itemfold.settings.overrides import assign

TINY = "synthetic:users=60,items=80,interactions=900"


# --- tune ----------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches this, just as nothing catches kill -9."""


@pytest.fixture
def killed_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search for three trials that was killed after the first."""
    pytest.importorskip("optuna")
    config = {"data": {"data": TINY}, "model": {"name": "ease"}}
    with monkeypatch.context() as patch:
        next_trial: Callable[..., Any] = search._next_trial

        def once(task: Any, done: list[Any], known: Any) -> Any:
            if done:
                raise Killed
            return next_trial(task, done, known)

        patch.setattr(search, "_next_trial", once)
        with pytest.raises(Killed):
            tune(config, tmp_path / "s", search=["model.l2=1..100"], trials=3)
    return tmp_path / "s"


def test_a_search_that_is_resumed_has_the_trials_it_was_asked_for(killed_search: Path) -> None:
    call("tune", "--resume", "--out", killed_search)
    assert len((killed_search / "trials.jsonl").read_text().splitlines()) == 3
    call("tune", "--resume", "--out", killed_search, "--trials", "4")
    config, texts = stored_search(killed_search)
    assert len(tune(config, killed_search, search=texts, resume=True).trials) == 4


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["dim=8\nlr=3", "model.dim\n=8"])
def test_a_setting_with_a_line_break_is_rejected(text: str) -> None:
    with pytest.raises(ir.ItemfoldError, match=r"'--set' must look like model\.dim=64"):
        assign({"model": {"name": "lightgcn"}}, text)


def test_an_output_folder_that_is_a_dangling_link_is_named(tmp_path: Path) -> None:
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "gone")
    error = call("train", TINY, "--model", "ease", "--out", link, code=2).stderr
    assert f"'{link}' is a link to '{tmp_path / 'gone'}', which does not exist" in error
    inside = call("train", TINY, "--model", "ease", "--out", link / "r", code=2).stderr
    assert "which does not exist" in inside


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(5 * 2**30, "5.0 GiB"), (40 * 2**20, "40.0 MiB"), (3 * 2**10, "3.0 KiB"), (12, "12 bytes")],
)
def test_memory_that_was_asked_for_is_never_zero(asked: int, shown: str) -> None:
    error = RuntimeError(f"can't allocate memory: you tried to allocate {asked} bytes")
    assert f"cannot allocate {shown};" in out_of_memory(error)


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (lambda pos, neg, mask, neg_mask: pos.sum(1), r"a tensor of shape \[\d+\]"),
        (lambda pos, neg, mask, neg_mask: float(pos.detach().sum()), r"-?\d"),
    ],
    ids=["a vector", "a float"],
)
def test_a_loss_that_is_not_one_number_is_named(loss: Callable[..., Tensor], got: str) -> None:
    sentence = f"'loss' must return one number, the mean over the users, got {got}"
    with pytest.raises(ir.ItemfoldError, match=sentence):
        ir.train(board_split(), ir.models.MF(dim=4), loss=loss, epochs=1)


# --- files that a killed process leaves ----------------------------------------------------------


def dead_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_an_export_removes_the_drafts_of_killed_ones_only(tmp_path: Path) -> None:
    run = ir.train(board_split(), ir.models.EASE())
    dead = tmp_path / f".vectors.{dead_process()}.tmp"
    alive = tmp_path / f".vectors.{os.getppid()}.tmp"
    other = tmp_path / f".other.{dead_process()}.tmp"
    for draft in (dead, alive, other):
        draft.mkdir()
        (draft / "items.parquet").write_text("half")
    ir.export(run, "parquet", tmp_path / "vectors")
    assert not dead.exists()
    assert alive.exists()
    assert other.exists()


def test_drafts_of_names_with_brackets_are_found(tmp_path: Path) -> None:
    (tmp_path / f".[a].{dead_process()}.tmp").write_text("half")
    remove_drafts(tmp_path, "[a]")
    assert not list(tmp_path.iterdir())


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["log", "none"])
@pytest.mark.parametrize("duplicates", ["merge", "sum"])
def test_weights_are_what_the_documentation_says(transform: str, duplicates: str) -> None:
    """The formula of docs/how-to/weights.md, row by row."""
    rng, day, n = np.random.default_rng(0), 86400, 60
    frame = pl.DataFrame(
        {
            "user": rng.integers(0, 4, n),
            "item": rng.integers(0, 5, n),
            "plays": rng.integers(1, 9, n),
            "time": 1_600_000_000 + rng.integers(0, 90, n) * day,
        }
    )
    arguments: dict[str, Any] = {"weight_transform": transform, "duplicates": duplicates}
    data = ir.read(frame, weight="plays", half_life="30d", **arguments)
    latest = frame["time"].max()
    expected = {}
    for (user, item), rows in frame.group_by("user", "item"):
        last = rows["time"].max()
        values = [
            row["plays"] * 2 ** (-(last - row["time"]) / (30 * day))
            for row in rows.iter_rows(named=True)
        ]
        total = sum(values) if duplicates == "sum" else rows["plays"].max()
        value = np.log(1 + total) if transform == "log" else total
        expected[user, item] = value * 2 ** (-(latest - last) / (30 * day))
    users, items = data.user_ids.ids[data.users], data.item_ids.ids[data.items]
    for user, item, weight in zip(users, items, data.weights, strict=True):
        assert weight == pytest.approx(expected[user, item])
