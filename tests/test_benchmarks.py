"""The benchmarks run, and their last line is `<figure> <value> <bound> pass|short`."""

import importlib
import json
import runpy
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"
# modules, and scripts of other environments
OF_OTHERS = ("common.py", "service_process.py", "frontier_plot.py")
OF_OTHERS += ("peers_recbole.py", "peers_implicit.py", "frontier_peers.py", "frontier_recbole.py")
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in OF_OTHERS)
SMALL = "synthetic:users=120,items=90,interactions=2500"

Call = Callable[..., int]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a script as the command line does, in this process; return its exit code."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def run(script: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        try:
            runpy.run_path(str(FOLDER / script), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(call: Call, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(script, "--help") == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "figure"),
    [
        (["propagation.py"], "propagation_speedup"),
        (["epoch.py"], "epoch_speedup"),
        (["busy.py"], "busy_over_alone"),
        (["serve.py"], "serve_over_python"),
        pytest.param(
            ["serve.py", "--model", "hybrid"], "serve_over_python", marks=pytest.mark.slow
        ),
        (["attack.py"], "attack_list_p99_s"),
        (["evaluate.py"], "evaluate_speedup"),
        (["all_metrics.py"], "all_metrics_seconds"),
        (["closed_forms.py"], "trials_speedup"),
        (["fold_in.py"], "fold_in_p99_ms"),
        (["ppr.py"], "ppr_speedup"),
        (["hybrid.py"], "ndcg"),
        (["future.py", "--systems", "popularity,random,time"], "future_over_best_part"),
        (["choosing.py"], "time_over_random"),
        (["strong.py"], "strong_difference"),
        (["update.py"], "synthetic_update_ndcg_share"),
        (["new_items.py"], "new_items_p"),
        (["diversity.py", "--model", "ease"], "ease_diversity_gain"),
        (["catalogue.py"], "sparse_fit_peak_gb"),
        (["distributed.py"], "distributed_speedup"),
        (["gpu.py", "--device", "cpu"], "gpu_epoch_seconds"),
        (["gpu.py", "--device", "cpu", "--full-catalogue"], "gpu_full_epoch_seconds"),
    ],
)
def test_quick_runs_end_with_a_verdict(
    call: Call, command: list[str], figure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *options = command
    assert call(script, SMALL, "--quick", "--threads", "1", *options) == 0
    name, value, bound, verdict = capsys.readouterr().out.splitlines()[-1].split()
    assert name == figure
    assert float(value) >= 0
    assert float(bound) > 0
    assert verdict in ("pass", "short")


def test_preparing_is_bounded_and_survives_kills(
    call: Call, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--interactions", "0.02", "--threads", "1", "--folder", str(tmp_path)]
    assert call("prepare.py", *options) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "also prepare_continued_same 1 1 pass" in lines
    assert lines[-1].split()[0] == "prepare_peak_gb"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_growth_is_measured_and_stored_for_the_page(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--constant-degree --quick --threads 1 --millions 0.4,1 --store"
    assert call("scaling.py", *options.split(), str(tmp_path / "scale.json")) == 0
    name, _, bound, _ = capsys.readouterr().out.splitlines()[-1].split()
    assert (name, bound) == ("growth_seconds", "1.5")
    stored = json.loads((tmp_path / "scale.json").read_text())
    assert [round(row["interactions"], -3) for row in stored["measured"]] == [20_000, 50_000]
    assert stored["projected"][-1]["users"] == 100_000_000


def test_the_gpu_script_reports_a_missing_gpu(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert call("gpu.py", SMALL) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "CUDA" in lines[0]


def test_one_missed_bound_makes_the_last_line_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    verdicts = importlib.import_module("common").Verdicts()
    verdicts.also("memory", 5.0, 4.0)
    verdicts.last("speed", 9.0, 3.0, at_least=True)
    assert capsys.readouterr().out.splitlines() == ["also memory 5 4 short", "speed 9 3 short"]


def test_the_table_is_made_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    run_all = importlib.import_module("run_all")
    results, page = FOLDER / "results.json", (FOLDER / "README.md").read_text()
    rows = json.loads(results.read_text()) if results.is_file() else []
    assert run_all.with_table(page, rows) == page, "run `python benchmarks/run_all.py --table`"


def point(system: str, seconds: float, value: float, budget: int | None = None) -> dict[str, Any]:
    """A point of `frontier.py`."""
    settings = {"budget": budget} if system == "itemfold" else {}
    found = {"system": system, "seconds": seconds, "ndcg@20": value, "settings": settings}
    return {**found, "runs": [[seconds, value]]}


@pytest.mark.parametrize(
    ("points", "share"),
    [
        ([("ALS", 2.0, 0.10), ("itemfold", 4.0, 0.11)], 1.0),  # above it
        ([("ALS", 2.0, 0.10), ("itemfold", 4.0, 0.09)], 0.9),
        ([("ALS", 2.0, 0.10), ("itemfold", 4.0, 0.09), ("itemfold", 4.5, 0.11)], 1.0),  # from 5 s
        ([("EASE", 30.0, 0.10), ("itemfold", 4.0, 0.09), ("itemfold", 40.0, 0.11)], 0.9),
        ([("ALS", 2.0, 0.10), ("BPR", 9.0, 0.05), ("itemfold", 7.0, 0.10)], 1.0),
        ([("ALS", 2.0, 0.10)], 1.0),
    ],
)
def test_the_share_is_of_the_best_that_is_done_by_then(
    monkeypatch: pytest.MonkeyPatch, points: list[tuple[str, float, float]], share: float
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    worst_share = importlib.import_module("frontier_plot").worst_share
    assert worst_share([point(*each) for each in points], 5.0) == pytest.approx(share)


def test_points_are_measured_once_and_again_for_other_code_or_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("frontier")
    options, runs = Namespace(repeats=1, threads=1), list[float]()

    def measure(version: str, digest: str = "a", repeats: int = 1) -> None:
        options.repeats = repeats
        store = module.Store(tmp_path, "data", digest, options)
        found = store.point("itemfold", {"packages": [version]}, {"budget": 5})
        store.repeat(found, lambda: (runs.append(1.0), (4.0 + len(runs), 0.1))[1])

    counts = []
    for arguments in (("1",), ("1",), ("1", "a", 3), ("2",), ("2", "b")):
        measure(*arguments)
        counts.append(len(runs))
    assert counts == [1, 1, 3, 4, 5]
    (kept,) = module.stored(tmp_path)["data"]["points"]
    assert (kept["packages"], kept["runs"], kept["seconds"]) == (["2"], [[9.0, 0.1]], 9.0)


def test_the_table_of_the_frontier_is_made_of_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    frontier = importlib.import_module("frontier")
    page = (FOLDER / "README.md").read_text()
    made = frontier.with_table(page, frontier.stored(FOLDER), frontier.FROM)
    assert made == page, "run `python benchmarks/frontier.py --only table`"
