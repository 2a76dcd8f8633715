"""Old names of settings work, and are noted in one line on stderr."""

import json
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import itemrec as ir
from itemrec.cli.app import app
from itemrec.cli.errors import warnings_as_notes

TINY = "synthetic:users=80,items=60,interactions=900"
FAST = ["--epochs", "1", "--dim", "4"]
UNTIL = "now; the old name works until 0.3"


def call(*args: object) -> list[str]:
    """The lines on stderr."""
    result = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "160"})
    assert result.exit_code == 0, (result.output, result.stderr, result.exception)
    return result.stderr.splitlines()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "old", "new", "value"),
    [
        ("sampled=5", "train.sampled", "train.n_negatives", 5),
        ("train.by=users", "train.by", "train.batch_by", "users"),
        ("train.average=0.5", "train.average", "train.ema_decay", 0.5),
        ("every=1", "train.every", "train.eval_every", 1),
        ("split.verb=interactions", "split.verb", "split.strategy", "interactions"),
    ],
)
def test_a_setting_by_its_old_name(text, old, new, value):
    lines = call("train", TINY, *FAST, "--set", text, "--out", "r")
    assert lines == [f"itemrec: '{old}' is called '{new}' {UNTIL}"]
    section, _, key = new.partition(".")
    assert ir.Run.load("r").config[section][key] == value


def test_a_file_with_old_names_gives_one_note_each(here):
    (here / "c.toml").write_text(
        '[split]\nverb = "users"\n[train]\nby = "users"\nsampled = 5\naverage = 0.5\nevery = 1\n'
    )
    lines = call("train", TINY, "--config", "c.toml", *FAST, "--set", "sampled=6", "--out", "r")
    old = ("split.verb", "train.by", "train.sampled", "train.average", "train.every")
    new = ("strategy", "batch_by", "n_negatives", "ema_decay", "eval_every")
    assert lines == [
        f"itemrec: '{one}' is called '{one.partition('.')[0]}.{name}' {UNTIL}"
        for one, name in zip(old, new, strict=True)
    ]
    run = ir.Run.load("r")
    assert (run.protocol, run.config["train"]["n_negatives"]) == ("inductive", 6)


def test_a_search_by_an_old_name():
    search = ("--search", "sampled=5,10", "--trials", "2", "--out", "t")
    lines = call("tune", TINY, *FAST, *search)
    notes = [line for line in lines if line.startswith("itemrec: ")]
    assert notes == [f"itemrec: 'train.sampled' is called 'train.n_negatives' {UNTIL}"]
    assert "train.n_negatives=5,10" in Path("t/tune.toml").read_text()
    again = call("tune", "--resume", "--out", "t", "--trials", "2")
    assert not [line for line in again if "is called" in line]  # the folder has the new name


def test_a_search_of_an_earlier_version_goes_on(here):
    search = ("--search", "n_negatives=5,10,20", "--search", "eval_every=1,2", "--out", "t")
    call("tune", TINY, *FAST, *search, "--trials", "2")
    for name in ("tune.toml", "trials.jsonl"):
        text = (here / "t" / name).read_text()
        for new, old in (("n_negatives", "sampled"), ("eval_every", "every")):
            text = text.replace(f"train.{new}", f"train.{old}")
        (here / "t" / name).write_text(text.replace("strategy =", "verb ="))
    lines = call("tune", "--resume", "--out", "t", "--trials", "4")
    assert not [line for line in lines if "is called" in line]
    call("tune", TINY, *FAST, *search[:-1], "whole", "--trials", "4")
    continued, whole = (
        [json.loads(line)["settings"] for line in Path(f, "trials.jsonl").read_text().splitlines()]
        for f in ("t", "whole")
    )
    assert continued == whole
    assert list(whole[0]) == ["train.n_negatives", "train.eval_every"]


def test_both_names_of_a_setting_are_refused(here):
    message = "'train.by' and 'train.batch_by' are the same setting: give only 'train.batch_by'"
    (here / "c.toml").write_text('[train]\nby = "users"\nbatch_by = "interactions"\n')
    result = CliRunner().invoke(app, ["train", TINY, "--config", "c.toml"])
    assert (result.exit_code, result.stderr.strip()) == (2, f"itemrec: {message}")
    split = ir.split_interactions(ir.load(TINY), seed=0)
    with pytest.raises(ir.ItemrecError, match=message):
        ir.train(split, ir.models.LightGCN(dim=4), batch_by="users", by="interactions")


def test_other_warnings_are_left_alone():
    with warnings.catch_warnings(record=True) as caught, warnings_as_notes():
        warnings.simplefilter("always")
        warnings.warn("something else will change", FutureWarning, stacklevel=1)
        warnings.warn("'a.b' is called 'a.c' now", UserWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == [
        "something else will change",
        "'a.b' is called 'a.c' now",
    ]
