"""The benchmarks run, and their last line is `<figure> <value> <bound> pass|short`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(
    path.name
    for path in FOLDER.glob("*.py")
    if path.name not in ("common.py", "peers_recbole.py", "peers_implicit.py")
)
SMALL = "synthetic:users=120,items=90,interactions=2500"


def call(*command: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, str(FOLDER / command[0]), *command[1:]]
    return subprocess.run(whole, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script: str) -> None:
    done = call(script, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


@pytest.mark.parametrize(
    ("script", "figure"),
    [
        ("propagation.py", "propagation_speedup"),
        ("epoch.py", "epoch_speedup"),
        ("evaluate.py", "evaluate_speedup"),
        ("fold_in.py", "fold_in_p99_ms"),
    ],
)
def test_quick_runs_end_with_a_verdict(script: str, figure: str) -> None:
    done = call(script, SMALL, "--quick", "--threads", "1")
    assert done.returncode == 0, done.stderr
    name, value, bound, verdict = done.stdout.splitlines()[-1].split()
    assert name == figure
    assert float(value) > 0
    assert float(bound) > 0
    assert verdict in ("pass", "short")


@pytest.mark.parametrize("extra", [[], ["--full-catalogue"]])
def test_the_gpu_script_ends_with_a_verdict(extra: list[str]) -> None:
    done = call("gpu.py", SMALL, "--quick", "--threads", "1", "--device", "cpu", *extra)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[-1] in ("pass", "short")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_gpu_script_says_so() -> None:
    done = call("gpu.py", SMALL)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "CUDA" in done.stderr


def test_the_table_is_made_of_the_results() -> None:
    results, page = FOLDER / "results.json", (FOLDER / "README.md").read_text()
    rows = json.loads(results.read_text()) if results.is_file() else []
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import run_all;"
        "print(run_all.with_table(open(sys.argv[2]).read(), json.loads(sys.argv[3])), end='')"
    )
    command = [sys.executable, "-c", code, str(FOLDER), str(FOLDER / "README.md"), json.dumps(rows)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == page, "run `python benchmarks/run_all.py --table`"
