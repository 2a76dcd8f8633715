"""The README's commands and its Python quick start are run as they stand."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from itemrec.cli.app import app
from itemrec.serving.recommender import Recommender

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def write_plays(folder: Path) -> None:
    """A file of somebody's own, with columns of other names."""
    rng = np.random.default_rng(0)
    rows = {
        (int(u), int(t))
        for u, t in zip(rng.integers(0, 60, 1500), rng.zipf(1.5, 1500) % 80, strict=True)
    }
    lines = [f"listener{u},track{t},{1 + (u * t) % 5}" for u, t in sorted(rows)]
    (folder / "plays.csv").write_text("listener,track,stars\n" + "\n".join(lines) + "\n")


def test_every_command_works_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_plays(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    ours = [
        shlex.split(line, comments=True)[1:] for line in commands if line.startswith("itemrec ")
    ]
    assert len(ours) >= 10
    for arguments in ours:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (arguments, result.stderr, result.exception)
    for name in ("recs.parquet", "report.html", "runs/plays/metrics.json"):
        assert (tmp_path / name).stat().st_size > 0


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    targets = [line.split()[1] for line in lines if line.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_python_quick_start_works_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "ndcg@20" in out
    assert out.count("because of") == 5
    assert len(Recommender.load("runs/first").recommend(history=["12"], k=3)) == 3


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_linked_files_exist(name):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target
