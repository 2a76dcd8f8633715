"""Ctrl-C and SIGTERM: one sentence at any moment, and advice that works."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import sigint
from typer.testing import CliRunner

from itemfold.cli.app import app
from itemfold.training.run import Run

DATA = "synthetic:users=80,items=60,interactions=900"
SMALL = ("--model", "lightgcn", "--dim", "4")  # the default costs more and is stopped likewise
# A signal arrives at the moment a module is first looked for, then the command line starts.
AT_IMPORT = """
import os, sys

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Sender())
from itemfold.__main__ import main
main()
"""
# A signal arrives when a function is called.
AT_CALL = """
import importlib, os, sys
owner = importlib.import_module({module!r})
for part in {path!r}.split(".")[:-1]:
    owner = getattr(owner, part)
name, calls = {path!r}.rpartition(".")[2], []
original = getattr(owner, name)

def send(*args, **kwargs):
    calls.append(1)
    if len(calls) == {call}:
        os.kill(os.getpid(), {number})
    return original(*args, **kwargs)

setattr(owner, name, send)
from itemfold.__main__ import main
main()
"""
CODES = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def run(
    code: str, *arguments: str, cwd: Path, handler: Any = signal.default_int_handler
) -> tuple[int, str]:
    """Exit code and stderr."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with sigint(handler):
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "signal_and_code"),
    [
        *((name, CODES[0]) for name in ("itemfold.cli.app", "typer", "numpy.linalg", "torch.nn")),
        *((name, CODES[0]) for name in ("torch._C", "scipy.sparse", "itemfold.training.loop")),
        *((name, CODES[1]) for name in ("itemfold.cli.app", "torch")),
    ],
)
def test_a_signal_during_the_start_is_one_sentence(
    tmp_path: Path, module: str, signal_and_code: tuple[int, int, str]
) -> None:
    number, code, word = signal_and_code
    text = AT_IMPORT.format(module=module, number=int(number))
    found, error = run(text, "train", DATA, "--epochs", "1", "--out", "r", cwd=tmp_path)
    assert error == f"itemfold: {word}\n"
    assert found == code
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("module", "path", "signal_and_code"),
    [
        ("itemfold.data.named.synthetic", "make_titles", CODES[0]),
        ("itemfold.training.run_folder", "RunFolder.claim", CODES[0]),
        ("itemfold.training.learner", "Learner.__init__", CODES[1]),
        ("itemfold.evaluation.evaluate", "Evaluator.__init__", CODES[0]),
    ],
)
def test_before_the_first_epoch_nothing_is_saved_and_no_resume_is_advised(
    tmp_path: Path, module: str, path: str, signal_and_code: tuple[int, int, str]
) -> None:
    number, code, word = signal_and_code
    text = AT_CALL.format(module=module, path=path, number=int(number), call=1)
    found, error = run(text, "train", DATA, *SMALL, "--epochs", "2", "--out", "r", cwd=tmp_path)
    assert error == f"itemfold: {word}; nothing was saved\n"
    assert found == code
    assert os.listdir(tmp_path) == []


def test_after_the_first_stages_there_is_a_run_to_use_and_to_continue(tmp_path: Path) -> None:
    text = AT_CALL.format(
        module="itemfold.training.learner", path="Learner.__init__", number=15, call=1
    )
    found, error = run(text, "train", DATA, "--epochs", "2", "--out", "r", cwd=tmp_path)
    assert error.splitlines()[-1] == (
        "itemfold: terminated; continue with: itemfold train --resume --out r"
    )
    assert found == 143
    stage = Run.load(tmp_path / "r")
    assert (stage.metrics["stage"], stage.metrics["complete"]) == ("linear", False)
    done = CliRunner().invoke(app, ["train", "--resume", "--out", str(tmp_path / "r")])
    assert done.exit_code == 0, done.stderr
    finished = Run.load(tmp_path / "r")
    assert finished.metrics["complete"]
    assert "stage" not in finished.metrics


