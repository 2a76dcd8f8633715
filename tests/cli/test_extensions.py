"""Files of the user: their components are known to every command and to worker processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import call

import itemfold as ir
from itemfold.extensions import PREFIX, VARIABLE, load_extensions

TINY = "synthetic:users=80,items=60,interactions=900"
FAST = ["--epochs", "2", "--dim", "4", "--set", "eval_every=1"]

OWN = """
from dataclasses import dataclass

import itemfold
from itemfold.losses import softmax
from itemfold.models import EASE, MODELS

print("loading own.py")


def own_loss(pos, neg, pos_mask=None, neg_mask=None, *, tau=0.5):
    return softmax(pos, neg, pos_mask, neg_mask, tau=tau)


@dataclass
class Note:  # needs its module in sys.modules
    text: str


class Own(EASE):
    pass


itemfold.losses.LOSSES["own-loss"] = own_loss
MODELS["own"] = Own
"""

SUITE = """
data = "synthetic:users=60,items=50,interactions=700"
columns = ["ndcg@20"]
seeds = 1
[[row]]
name = "a"
model = "own"
[[row]]
name = "b"
model = { name = "lightgcn", dim = 4, layers = 1 }
loss = "own-loss"
train = { epochs = 1, eval_every = 1 }
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """An extension; whatever it adds to this process is removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "")
    for table in (ir.losses.LOSSES, ir.models.MODELS):
        for name in ("own-loss", "own"):
            monkeypatch.setitem(table, name, None)
            del table[name]
    before = set(sys.modules)
    (tmp_path / "own.py").write_text(OWN)
    yield tmp_path / "own.py"
    for name in set(sys.modules) - before:
        if name.startswith(PREFIX):
            del sys.modules[name]


def test_a_custom_loss_and_model_are_known_to_every_command(own):
    call("train", TINY, "--loss", "own-loss", code=2)
    known = ("--extension", own)
    call(*known, "train", TINY, "--loss", "own-loss", *FAST, "--set", "loss.tau=0.3", "--out", "l")
    assert ir.Run.load("l").config["loss"] == {"name": "own-loss", "tau": 0.3}
    call(*known, "train", TINY, "--model", "own", "--out", "m")
    assert json.loads(call(*known, "evaluate", "m", "--json").stdout)["metrics"]["ndcg@20"] > 0
    assert call(*known, "recommend", "m", "--history", "3", "-k", "2").exit_code == 0
    tune = ("tune", TINY, "--model", "own", "--search", "model.l2=1..100", "--trials", "2")
    assert "2 trials" in call(*known, *tune).stdout
    for command in ("models", "train --help"):
        assert "own" in call(*known, *command.split()).stdout.replace("known", "")


def test_help_lists_choices_after_extensions_are_loaded(own):
    assert "own-loss" not in call("train", "--help").stdout
    assert "own-loss" in call("--extension", own, "train", "--help").stdout


def test_what_an_extension_prints_stays_out_of_results(own):
    call("--extension", own, "train", TINY, "--model", "own", "--out", "m")
    again = ["-m", "itemfold", "--extension", "own.py", "recommend", "m", "--user", "3", "--json"]
    done = subprocess.run([sys.executable, *again], capture_output=True, text=True, cwd=own.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["items"]
    assert "loading own.py" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_workers_of_a_suite_know_extensions(own, jobs):
    Path("s.toml").write_text(SUITE)
    arguments = ["--results", "results", "--per-user", "values", "--device", "cpu"]
    command = ("--extension", "own.py", "reproduce", "s.toml", "--jobs", jobs, *arguments)
    text = call(*command).stdout
    lines = [json.loads(line) for line in Path("results/s.jsonl").read_text().splitlines()]
    runs = {line["id"]: line["test"] for line in lines if line["kind"] == "run"}
    rows = {line["row"]: runs[line["run"]] for line in lines if line["kind"] == "row"}
    assert sorted(rows) == ["a", "b"]
    for row, test in rows.items():  # the table at the end shows what was stored
        (shown,) = (line for line in text.splitlines() if line.split()[:1] == [row])
        assert f"{100 * test['ndcg@20']:.2f}" in shown


def test_the_environment_variable_is_read_and_passed_on(own, monkeypatch):
    other = own.with_name("other.py")
    other.write_text("value = 5\n")
    monkeypatch.setenv(VARIABLE, str(other))
    load_extensions(["own.py", own])
    assert os.environ[VARIABLE] == os.pathsep.join([str(other), str(own)])
    assert sys.modules[f"{PREFIX}other"].value == 5
    assert sys.modules[f"{PREFIX}own"].Note("x").text == "x"


def test_files_of_one_name_in_two_folders_are_two_modules(own):
    own.with_name("sub").mkdir()
    twin = own.with_name("sub") / "own.py"
    twin.write_text("value = 7\n")
    load_extensions([own, twin])
    load_extensions([own, twin])  # once each
    names = [name for name in sys.modules if name.startswith(f"{PREFIX}own")]
    assert names == [f"{PREFIX}own", f"{PREFIX}own_2"]
    assert sys.modules[f"{PREFIX}own_2"].value == 7


BAD = {
    "missing.py": "'--extension' must be an existing .py file, got 'missing.py'",
    "own.txt": "'--extension' must be an existing .py file, got 'own.txt'",
    ".": "'--extension' must be an existing .py file, got '.'",
    "raises.py": "raises.py failed in line 2: NameError: name 'nothing' is not defined",
    "syntax.py": "syntax.py failed: SyntaxError: ",
    "exits.py": "exits.py failed in line 1: SystemExit: 0",
    "deep.py": "deep.py failed in line 2: ValueError: could not convert",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_extension_is_one_sentence(own, name):
    files = {"own.txt": "", "raises.py": "x = 1\nnothing\n", "syntax.py": "x ==== 1\n"}
    files |= {"exits.py": "raise SystemExit(0)\n", "deep.py": "import itertools\nfloat('x\\n')\n"}
    for file, text in files.items():
        Path(file).write_text(text)
    result = call("--extension", name, "models", code=2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("itemfold: ")
    assert BAD[name] in result.stderr
    assert f"{PREFIX}{Path(name).stem}" not in sys.modules
