"""A killed or interrupted training resumes to the same weights as an undisturbed one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command import sigint
from safetensors.numpy import load_file
from typer.testing import CliRunner

from itemfold.cli.app import app
from itemfold.experiments.build import run_config
from itemfold.training import run_folder
from itemfold.training.run import Run

DATA = "synthetic:users=80,items=60,interactions=900"
EPOCHS = 100  # of selection; a state is saved after each
SETTINGS = ["--model", "lightgcn", "--epochs", f"{EPOCHS}", "--dim", "8", "--lr", "0.05"]
SETTINGS += ["--set", "save_seconds=0"]
# One thread, so that other processes on the machine cannot change the order of sums.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "itemfold", "train", *options, "--out", str(folder)]
    with sigint():
        return subprocess.Popen(
            command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


def train(folder: Path, *options: str) -> None:
    """The same command in this process, which has one thread as well, to its end."""
    done = CliRunner().invoke(app, ["train", *options, "--out", str(folder)])
    assert done.exit_code == 0, done.output


def stop(process: subprocess.Popen[str], folder: Path, number: int, states: int) -> str:
    """Send a signal at an arbitrary moment after some more states were written."""
    before, deadline = written(folder), time.monotonic() + 120
    for _ in range(states):
        while (now := written(folder)) == before:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        before = now
    time.sleep(float(np.random.default_rng().uniform(0, 0.01)))
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    metrics = folder / "metrics.json"  # Ctrl-C after a validation leaves the best epoch so far
    stopped = not metrics.exists() or json.loads(metrics.read_text()).get("complete") is False
    assert stopped, "it was finished before the signal"
    return error


def written(folder: Path) -> int:
    """When the state was written; 0 if it was not."""
    path = folder / "state.pt"
    return path.stat().st_mtime_ns if path.exists() else 0


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def same(a: Path, b: Path) -> bool:
    first, second = tensors(a), tensors(b)
    return first.keys() == second.keys() and all(
        first[name].tobytes() == second[name].tobytes() for name in first
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The undisturbed run: selection, then refit."""
    folder = tmp_path_factory.mktemp("whole") / "r"
    train(folder, DATA, *SETTINGS)
    return folder


def test_kill_9_at_random_moments_changes_no_bit(whole, tmp_path):
    folder = tmp_path / "r"
    moments = np.random.default_rng().integers(1, EPOCHS // 4, 2).tolist()
    for line, states in zip(([DATA, *SETTINGS], ["--resume"]), moments, strict=True):
        process = start(folder, *line)
        stop(process, folder, signal.SIGKILL, states)
        assert process.returncode == -signal.SIGKILL
    train(folder, "--resume")
    assert same(folder, whole), f"killed after {moments} states"
    rows = [json.loads(row) for row in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(5, EPOCHS + 1, 5))
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.parametrize("states", [1, 20])  # before the first validation, and after some
def test_ctrl_c_explains_how_to_resume_and_changes_no_bit(whole, tmp_path, states):
    folder = tmp_path / "r"
    process = start(folder, DATA, *SETTINGS)
    error = stop(process, folder, signal.SIGINT, states)
    assert process.returncode == 130
    assert f"itemfold train --resume --out {folder}" in " ".join(error.split())
    assert "Traceback" not in error
    train(folder, "--resume")
    assert same(folder, whole)


def test_a_state_of_the_refit_resumes_too(whole, tmp_path, monkeypatch):
    class Killed(BaseException):
        """Nothing catches this, just as nothing catches a kill."""

    run = Run.load(whole)
    assert run.metrics["best_epoch"] > 2
    config, saved = run.config, run_folder.save_state

    def save_and_die(path, state, *args):
        saved(path, state, *args)
        if state.phase == "refit" and state.epoch == 2:
            raise Killed

    monkeypatch.setattr(run_folder, "save_state", save_and_die)
    with pytest.raises(Killed):
        run_config(config, tmp_path / "r")
    monkeypatch.undo()
    run_config(config, tmp_path / "r", resume=True)
    run_config(config, tmp_path / "left alone")
    assert same(tmp_path / "r", tmp_path / "left alone")
