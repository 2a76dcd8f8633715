"""The learning rate falls on a plateau; early looks; it is told if the first look wins."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small import board_split

from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluator import Evaluator
from itemfold.models import GAT, LightGCN
from itemfold.settings.schema import TrainConfig
from itemfold.training.fit import train
from itemfold.training.learner import Learner
from itemfold.training.run import Run
from itemfold.training.state import Best, DescentState

FEW: dict[str, Any] = {"epochs": 8, "eval_every": 1, "n_negatives": 3, "refit": False}


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> list[float]:
    """Validation gives these values; returns the rate of each epoch as it is trained."""
    rates, left = list[float](), list(values)
    original = Learner.epoch

    def epoch(self: Learner, step: Any) -> float:
        rates.append(float(self.optimizer.param_groups[0]["lr"]))
        return original(self, step)

    monkeypatch.setattr(Learner, "epoch", epoch)
    monkeypatch.setattr(Evaluator, "metrics", lambda *_, **__: {"ndcg@20": left.pop(0)})
    return rates


def test_the_rate_falls_each_time_validation_stops_improving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = scripted(monkeypatch, [0.1, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3])
    train(board_split(), LightGCN(dim=4), **FEW, lr=0.1, lr_plateau=0.5, lr_patience=1)
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.025, 0.0125, 0.00625])


def test_a_plateau_shorter_than_its_patience_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = scripted(monkeypatch, [0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1])
    train(board_split(), LightGCN(dim=4), **FEW, lr=0.1, lr_plateau=0.1, lr_patience=3)
    assert rates == pytest.approx([0.1] * 6 + [0.01] * 2)


def test_by_default_the_rate_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = scripted(monkeypatch, [0.5] + [0.1] * 7)
    train(board_split(), LightGCN(dim=4), **FEW, lr=0.1)
    assert rates == [0.1] * 8


def test_a_refit_follows_the_schedule_of_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """No validation data is left there: the rate falls after the same epochs."""
    rates = scripted(monkeypatch, [0.1, 0.2, 0.2, 0.3, 0.4, 0.4, 0.1, 0.1])
    settings = {**FEW, "refit": True, "lr": 0.1, "lr_plateau": 0.1}
    run = train(board_split(), LightGCN(dim=4), **settings)
    assert run.metrics["best_epoch"] == 5
    assert rates[:5] == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01])
    assert rates[8:] == rates[:5]


def test_groups_of_weights_keep_their_proportion() -> None:
    """Shared weights learn at a fraction of the rate, before and after it falls."""
    optimizer = torch.optim.Adam([{"params": [torch.zeros(1)], "lr": 0.1}], fused=True)
    learner = Learner.__new__(Learner)
    learner.optimizer, learner.rates = optimizer, [0.1]
    learner.set_rate(0.5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    kept = torch.tensor(0.1)  # on a GPU: a recorded step reads this memory
    optimizer.param_groups[0]["lr"] = kept
    learner.set_rate(0.25)
    assert optimizer.param_groups[0]["lr"] is kept
    assert float(kept) == pytest.approx(0.025)


def test_an_interrupted_schedule_is_resumed_exactly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = {**FEW, "lr": 0.1, "lr_plateau": 0.5, "save_seconds": 0.0}
    whole = train(board_split(), GAT(dim=4), **settings)
    assert len(whole.history) == 8
    looks, original = list[int](), Evaluator.metrics

    def stop_at_five(self: Evaluator, *args: Any, **named: Any) -> Any:
        looks.append(1)
        if len(looks) == 5:
            raise KeyboardInterrupt
        return original(self, *args, **named)

    monkeypatch.setattr(Evaluator, "metrics", stop_at_five)
    with pytest.raises(KeyboardInterrupt):
        train(board_split(), GAT(dim=4), **settings, out=tmp_path / "run")
    monkeypatch.setattr(Evaluator, "metrics", original)
    resumed = train(board_split(), GAT(dim=4), **settings, out=tmp_path / "run", resume=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name


def test_the_first_epochs_are_validated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [0.1] * 9)
    settings = {**FEW, "epochs": 11, "eval_every": 4, "eval_early": 3}
    run = train(board_split(), LightGCN(dim=4), **settings)
    assert [row["epoch"] for row in run.history] == [1, 2, 3, 4, 8, 11]


@pytest.mark.parametrize(
    ("values", "told"), [([0.5, 0.1, 0.1], True), ([0.1, 0.5, 0.1], False), ([0.5], False)]
)
def test_a_note_says_that_the_first_validation_was_the_best(
    monkeypatch: pytest.MonkeyPatch, values: list[float], told: bool, tmp_path: Path
) -> None:
    scripted(monkeypatch, list(values))
    settings = {**FEW, "epochs": len(values)}
    train(board_split(), LightGCN(dim=4), **settings, out=tmp_path / "run")
    notes = Run.load(tmp_path / "run").metrics["notes"]
    assert any(note.startswith("The first validation, after epoch 1,") for note in notes) == told


def test_after_a_race_of_candidates_nothing_is_claimed() -> None:
    history: list[dict[str, Any]] = [{"epoch": 1}, {"epoch": 2}]
    assert DescentState(best=Best(1), history=history).first_validation_best
    assert not DescentState(best=Best(1), history=history, candidate=1).first_validation_best


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr_plateau": 0}, "'lr_plateau' must be a positive number, got 0"),
        ({"lr_plateau": 1.5}, "'lr_plateau' must be at most 1, got 1.5"),
        ({"lr_patience": 0}, "'lr_patience' must be a positive integer, got 0"),
        ({"eval_early": -1}, "'eval_early' must be a positive integer, got -1"),
    ],
)
def test_bad_schedules_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        TrainConfig(**settings)
