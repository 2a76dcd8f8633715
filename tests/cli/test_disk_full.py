"""A full disk is one sentence that names the file, exit code 2, and leaves nothing half-written.

A limit on the size of files makes the same writes fail in the same libraries.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")
DATA = "synthetic:users=80,items=60,interactions=400"
LIMITED = """
import resource
from itemrec.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
main()
"""


def run(limit: int, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = LIMITED.format(limit=limit)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    done = run(10**9, "train", DATA, "--model", "popularity", "--out", "r", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("limit", "options", "file"),
    [
        (10, [], "config.toml"),
        (5000, ["--set", "save_seconds=0"], "state.pt"),
        (5000, ["--set", "save_seconds=1000"], "model.safetensors"),
        (2900, ["--model", "popularity"], "ids.json"),
    ],
)
def test_training_that_cannot_be_saved_leaves_nothing(
    tmp_path: Path, limit: int, options: list[str], file: str
) -> None:
    done = run(limit, "train", DATA, "--epochs", "1", *options, "--out", "r", cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == f"itemrec: r/{file}: File too large"
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv", "recs.tsv"])
def test_a_table_that_cannot_be_written_leaves_the_old_one(trained: Path, name: str) -> None:
    (trained / name).write_text("old")
    done = run(1500, "recommend", "r", "--all", "--out", name, cwd=trained)
    assert done.stderr == f"itemrec: {name}: File too large\n"
    assert done.returncode == 2
    assert (trained / name).read_text() == "old"
    assert not list(trained.glob(".*"))


def test_a_full_disk_does_not_end_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    """The last complete state stays, and training continues from it once there is space."""
    first = [
        "train",
        DATA,
        "--model",
        "lightgcn",
        "--epochs",
        "2",
        "--dim",
        "4",
        "--set",
        "save_seconds=0",
    ]
    done = run(19_500, *first, "--set", "eval_every=2", "--out", "r", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert (tmp_path / "r" / "state.pt").exists()
    done = run(10**9, "train", "--resume", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
