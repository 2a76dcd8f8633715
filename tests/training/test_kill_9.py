"""`kill -9` at any stage of the default model's training, then `--resume`: the same run."""

import json
import signal
from pathlib import Path
from typing import Any

import killed
import pytest

COMMAND = [
    *("train", "synthetic:users=150,items=100,interactions=2500", "--epochs", "6"),
    *("--set", "save_seconds=0", "--set", "train.eval_every=1"),
    *("--set", "model.gnn.dim=16", "--set", "model.gnn.start=svd"),
]
EPOCHS = 4  # of the selection, the third is the best; then three of the refit
QUICK = {  # the function in which the process dies, and the how manieth call of it
    "an epoch": ("Learner.step", 10),
    "the refit of the network": ("Learner.epoch", EPOCHS + 2),
    "saving the weights": ("save_tensors", 2),
}
OTHERS = {
    "before anything": ("Stages.popularity", 1),
    "popularity": ("Stages._finish_stage", 1),
    "the first linear setting": ("Evaluator._metrics", 1),
    "the eighth linear setting": ("Evaluator._metrics", 8),
    "the fit of the linear part": ("RLAE.solve", 1),
    "the sum with the linear part": ("BlendSearch.by_history_length", 1),
    "the test of the first stage": ("evaluate", 1),
    "saving the first stage": ("save_tensors", 1),
    "the end of saving the first stage": ("write_checksums", 1),
    "before the network": ("Stages.network", 1),
    "the first step": ("Learner.step", 1),
    "a validation": ("SumValidation.__call__", 2),
    "writing the first state": ("_save", 1),
    "writing a later state": ("_save", 3),
    "the last epoch": ("Learner.epoch", EPOCHS),
    "the weight of the network": ("Stages._compare_candidate", 1),
    "before the refit": ("Stages.select_sum", 1),
    "the refit of the linear part": ("RLAE.solve", 2),
    "writing a state of the refit": ("_save", EPOCHS + 2),
    "the test": ("_tested", 2),
    "saving the metrics of users": ("save_per_user", 2),
    "the end of saving": ("write_checksums", 2),
}
MOMENTS = [
    *(pytest.param(moment, id=name) for name, moment in QUICK.items()),
    *(pytest.param(moment, id=name, marks=pytest.mark.slow) for name, moment in OTHERS.items()),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    folder = tmp_path_factory.mktemp("whole") / "r"
    assert killed.command(*COMMAND, "--out", folder) == 0
    metrics = metrics_of(folder)
    assert (metrics["epochs"], metrics["best_epoch"]) == (EPOCHS, EPOCHS - 1)
    return folder


def metrics_of(folder: Path) -> dict[str, Any]:
    """What a run reports, without how long it took."""
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    for rows in (metrics, *metrics["trials"], *metrics["candidates"]):
        rows.pop("seconds", None)
    return metrics


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_training_resumes_to_the_same_run(
    moment: tuple[str, int], whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    assert killed.command(*COMMAND, "--out", folder, dies_at=moment) == -signal.SIGKILL
    assert not (folder / "metrics.json").exists() or "stage" in metrics_of(folder)
    assert killed.command("train", "--resume", "--out", folder) == 0
    weights = (folder / "model.safetensors").read_bytes()
    assert weights == (whole / "model.safetensors").read_bytes()
    assert metrics_of(folder) == metrics_of(whole)
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
