"""Patience is counted from the last gain that counts; the best epoch is still the best."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import board_split

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.models import LightGCN
from itemfold.settings.schema import TrainConfig
from itemfold.training import loop
from itemfold.training.state import DescentState, load_state

VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@given(values=VALUES, min_gain=st.sampled_from([0.0, 0.01, 0.1, 1.0]))
def test_gains_that_count_and_the_best_epoch(values: list[float], min_gain: float) -> None:
    config, state = TrainConfig(min_gain=min_gain), DescentState()
    for value in values:
        state.epoch += 1
        state.record(0.0, {"ndcg@20": value}, config, LightGCN(dim=4))
    last, at = values[0], 1  # the first validation always counts
    for epoch, value in enumerate(values[1:], start=2):
        if value > last + last * min_gain:
            last, at = value, epoch
    assert state.gain_value == pytest.approx(last)
    assert state.best.epoch == int(np.argmax(values)) + 1
    assert state.best.value == max(values)
    if last * min_gain > 1e-9:  # sums of floats may differ in the last bit
        assert state.gain_epoch == at
    if min_gain == 0:
        assert state.gain_epoch == state.best.epoch


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Let validation report these values, one after another."""
    left = iter(values)

    class Script:
        def __init__(self, *_: Any) -> None: ...

        def metrics(self, model: Any, metric: str) -> dict[str, float]:
            return {metric: next(left)}

    monkeypatch.setattr(loop, "Evaluator", Script)


@pytest.mark.parametrize(
    ("min_gain", "epochs", "best"),
    [
        (0.0, 9, 6),  # the last of the small gains is in epoch 6
        (0.01, 6, 6),  # no gain after epoch 3 is above 1 %; epoch 6 is still the best
        (0.5, 4, 4),  # only the first validation counts: 0.10 → 0.12 is a fifth
    ],
)
def test_training_ends_when_gains_no_longer_count(
    min_gain: float, epochs: int, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, [0.10, 0.11, 0.12, 0.1204, 0.1203, 0.1209, *[0.12] * 20])
    run = ir.train(
        board_split(),
        LightGCN(dim=4),
        epochs=20,
        eval_every=1,
        patience=3,
        min_gain=min_gain,
        refit=False,
        device="cpu",
    )
    assert (run.metrics["epochs"], run.metrics["best_epoch"]) == (epochs, best)
    assert run.metrics["valid"]["ndcg@20"] == max(row["ndcg@20"] for row in run.history)


def test_an_old_state_counts_from_its_best_epoch(tmp_path: Any) -> None:
    """States of 0.1 have no gains."""
    import torch

    facts = {"epoch": 9, "best_epoch": 6, "best_value": 0.3, "data": "x"}
    tensors = {name: {} for name in ("model", "optimizer", "generator", "average", "best")}
    torch.save({**facts, **tensors}, tmp_path / "state.pt")
    state = DescentState.loaded(load_state(tmp_path / "state.pt"))
    assert (state.gain_epoch, state.gain_value) == (6, 0.3)


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_invalid_gains_are_rejected(value: float) -> None:
    with pytest.raises(ItemfoldError, match="'min_gain' must be a number of at least 0"):
        TrainConfig(min_gain=value)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_budgets_are_rejected(value: float) -> None:
    with pytest.raises(ItemfoldError, match="'budget' must be a positive number"):
        TrainConfig(budget=value)
