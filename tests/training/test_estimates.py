"""How a budget is divided: estimates grow with the data, and forms follow from the time left."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itemfold.data.datasets import load
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import split_interactions
from itemfold.models.hybrid import Hybrid
from itemfold.settings.resolve import Request, resolve
from itemfold.training.deadline import Deadline
from itemfold.training.fit import train
from itemfold.training.fitted import Context
from itemfold.training.strategies import candidates, estimates, workbench
from itemfold.training.strategies.estimates import (
    SOME_COLUMNS,
    SOME_NEIGHBOURS,
    dense_seconds,
    epoch_seconds,
    linear_seconds,
    most_columns,
    most_neighbours,
    selection_seconds,
    sparse_seconds,
    start_seconds,
)
from itemfold.training.strategies.hybrid import Stages
from itemfold.training.strategies.hybrid_state import HybridState


def split_of(users: int, items: int) -> Split:
    return split_interactions(load(f"synthetic:users={users},items={items}"), seed=0)


SMALL, LARGE = split_of(60, 80), split_of(300, 400)


def test_more_data_takes_longer() -> None:
    for estimate in (dense_seconds, selection_seconds, start_seconds, epoch_seconds):
        assert 0 < estimate(SMALL) < estimate(LARGE)
    assert epoch_seconds(LARGE, 64) < epoch_seconds(LARGE, 128)
    assert sparse_seconds(LARGE, 50) < sparse_seconds(LARGE, 100)


@pytest.mark.parametrize(
    ("linear", "expected"),
    [
        ("rlae", dense_seconds(LARGE)),
        ({"name": "rlae", "form": "sparse", "neighbours": 30}, sparse_seconds(LARGE, 30)),
        ({"name": "ease", "form": "sparse"}, sparse_seconds(LARGE, 200)),
        ("none", 0.0),
    ],
)
def test_the_linear_part_is_estimated_in_its_form(linear: object, expected: float) -> None:
    settings = resolve(Request({"model": {"name": "hybrid", "linear": linear}}))
    assert linear_seconds(settings, LARGE) == pytest.approx(expected)


@given(st.floats(0, 10))
def test_the_most_neighbours_that_fit_are_taken(seconds: float) -> None:
    found = most_neighbours(LARGE, seconds)
    more = [k for k in SOME_NEIGHBOURS if k > found]
    assert all(sparse_seconds(LARGE, k) > seconds for k in more)
    assert sparse_seconds(LARGE, found) <= seconds or found == min(SOME_NEIGHBOURS)


@given(st.floats(0, 10))
def test_the_most_columns_that_fit_are_taken(seconds: float) -> None:
    found, scores = most_columns(LARGE, seconds), len(LARGE.test) * LARGE.n_items
    takes = {n: 2 * start_seconds(LARGE, n) + 2e-11 * scores * n for n in SOME_COLUMNS}
    assert all(takes[n] > seconds for n in SOME_COLUMNS if n > found)
    assert takes[found] <= seconds or found == min(SOME_COLUMNS)


def test_a_short_budget_on_large_sparse_data_takes_a_wide_network_without_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "LARGE", 100)
    monkeypatch.setattr(candidates, "DENSE", 1.0)
    monkeypatch.setattr(estimates, "EPOCH_SECONDS", 1.0)
    model = Hybrid(gnn={"start": "svd"})
    run = train(SMALL, model, budget=500.0, seed=0, device="cpu")
    assert (run.config["model"]["gnn"]["dim"], run.metrics["epochs"]) == (256, 0)
    given = train(SMALL, Hybrid(gnn={"dim": 8, "start": "svd"}), budget=500.0, device="cpu")
    assert given.config["model"]["gnn"]["dim"] == 8


def test_a_network_without_time_for_epochs_stays_as_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Hybrid(gnn={"dim": 8, "start": "svd"})
    fixed = {"epochs": 3, "eval_every": 1, "seed": 0, "device": "cpu"}
    assert train(SMALL, model, budget=600.0, **fixed).metrics["epochs"] > 0
    monkeypatch.setattr(estimates, "EPOCH_SECONDS", 1.0)
    run = train(SMALL, model, budget=600.0, **fixed)
    assert (run.metrics["epochs"], run.metrics["best_epoch"]) == (0, 0)


def test_without_time_the_linear_part_takes_the_faster_form() -> None:
    settings = resolve(Request({"model": Hybrid(), "train": {"budget": 1.0}})).of_split(SMALL)
    late = Context(deadline=Deadline(1.0, started=time.monotonic() - 10.0))

    def quick_form(**estimate: object) -> dict[str, object]:
        with pytest.MonkeyPatch.context() as patch:
            for name, seconds in estimate.items():
                patch.setattr(workbench, name, lambda *_, seconds=seconds: seconds)
            stages = Stages(settings, SMALL, HybridState(), late)
            return stages._quick_form()

    assert quick_form(dense_seconds=1.0, sparse_seconds=2.0) == {}
    assert quick_form(dense_seconds=2.0, sparse_seconds=1.0) == {
        "form": "sparse",
        "neighbours": SOME_NEIGHBOURS[-1],
    }
