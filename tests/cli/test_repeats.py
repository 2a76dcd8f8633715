"""`train --seeds` and `--folds`: means and deviations of runs that can be used one by one."""

import json
import re
import statistics

import numpy as np
import pytest
from command import call

from itemfold.training.run import Run

DATA = "synthetic:users=120,items=60,interactions=2000"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--seeds", "2", "--seed", "5"), ["seed-5", "seed-6"]),
        (("--folds", "2"), ["fold-1", "fold-2"]),
        (("--folds", "2", "--protocol", "inductive"), ["fold-1", "fold-2"]),
        (("--folds", "2", "--split", "rolling"), ["window-1", "window-2"]),
    ],
)
def test_means_and_deviations_over_runs(options, names, tmp_path):
    shown = call("train", DATA, "--model", "ease", *options, "--out", tmp_path / "r").stdout
    runs = [Run.load(tmp_path / "r" / name) for name in names]
    summary = json.loads((tmp_path / "r/summary.json").read_text())
    for metric in ("ndcg@20", "coverage@20"):
        values = [run.metrics["test"][metric] for run in runs]
        text = f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"
        assert re.search(rf"{metric} +{re.escape(text)}", shown)
        assert summary["metrics"][metric]["mean"] == pytest.approx(np.mean(values))
        assert summary["metrics"][metric]["deviation"] == pytest.approx(np.std(values, ddof=1))
        assert list(summary["metrics"][metric]["runs"]) == names
    better = sum(r.metrics["test"]["ndcg@20"] > r.metrics["popularity"]["ndcg@20"] for r in runs)
    assert f"better than popularity in ndcg@20 in {better} of 2 {summary['kind']}" in shown
    evaluated = json.loads(call("evaluate", tmp_path / "r" / names[1], "--json").stdout)
    assert evaluated["metrics"] == pytest.approx(runs[1].metrics["test"])


def test_seeds_are_one_system_in_a_comparison(tmp_path):
    for name in ("ease", "popularity"):
        call("train", DATA, "--model", name, "--seeds", "2", "--out", tmp_path / name)
    runs = sorted(
        path for name in ("popularity", "ease") for path in (tmp_path / name).glob("s*-*")
    )
    shown = call("compare", *runs, "--format", "csv").stdout
    assert "over users and seeds" in call("compare", *runs).stdout
    assert len(shown.splitlines()) > 3


def test_a_repeated_training_is_resumed(tmp_path):
    command = ("train", DATA, "--model", "ease", "--seeds", "2", "--out", tmp_path / "r")
    first = call(*command).stdout
    before = (tmp_path / "r/seed-1/metrics.json").read_bytes()
    assert call(*command, "--resume").stdout == first
    assert (tmp_path / "r/seed-1/metrics.json").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "1"), "'--seeds' must be at least 2, got 1"),
        (("--folds", "0"), "'--folds' must be at least 2, got 0"),
        (("--seeds", "2", "--folds", "2"), "'--seeds' and '--folds' each repeat the training"),
        (("--folds", "2", "--split", "items"), "'--folds' needs a split by interactions, users"),
        (("--seeds", "2", "--split", "all"), "'--seeds' needs a test part"),
    ],
)
def test_misuse_is_one_sentence(options, message, tmp_path):
    result = call("train", DATA, "--model", "ease", *options, "--out", tmp_path / "r", code=2)
    (line,) = result.stderr.strip().splitlines()
    assert message in line
