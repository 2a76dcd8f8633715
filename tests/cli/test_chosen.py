"""`itemfold train` without a model: the budget, and the account of what was tried and taken."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import call
from hypothesis import given
from hypothesis import strategies as st

from itemfold.cli.parsing import parse_duration
from itemfold.errors import ItemfoldError
from itemfold.settings.toml_file import flat, load_config
from itemfold.training.run import Run

TINY = "synthetic:users=80,items=60,interactions=900"
FAST = ["--epochs", "3", "--dim", "4", "--device", "cpu"]


# --- durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1.5h", 5400),
        ("2 h", 7200),
        (" 3D ", 259200),
        ("0.25s", 0.25),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration("budget", text) == seconds


@given(st.floats(0.001, 1e6), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("d", 86400)]))
def test_units_are_multiples_of_a_second(number: float, unit: tuple[str, int]) -> None:
    text = f"{number:.3f}"
    found = parse_duration("budget", text + unit[0])
    assert found == pytest.approx(float(text) * unit[1])


BAD = ["", "0", "0m", "0.0h", "m", "10x", "10 minutes", "1h30m", "1,5h", "-5m", "1e3", "inf", "nan"]
BAD += [".5m", "5.", "9" * 400, "9" * 310 + "d"]


@pytest.mark.parametrize("text", BAD)
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ItemfoldError, match="'budget' must be a duration such as 90s, 10m or 2h"):
        parse_duration("budget", text)


def test_no_duration_is_no_limit() -> None:
    assert parse_duration("budget", None) is None


@pytest.mark.parametrize("text", ["0", "10x", "-5m", "soon", ""])
def test_a_bad_budget_is_one_sentence_with_code_2_and_writes_nothing(
    text: str, tmp_path: Path
) -> None:
    result = call("train", TINY, *FAST, f"--budget={text}", "--out", tmp_path / "r", code=2)
    (line,) = result.stderr.strip().splitlines()
    assert "'budget' must be a duration such as 90s, 10m or 2h" in line
    assert repr(text) in line
    assert result.stdout == ""
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_bad_budget_by_name_is_refused_too(value: str, tmp_path: Path) -> None:
    result = call(
        "train", TINY, *FAST, "--set", f"train.budget={value}", "--out", tmp_path / "r", code=2
    )
    (line,) = result.stderr.strip().splitlines()
    assert "budget' must be a" in line
    assert not (tmp_path / "r").exists()


def test_a_budget_is_stored_in_seconds_and_ends_training(tmp_path: Path) -> None:
    settings = ["--dim", "4", "--device", "cpu", "--epochs", "1000"]
    call("train", TINY, *settings, "--budget", "0.001s", "--out", tmp_path / "r")
    run = Run.load(tmp_path / "r")
    assert run.config["train"]["budget"] == 0.001
    assert run.metrics["epochs"] == 0  # the stages before the network are enough to be useful
    assert run.metrics["refit"]
    assert run.metrics["test"]


# --- the account ---------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_what_was_tried_and_taken_is_printed(protocol: str, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shown = call("train", TINY, *FAST, "--details", "--protocol", protocol, "--out", folder).stdout
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["model"] == "hybrid"
    tried = re.findall(r"^tried on validation: (.*): ndcg@20 ([\d.]+) at epoch (\d+)$", shown, re.M)
    assert tried == [
        (entry["name"], f"{entry['ndcg@20']:.4f}", str(entry["best_epoch"]))
        for entry in metrics["candidates"]
    ]
    assert len(tried) == 1  # on a GPU a second network is tried
    values = [trial["ndcg@20"] for trial in metrics["trials"]]
    linear = f"{min(values):.4f} to {max(values):.4f} alone"
    assert f"12 settings of the linear model, ndcg@20 {linear}" in shown
    (line,) = re.findall(r"^chosen: (.*)$", shown, re.M)
    printed = dict(part.split("=", 1) for part in re.split(r", (?=\w+\.[\w.]+=)", line))
    config = flat(load_config(folder / "config.toml"))
    assert set(printed) == set(flat(metrics["chosen"]))
    for key, text in printed.items():
        value = config[key]
        found: Any = text if isinstance(value, str) else json.loads(text)
        if key == "model.blend":
            assert len(found) == len(value)
            for row, expected in zip(found, value, strict=True):
                assert row == pytest.approx(expected, rel=1e-4)
        else:
            assert found == (value if isinstance(value, str) else pytest.approx(value, rel=1e-4))
    for given_one in ("model.gnn.dim", "train.epochs", "train.device"):
        assert given_one not in printed


def test_nothing_is_said_about_choices_where_nothing_was_open(tmp_path: Path) -> None:
    call("train", TINY, *FAST, "--out", tmp_path / "r")
    config = tmp_path / "r" / "config.toml"
    shown = call("train", "--config", config, "--details", "--out", tmp_path / "again").stdout
    assert "settings of the linear model" not in shown
    assert "chosen" not in shown
    assert Run.load(tmp_path / "again").metrics["trials"] == []


def test_a_model_by_name_has_no_account(tmp_path: Path) -> None:
    options = ("--model", "lightgcn", "--details", "--out", tmp_path / "r")
    shown = call("train", TINY, *FAST, *options).stdout
    assert "chosen" not in shown
    assert "tried" not in shown


def test_typical_settings_are_printed_where_nothing_is_held_out(tmp_path: Path) -> None:
    options = ("--split", "all", "--details", "--out", tmp_path / "r")
    shown = call("train", TINY, *FAST, *options).stdout
    assert "none are held out" in shown
    assert "tried" not in shown
    assert "model.linear.l2=50" in shown
    assert "model.blend=[[0, 0.4, 0, 1, 1.5]]" in shown


def test_the_final_model_of_a_hybrid_keeps_its_choices(tmp_path: Path) -> None:
    call("train", TINY, *FAST, "--protocol", "inductive", "--out", tmp_path / "r")
    call("train", "--final", tmp_path / "r", "--out", tmp_path / "final")
    run, final = Run.load(tmp_path / "r"), Run.load(tmp_path / "final")
    assert final.interactions.shape[0] > run.interactions.shape[0]  # test and validation users, too
    assert final.model.record() == run.model.record()
    for section in ("loss", "negatives"):
        assert final.config[section] == run.config[section]
    assert final.metrics["trials"] == final.metrics["candidates"] == []


def test_resume_of_a_finished_run(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    first = call("train", TINY, *FAST, "--out", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for options in ([TINY, *FAST], []):  # the same options again, or none at all
        again = call("train", *options, "--resume", "--out", folder)
        assert again.stdout == first.stdout
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    refused = call("train", TINY, *FAST, "--lr", "0.5", "--resume", "--out", folder, code=2)
    assert "'train.lr'" in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
