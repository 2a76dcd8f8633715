"""The README's commands and its Python quick start work as written."""

import re

import pytest
from doc_blocks import ROOT, blocks, commands, run_command, write_plays

from itemfold.models import MODELS
from itemfold.serving.recommender import Recommender

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_works_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_plays(tmp_path)
    ours = [words for words in commands(README) if words[0] == "itemfold"]
    assert len(ours) >= 10
    for words in ours:
        run_command(words)
    for name in ("recs.csv", "report.html", "r/metrics.json", "runs/fresh/metrics.json"):
        assert (tmp_path / name).stat().st_size > 0


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = [words[1] for words in commands(README) if words[0] == "make"]
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_python_quick_start_works_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(README, "python")
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "ndcg@20" in out
    assert out.count("because of") == 5
    assert len(Recommender.load("runs/python").recommend(history=["12"], k=3)) == 3


def test_the_number_of_models_is_that_of_the_table():
    (others,) = re.findall(r"(\d+) other\s+models are included", README)
    assert int(others) == len(MODELS) - 1  # all but the default


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_linked_files_exist(name):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target