@pytest.mark.parametrize(
    ("signal_and_code", "model"), [(CODES[0], ()), (CODES[1], SMALL)], ids=["SIGINT", "SIGTERM"]
)
def test_in_the_middle_of_an_epoch_the_state_is_saved_and_the_advice_works(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    signal_and_code: tuple[int, int, str],
    model: tuple[str, ...],
) -> None:
    number, code, word = signal_and_code
    text = AT_CALL.format(
        module="itemfold.training.learner", path="Learner.step", number=int(number), call=1
    )
    line = ("train", DATA, *model, "--epochs", "4", "--out", "r")
    found, error = run(text, *line, cwd=tmp_path)
    *before, last = error.splitlines()
    event = word if number == signal.SIGTERM else "stopped at the best epoch so far"
    assert last == f"itemfold: {event}; continue with: itemfold train --resume --out r"
    assert found == code
    monkeypatch.chdir(tmp_path)
    if number == signal.SIGINT:
        assert not Run.load("r").metrics["complete"]
    done = CliRunner().invoke(app, ["train", "--resume", "--out", "r"])
    assert (done.exit_code, done.stderr.splitlines()) == (0, before)
    assert Run.load("r").metrics["complete"]


def test_a_second_signal_does_not_wait_for_the_end_of_the_epoch(tmp_path: Path) -> None:
    twice = AT_CALL.replace("os.kill(", "os.kill(os.getpid(), 2); os.kill(")
    text = twice.format(module="itemfold.training.learner", path="Learner.step", number=2, call=1)
    line = ("train", DATA, *SMALL, "--epochs", "4", "--out", "r")
    found, error = run(text, *line, cwd=tmp_path)
    assert error == "itemfold: interrupted; nothing was saved\n"
    assert found == 130


def test_a_second_signal_while_the_advice_is_found_does_not_lose_it(tmp_path: Path) -> None:
    again = """
import os
from itemfold.cli import train
found = train._how_to_resume

def resume(folder):
    os.kill(os.getpid(), 15)
    return found(folder)

train._how_to_resume = resume
"""
    text = AT_CALL.format(
        module="itemfold.training.learner", path="Learner.step", number=15, call=1
    )
    line = ("train", DATA, *SMALL, "--epochs", "4", "--out", "r")
    found, error = run(again + text, *line, cwd=tmp_path)
    assert error == "itemfold: terminated; continue with: itemfold train --resume --out r\n"
    assert found == 143


def test_a_program_without_a_handler_is_ended_by_sigterm_after_its_state_was_saved(
    tmp_path: Path,
) -> None:
    code = f"""
import os, itemfold as ir
from itemfold.training.learner import Learner
step = Learner.step
def send(self, keys):
    os.kill(os.getpid(), {int(signal.SIGTERM)})
    Learner.step = step
    return step(self, keys)
Learner.step = send
split = ir.split_users(ir.load({DATA!r}))
ir.train(split, ir.models.LightGCN(dim=4), epochs=3, out="r")
"""
    assert run(code, cwd=tmp_path) == (143, "")
    assert (tmp_path / "r" / "state.pt").exists()


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("itemfold.data.named.synthetic", "make_titles"),
        ("itemfold.training.learner", "Learner.step"),
    ],
    ids=["command", "training"],
)
def test_a_command_in_the_background_ignores_ctrl_c(tmp_path: Path, module: str, path: str) -> None:
    text = AT_CALL.format(module=module, path=path, number=int(signal.SIGINT), call=1)
    line = ("train", DATA, *SMALL, "--epochs", "2", "--out", "r")
    assert run(text, *line, cwd=tmp_path, handler=signal.SIG_IGN) == (0, "")
    assert (tmp_path / "r" / "metrics.json").exists()


def test_a_command_in_the_background_ends_with_sigterm(tmp_path: Path) -> None:
    text = AT_CALL.format(
        module="itemfold.training.learner", path="Learner.step", number=int(signal.SIGTERM), call=1
    )
    line = ("train", DATA, *SMALL, "--epochs", "4", "--out", "r")
    found, error = run(text, *line, cwd=tmp_path, handler=signal.SIG_IGN)
    assert error == "itemfold: terminated; continue with: itemfold train --resume --out r\n"
    assert found == 143


def test_training_in_a_python_program_in_the_background_ignores_ctrl_c(tmp_path: Path) -> None:
    code = f"""
import os, signal, itemfold as ir
from itemfold.training.learner import Learner
step = Learner.step
def send(self, keys):
    os.kill(os.getpid(), signal.SIGINT)
    return step(self, keys)
Learner.step = send
split = ir.split_users(ir.load({DATA!r}))
ir.train(split, ir.models.LightGCN(dim=4), epochs=2, out="r")
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
    assert run(code, cwd=tmp_path, handler=signal.SIG_IGN) == (0, "")
