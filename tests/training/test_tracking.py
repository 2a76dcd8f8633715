"""Trackers hold the same curves and metrics as `history.jsonl` and `metrics.json`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.training.tracking import curve_values

DATA = "synthetic:users=60,items=80,interactions=900"
TRAIN = ["train", DATA, "--model", "lightgcn", "--dim", "8", "--epochs", "6", "--out", "r"]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def history() -> list[dict]:
    return [json.loads(line) for line in Path("r/history.jsonl").read_text().splitlines()]


def test_tensorboard_has_the_curves_of_the_history(tmp_path, monkeypatch):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed: pip install tensorboard",
    )
    monkeypatch.chdir(tmp_path)
    assert "tensorboard: r/tensorboard" in run(
        *TRAIN, "--set", "eval_every=2", "--track", "tensorboard"
    )
    events = accumulator.EventAccumulator("r/tensorboard")
    events.Reload()
    rows = history()
    for name, key in (("valid/ndcg@20", "ndcg@20"), ("train/loss", "loss")):
        stored = events.Scalars(name)
        assert [event.step for event in stored] == [row["epoch"] for row in rows]
        assert [event.value for event in stored] == pytest.approx([row[key] for row in rows])
    metrics = json.loads(Path("r/metrics.json").read_text())
    (final,) = events.Scalars("final test/recall@20")
    assert final.value == pytest.approx(metrics["test"]["recall@20"])
    times = [event.wall_time for event in events.Scalars("train/loss")]
    assert times[-1] - times[0] == pytest.approx(rows[-1]["seconds"] - rows[0]["seconds"], abs=0.01)
    assert ir.Run.load("r").metrics["model"] == "lightgcn"  # the folder is still a run


def test_mlflow_has_the_settings_the_curves_and_the_final_metrics(tmp_path, monkeypatch):
    mlflow = pytest.importorskip(
        "mlflow", reason="mlflow is not installed: pip install mlflow-skinny"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "tracked").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert "mlflow: experiment itemfold, run " in run(*TRAIN, "--track", "mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    (experiment,) = client.search_experiments(filter_string="name = 'itemfold'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "r"
    assert found.info.status == "FINISHED"
    assert found.data.params["model.dim"] == "8"
    assert found.data.params["train.epochs"] == "6"
    metrics = json.loads(Path("r/metrics.json").read_text())
    assert found.data.tags["fingerprint"] == metrics["dataset"]["fingerprint"]
    assert found.data.metrics["final test/ndcg_at_20"] == metrics["test"]["ndcg@20"]
    curve = client.get_metric_history(found.info.run_id, "valid/ndcg_at_20")
    assert [(point.step, point.value) for point in curve] == [
        (row["epoch"], row["ndcg@20"]) for row in history()
    ]


def test_candidates_of_a_race_have_curves_of_their_own():
    trained = ir.train(ir.split_interactions(ir.load(DATA)), ir.models.Popularity())
    first = {"epoch": 2, "loss": 0.5, "seconds": 1.0, "ndcg@20": 0.1}
    trained.history = [first, {**first, "epoch": 4, "seconds": 2.0, "candidate": 1}]
    points = list(curve_values(trained, ended=100.0))
    assert [(point.name, point.step, point.time) for point in points] == [
        ("train/loss", 2, 99.0),
        ("valid/ndcg@20", 2, 99.0),
        ("candidate 1/train/loss", 4, 100.0),
        ("candidate 1/valid/ndcg@20", 4, 100.0),
    ]


def test_a_tracker_that_cannot_be_used_is_told_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = CliRunner().invoke(app, [*TRAIN, "--track", "paper"])
    assert wrong.exit_code == 2
    assert "'track' must be mlflow or tensorboard, got 'paper'" in wrong.output
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    absent = CliRunner().invoke(app, [*TRAIN, "--track", "mlflow"])
    assert absent.exit_code == 2
    assert "'--track mlflow' needs mlflow-skinny: pip install mlflow-skinny" in absent.output
    assert not Path("r").exists()
