"""Recency after training: updates and final models count recent interactions as the run did."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from command import call

import itemfold as ir
from itemfold.data.interactions import Interactions
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import run_config
from itemfold.models import rlae

DAY = 86400.0
DATA = ir.load("synthetic:users=100,items=80,interactions=2000,seed=4")
BLEND = ((0.0, 0.1, 0.7, 1.0, 0.5), (8.0, 0.0, 0.4, 1.0, 1.5))
NEW_BLEND = ((0.0, 0.0, 1.0, 0.5, 0.5),)


def hybrid(**settings: Any) -> ir.models.Hybrid:
    own = {"blend": BLEND, "new_blend": NEW_BLEND, "popularity_half_life": "30d", **settings}
    linear = ir.models.RLAE(l2=20.0, item_power=0.2, user_power=0.3, dropout=0.5, relax=0.1)
    return ir.models.Hybrid(gnn=ir.models.LightGCN(dim=8), linear=linear, **own)


def early_and_late() -> tuple[Interactions, Interactions]:
    assert DATA.times is not None
    late = DATA.times >= np.quantile(DATA.times, 0.85)
    return DATA.where(~late), DATA.where(late)


EARLY, LATE = early_and_late()


@pytest.fixture(scope="module")
def run() -> ir.Run:
    return ir.train(ir.split_by_time(EARLY), hybrid(half_life="never"), epochs=2)


@pytest.fixture(scope="module")
def fading() -> ir.Run:
    return ir.train(ir.split_by_time(EARLY), hybrid(half_life="90d"), epochs=2)


def expected_times(*parts: tuple[ir.Run | Interactions, Any]) -> dict[tuple[str, str], float]:
    """The last time of each pair, by a loop."""
    out: dict[tuple[str, str], float] = {}
    for part, times in parts:
        if isinstance(part, ir.Run):
            rows, columns = part.train.nonzero()
            users, items = part.user_ids.ids[rows], part.item_ids.ids[columns]
        else:
            users, items = part.user_ids.ids[part.users], part.item_ids.ids[part.items]
        for user, item, time in zip(users.tolist(), items.tolist(), times, strict=True):
            key = str(user), str(item)
            out[key] = max(time, out.get(key, -np.inf))
    return out


def popularity(run: ir.Run, times: dict[tuple[str, str], float], days: float) -> Any:
    """The logarithm of 1 + the weights of each item, standardised, by a loop."""
    latest, weight = max(times.values()), dict.fromkeys(map(str, run.item_ids.ids.tolist()), 0.0)
    faded = {key: 2.0 ** ((time - latest) / (days * DAY)) for key, time in times.items()}
    mean = np.mean(list(faded.values()))
    for (_, item), value in faded.items():
        weight[item] += value / mean
    found = np.log1p(list(weight.values()))
    return (found - found.mean()) / found.std()


def check(run: ir.Run, times: dict[tuple[str, str], float]) -> None:
    assert run.times is not None
    assert expected_times((run, run.times)) == pytest.approx(times)
    assert np.allclose(run.model.recent_popularity, popularity(run, times, days=30), atol=1e-4)


def test_an_update_counts_recent_interactions_of_old_and_new_data(run: ir.Run) -> None:
    newer = ir.update(run, LATE, epochs=1)
    assert newer.metrics["update"]["new_interactions"] > 0
    check(newer, expected_times((run, run.times), (LATE, LATE.times)))
    assert not np.allclose(
        newer.model.recent_popularity[: run.train.shape[1]], run.model.recent_popularity
    )
    same = ("blend", "new_blend", "popularity_half_life", "half_life", "norm")
    assert {name: newer.config["model"][name] for name in same} == {
        name: run.config["model"][name] for name in same
    }


def test_new_interactions_without_times_count_as_of_the_latest_time(run: ir.Run) -> None:
    newer = ir.update(run, replace(LATE, times=None), epochs=0)
    latest = np.full(len(LATE), run.times.max())
    check(newer, expected_times((run, run.times), (LATE, latest)))
    more = pl.DataFrame({"user": ["u"], "item": [str(run.item_ids.ids[0])]})
    again = ir.update(newer, more, epochs=0)
    assert again.times is not None


def test_an_updated_run_is_stored_and_recommends_as_in_memory(run: ir.Run, tmp_path: Path) -> None:
    newer = ir.update(run, LATE, epochs=1, out=tmp_path / "r")
    loaded = ir.Run.load(tmp_path / "r")
    assert np.array_equal(loaded.times, newer.times)
    known = newer.user_ids.ids[:5].tolist()
    for request in (*({"user": user} for user in known), {"history": newer.item_ids.ids[:3]}):
        first, second = (ir.Recommender(each).recommend(**request, k=5) for each in (newer, loaded))
        assert [pick.item for pick in first] == [pick.item for pick in second]
        assert [p.score for p in first] == pytest.approx([p.score for p in second], rel=1e-4)


@pytest.mark.parametrize("linear", ["none", {"l2": 20.0}])
def test_a_hybrid_without_a_network_is_updated(linear: Any) -> None:
    weights = () if linear == "none" else (1.0,)
    own = {"blend": ((0.0, 0.0, 1.0, *weights),), "popularity_half_life": "30d"}
    model = ir.models.Hybrid(gnn="none", linear=linear, half_life="never", **own)
    run = ir.train(ir.split_by_time(EARLY), model)
    newer = ir.update(run, LATE)
    check(newer, expected_times((run, run.times), (LATE, LATE.times)))
    assert len(ir.Recommender(newer).recommend(newer.user_ids.ids[-1], k=5)) == 5


def weights_by_loop(times: npt.NDArray[Any], days: float) -> npt.NDArray[Any]:
    faded = np.array([2.0 ** ((time - times.max()) / (days * DAY)) for time in times])
    return np.maximum(faded / faded.mean(), 1e-6)


def test_a_run_whose_interactions_fade_is_updated_with_new_weights(fading: ir.Run) -> None:
    assert np.allclose(fading.train.data, weights_by_loop(fading.times, 90), rtol=1e-4)
    newer = ir.update(fading, LATE, epochs=1)
    check(newer, expected_times((fading, fading.times), (LATE, LATE.times)))
    assert np.allclose(newer.train.data, weights_by_loop(newer.times, 90), rtol=1e-4)
    linear = ir.models.RLAE(**newer.model.linear.settings)
    linear.setup(newer.train, inductive=False, generator=torch.Generator())
    linear.solve(newer.train)
    both = [part.scores(newer.train[:10], np.arange(10)) for part in (newer.model.linear, linear)]
    assert np.allclose(*both, atol=1e-4)
    rows, columns = (places[:3] for places in fading.train.nonzero())
    ids = {"user": fading.user_ids.ids[rows], "item": fading.item_ids.ids[columns]}
    unchanged = ir.update(fading, pl.DataFrame(ids), epochs=1)
    assert np.array_equal(unchanged.train.data, fading.train.data)


def test_other_weights_and_missing_times_are_rejected(fading: ir.Run, run: ir.Run) -> None:
    heavier = sp.csr_array(fading.train)
    heavier.data = heavier.data * np.linspace(1, 2, heavier.nnz).astype(np.float32)
    with pytest.raises(ItemfoldError, match="weighted interactions cannot be updated"):
        ir.update(replace(fading, interactions=heavier), LATE)
    with pytest.raises(ItemfoldError, match="has the times of all its interactions"):
        ir.update(replace(run, times=None), LATE)


@pytest.mark.parametrize("half_life", ["never", "90d"])
def test_a_final_model_keeps_half_lives_and_blend(half_life: str, tmp_path: Path) -> None:
    parts = {"gnn": {"dim": 8}, "linear": {"l2": 20.0}, "half_life": half_life}
    own = {"blend": BLEND, "new_blend": NEW_BLEND, "popularity_half_life": "30d"}
    data = {"data": "synthetic:users=100,items=80,interactions=2000,seed=4"}
    config = {"data": data, "split": {"strategy": "time"}, "train": {"epochs": 2}}
    first = run_config({**config, "model": {**parts, **own}}, tmp_path / "r")
    call("train", "--final", tmp_path / "r", "--out", tmp_path / "final")
    final = ir.Run.load(tmp_path / "final")
    assert final.train.nnz == len(DATA) > first.train.nnz
    check(final, expected_times((DATA, DATA.times)))
    assert final.model.record() == first.model.record()
    expected = weights_by_loop(final.times, 90) if half_life == "90d" else np.ones(len(DATA))
    assert np.allclose(final.train.data, expected, rtol=1e-4)


@pytest.mark.parametrize("to", ["parquet", "onnx"])
def test_exports_know_new_users_recent_items_and_fading_histories(
    fading: ir.Run, to: Any, tmp_path: Path
) -> None:
    """Each export compares its own lists with those of `recommend`."""
    pytest.importorskip("onnxruntime" if to == "onnx" else "polars")
    rows = ((0.0, 0.0, 1.0, 0.5, 0.5), (5.0, 0.3, 0.2, 1.0, 0.1))  # by items, not by weights
    several = ir.train(ir.split_by_time(EARLY), hybrid(half_life="90d", new_blend=rows), epochs=1)
    for number, run in enumerate((fading, several)):
        assert ir.export(run, to, tmp_path / str(number))["exact"]


def test_the_linear_part_of_a_hybrid_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the largest weights are stored: after training, in the updated run and when loaded."""
    monkeypatch.setattr(rlae, "STORED", 1)
    monkeypatch.setattr(rlae, "KEPT", 7)
    alone = ir.train(ir.split_interactions(DATA), ir.models.RLAE(l2=50.0)).model
    assert len(alone.weight_values) > 7 * alone.n_items  # all
    for linear in ("rlae", ir.models.RLAE(l2=50.0)):
        model = ir.models.Hybrid(gnn=None, linear=linear, blend=((0.0, 0.0, 0.0, 1.0),))
        first = ir.train(ir.split_by_time(DATA), model)
        new = pl.DataFrame({"user_id": ["new"] * 2, "item_id": DATA.item_ids.ids[:2].tolist()})
        for run in (first, ir.update(first, new)):
            assert len(run.model.linear.weight_values) <= 7 * run.model.n_items


def test_times_from_another_start_are_an_error(run: ir.Run) -> None:
    assert LATE.times is not None
    from_start = replace(LATE, times=LATE.times - LATE.times.min())
    with pytest.raises(ItemfoldError, match="they are before 1980, and the run's are dates"):
        ir.update(run, from_start)
