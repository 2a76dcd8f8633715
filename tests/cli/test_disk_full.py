"""A full disk is one sentence that names the file, exit code 2, and leaves nothing half-written.

A limit on the size of files makes the same writes fail in the same libraries.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from itemfold.cli.app import app

resource = pytest.importorskip("resource")
DATA = "synthetic:users=80,items=60,interactions=400"
SPARSE = "synthetic:users=80,items=600,interactions=400"  # ids need most space
NO_LIMIT = 10**9
LIMITED = """
import resource
from itemfold.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
main()
"""


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file of this process may become larger."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


def run(limit: int, *arguments: str) -> Result:
    with limited(limit):
        return CliRunner().invoke(app, arguments)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    done = run(NO_LIMIT, "train", DATA, "--model", "popularity", "--out", "r")
    assert done.exit_code == 0, done.stderr
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "options", "file"),
    [
        (10, [DATA], "request.toml"),
        (5000, [DATA, "--model", "lightgcn", "--set", "save_seconds=0"], "state.pt"),
        (5000, [DATA, "--set", "save_seconds=1000"], "model.safetensors"),
        (9000, [SPARSE, "--model", "popularity"], "ids.json"),
    ],
)
def test_training_that_cannot_be_saved_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, options: list[str], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(limit, "train", *options, "--epochs", "1", "--out", "r")
    assert done.stderr.splitlines()[-1] == f"itemfold: r/{file}: File too large"
    assert "Traceback" not in done.stderr
    assert done.exit_code == 2
    assert os.listdir(tmp_path) == []


def test_a_command_of_its_own_says_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, "train", DATA, "--model", "popularity", "--out", "r"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stderr == "itemfold: r/request.toml: File too large\n"
    assert done.returncode == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv", "recs.tsv"])
def test_a_table_that_cannot_be_written_leaves_the_old_one(trained: Path, name: str) -> None:
    (trained / name).write_text("old")
    done = run(1500, "recommend", "r", "--all", "--out", name)
    assert done.stderr == f"itemfold: {name}: File too large\n"
    assert done.exit_code == 2
    assert (trained / name).read_text() == "old"
    assert not list(trained.glob(".*"))


def test_a_suite_names_the_file_and_continues_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = f'title = "t"\nbaseline = "p"\ncolumns = ["ndcg@20"]\ndata = ["{DATA}"]\nseeds = 1\n'
    Path("s.toml").write_text(suite + '[[row]]\nname = "p"\nmodel = "popularity"\n')
    line = ["reproduce", "s.toml", "--results", "results", "--per-user", "users"]
    done = run(1000, *line)
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.exit_code == 1
    done = run(NO_LIMIT, *line)
    assert done.exit_code == 0, done.stderr
    assert "1 runs finished" in done.stderr


@pytest.mark.parametrize("limit", [3000, 100_000, 400_000])
def test_a_full_disk_is_not_blamed_on_the_files_that_are_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Rows, then buckets, then arrays cannot be written; with space, the command continues."""
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"u{n % 5000},i{n % 997}\n" for n in range(200_000))
    Path("plays.csv").write_text(f"user_id,item_id\n{rows}")
    line = ["prepare", "plays.csv", "--out", "p", "--memory", "1GB", "--threads", "1"]
    done = run(limit, *line)
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith("itemfold: p/work"), done.stderr
    assert "plays.csv" not in done.stderr
    done = run(NO_LIMIT, *line)
    assert done.exit_code == 0, done.stderr


def test_a_full_disk_does_not_end_a_run_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last complete state stays, and training continues from it once there is space."""
    monkeypatch.chdir(tmp_path)
    line = ["train", DATA, "--model", "lightgcn", "--epochs", "2", "--dim", "4"]
    line += ["--set", "save_seconds=0", "--set", "eval_every=2"]
    done = run(19_500, *line, "--out", "r")
    assert done.exit_code == 2, done.stderr
    assert (tmp_path / "r" / "state.pt").exists()
    done = run(NO_LIMIT, "train", "--resume", "--out", "r")
    assert done.exit_code == 0, done.stderr
