"""The files around the code parse and agree with each other: CI, hooks, citation."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import itemfold

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def parsed(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_ci_runs_on_every_python_version_of_the_classifiers() -> None:
    job = parsed(".github/workflows/ci.yml")["jobs"]["check"]
    classified = [re.search(r"Python :: (3\.\d+)$", line) for line in PROJECT["classifiers"]]
    assert job["strategy"]["matrix"]["python"] == [found[1] for found in classified if found]
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert subprocess.run(["bash", "-n", ROOT / ".ci/run"]).returncode == 0


def test_hooks_and_lint_use_the_same_tools() -> None:
    (local,) = parsed(".pre-commit-config.yaml")["repos"]
    hooked = {hook["entry"].split(" --")[0] for hook in local["hooks"]}
    lint = re.findall(r"\t\$\(BIN\)/(ruff \w+|mypy)", (ROOT / "Makefile").read_text())
    assert {f".venv/bin/{tool}" for tool in lint} <= hooked


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    found = parsed("CITATION.cff")
    assert found["version"] == PROJECT["version"] == itemfold.__version__
    assert found["license"] == PROJECT["license"]
    assert found["repository-code"] == PROJECT["urls"]["Repository"]
    paper = found["preferred-citation"]
    assert paper["title"] in re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    assert paper["year"] == 2024
    assert len(paper["authors"]) == 4
