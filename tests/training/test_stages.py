"""Stages of a hybrid's training: never below a part, recency, kills and Ctrl-C at any moment."""

import functools
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import itemfold as ir
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.models import Hybrid, LightGCN, MultVAE, Popularity
from itemfold.settings.toml_file import dump_config
from itemfold.training import run_folder
from itemfold.training.fit import train
from itemfold.training.learner import Learner
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder
from itemfold.training.strategies import estimates, hybrid
from itemfold.training.strategies.blend import Blend, BlendSearch
from itemfold.training.strategies.chosen_sum import ChosenSum

DAY = 86_400.0
FEW: dict[str, Any] = {"epochs": 4, "eval_every": 1, "patience": 4, "device": "cpu", "ema_decay": 0}
RESUMED: dict[str, Any] = {**FEW, "save_seconds": 0.0}
METRIC = "ndcg@20"


@functools.cache
def drifting(users: int = 150, items: int = 120, each: int = 14, seed: int = 0) -> Interactions:
    """Items of three tastes; each is popular for some weeks after its release, in one year."""
    rng = np.random.default_rng(seed)
    release, rows = rng.uniform(-0.2, 1.0, items), list[tuple[int, int, float]]()
    for user in range(users):
        taken = np.zeros(items, bool)
        for moment in np.sort(rng.random(each)):
            age = moment - release
            weight = np.where(age >= 0, np.exp(-age / 0.08), 0.0) + 1e-3
            weight = weight * np.where(np.arange(items) % 3 == user % 3, 5.0, 1.0) * ~taken
            item = int(rng.choice(items, p=weight / weight.sum()))
            taken[item] = True
            rows.append((user, item, moment))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Interactions(
        users=columns[0].astype(np.int32),
        items=columns[1].astype(np.int32),
        user_ids=IdMap(np.arange(users, dtype=np.int64)),
        item_ids=IdMap(np.arange(items, dtype=np.int64) + 500),
        times=1.5e9 + columns[2] * 365 * DAY,
        name="drifting",
    )


@functools.cache
def split_of(strategy: str, timed: bool = True) -> Split:
    data = drifting()
    return SPLITS[strategy](data if timed else replace(data, times=None))


def same(first: Run, second: Run) -> None:
    """Assert that weights, settings, choices and figures are equal, bit for bit."""
    left, right = first.model.state_dict(), second.model.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
    left_lines, right_lines = (dump_config(run.config).splitlines() for run in (first, second))
    assert sorted(left_lines) == sorted(right_lines)
    for key in ("chosen", "alone", "best_epoch", "epochs", "valid", "test", "complete", "parts"):
        assert first.metrics.get(key) == second.metrics.get(key), key
    timeless = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]
        for run in (first, second)
    ]
    assert timeless[0] == timeless[1]


# --- never below a part --------------------------------------------------------------------------

SPLIT_NAMES = [("time", True), ("users", True), ("interactions", False), ("users", False)]


@pytest.mark.parametrize(("strategy", "timed"), SPLIT_NAMES)
def test_the_sum_is_not_below_a_part_on_validation(strategy: str, timed: bool) -> None:
    split = split_of(strategy, timed)
    run = train(split, **FEW, refit=False)
    alone = run.metrics["alone"]
    assert {"popularity", "linear", "network"} <= set(alone)
    found = ir.evaluate(run, split, part="valid", metrics=[METRIC])
    assert found.metrics[METRIC] == pytest.approx(run.metrics["valid"][METRIC])
    users = found.per_user[METRIC]
    noise = users.std() / np.sqrt(len(users))
    assert found.metrics[METRIC] >= max(alone.values()) - noise


@pytest.mark.parametrize(("strategy", "timed"), SPLIT_NAMES)
def test_parts_alone_are_what_they_are_as_models_of_their_own(strategy: str, timed: bool) -> None:
    split = split_of(strategy, timed)
    run = train(split, **FEW, refit=False)
    popular = train(split, Popularity(), refit=False, device="cpu")
    assert run.metrics["alone"]["popularity"] == pytest.approx(popular.metrics["valid"][METRIC])
    if run.config["model"]["half_life"] == "never" and run.config["model"]["linear"] != "none":
        linear = ir.models.RLAE(**run.metrics["chosen"]["model"]["linear"])
        own = train(split, linear, refit=False, device="cpu").metrics["valid"][METRIC]
        assert run.metrics["alone"]["linear"] == pytest.approx(own)


@pytest.mark.parametrize(("strategy", "timed"), SPLIT_NAMES)
def test_neighbours_are_a_part_if_a_later_period_says_so(strategy: str, timed: bool) -> None:
    run = train(split_of(strategy, timed), **FEW)
    is_later = strategy == "time" and timed
    assert ("ItemKNN" in run.metrics["alone"]) == is_later
    assert isinstance(run.model, Hybrid)
    rows = [*(run.model.blend or ()), *(run.model.new_blend or ())]
    others = run.config["model"]["others"] or ()
    assert len(others) == len(run.model.others)
    if others:  # it counts for somebody
        assert others[0]["name"] == "itemknn"
        assert any(row[-1] > 0 for row in rows)
    without = train(split_of(strategy, timed), Hybrid(others=()), **FEW)
    assert "ItemKNN" not in without.metrics["alone"]


def test_a_network_that_only_new_users_need_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clear gain for all users together, but weights of their own for new users."""

    def chosen(search: BlendSearch, blend: Blend) -> ChosenSum:
        known, new = search.single_part("linear"), search.single_part("network")
        return ChosenSum(tuple(search.names), [(0.0, known)], [(0.0, new)], "never")

    monkeypatch.setattr(hybrid, "is_clear", lambda gain: False)
    monkeypatch.setattr(hybrid, "choose_sum", chosen)
    split = split_of("time")
    model = train(split, **FEW).model
    assert isinstance(model, Hybrid)
    assert isinstance(model.gnn, LightGCN)
    assert model.blend == ((0.0, 0.0, 0.0, 0.0, 1.0),)  # length, two priors, network, linear
    assert model.new_blend == ((0.0, 0.0, 0.0, 1.0, 0.0),)


# --- recency -------------------------------------------------------------------------------------


def test_under_drift_recent_popularity_is_chosen_and_evaluated_as_reported(tmp_path: Path) -> None:
    split = split_of("time")
    run = train(split, Hybrid(gnn=None), out=tmp_path / "r", **FEW)
    model, alone = run.model, run.metrics["alone"]
    assert isinstance(model, Hybrid)
    half_life = run.config["model"]["popularity_half_life"]
    assert half_life not in (None, "never")
    assert model.blend is not None
    assert any(row[2] > 0 for row in (*model.blend, *(model.new_blend or ())))
    assert alone[f"popularity, half-life {half_life}"] > alone["popularity"]
    assert run.metrics["chosen"]["model"]["popularity_half_life"] == half_life
    counts = np.asarray(split.refit().recent(half_life).train.sum(0), np.float64).ravel()
    logarithm = np.log1p(counts)  # at the end of the validation period
    expected = (logarithm - logarithm.mean()) / logarithm.std()
    np.testing.assert_allclose(model.recent_popularity.numpy(), expected, rtol=1e-3, atol=1e-4)
    for again in (run, Run.load(tmp_path / "r")):
        found = ir.evaluate(again, split).metrics
        assert {key: found[key] for key in run.metrics["test"]} == run.metrics["test"]


def test_given_half_lives_are_not_replaced() -> None:
    given = {"half_life": "90d", "popularity_half_life": "30d"}
    run = train(split_of("time"), Hybrid(gnn=None, **given), **FEW)
    assert {name: run.config["model"][name] for name in given} == given
    assert not set(given) & set(run.metrics["chosen"]["model"])
    names = {name for name in run.metrics["alone"] if name.startswith("popularity")}
    assert names == {"popularity, half-life 30d"}


@pytest.mark.parametrize("name", ["half_life", "popularity_half_life"])
def test_a_half_life_needs_times(name: str) -> None:
    with pytest.raises(ItemfoldError, match="time"):
        train(split_of("interactions", timed=False), Hybrid(gnn=None, **{name: "30d"}), **FEW)


def test_without_times_nothing_fades() -> None:
    run = train(split_of("users", timed=False), Hybrid(gnn=None), **FEW)
    assert run.config["model"]["half_life"] == "never"
    assert run.config["model"]["popularity_half_life"] == "never"
    assert isinstance(run.model, Hybrid)
    assert all(row[2] == 0 for row in run.model.blend or ())


@pytest.mark.parametrize("strategy", ["time", "users"])
def test_the_configuration_of_a_run_with_recency_repeats_it(strategy: str) -> None:
    split = split_of(strategy)
    # parts that were not asked for may be left out; without them other epochs may be chosen
    first = train(split, Hybrid(gnn={"dim": 8}, linear={"l2": 20.0}, others=()), **FEW)
    again = train(split, type(first.model)(**first.model.fresh().settings), **FEW)
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert again.metrics["test"] == first.metrics["test"]
    assert again.metrics["best_epoch"] == first.metrics["best_epoch"]


# --- kills ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches this, just as nothing catches a kill."""


def kill_after_stage(patch: pytest.MonkeyPatch, stage: str) -> None:
    saved = RunFolder.save

    def save_and_die(self: RunFolder, run: Run) -> None:
        saved(self, run)
        if run.metrics.get("stage") == stage:
            raise Killed

    patch.setattr(RunFolder, "save", save_and_die)


def kill_at(patch: pytest.MonkeyPatch, phase: str, epoch: int) -> None:
    saved = run_folder.save_state

    def save_and_die(path: Path, state: Any, *args: Any) -> None:
        saved(path, state, *args)
        if (state.descent.phase, state.descent.epoch) == (phase, epoch):
            raise Killed

    patch.setattr(run_folder, "save_state", save_and_die)


MOMENTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "after popularity": lambda patch: kill_after_stage(patch, "popularity"),
    "after the linear part": lambda patch: kill_after_stage(patch, "linear"),
    "epoch 1": lambda patch: kill_at(patch, "select", 1),
    "epoch 3": lambda patch: kill_at(patch, "select", 3),
    "last epoch": lambda patch: kill_at(patch, "select", 4),
    "refit": lambda patch: kill_at(patch, "refit", 1),
}
GNN = {"dim": 8, "start": "random"}  # so that the best epoch is not the first


@pytest.fixture(autouse=True)
def popularity_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on large data, where the linear part takes long."""
    monkeypatch.setattr(hybrid, "STAGE_SECONDS", 0.0)


@functools.cache
def undisturbed(strategy: str) -> Run:
    return train(split_of(strategy), Hybrid(gnn=GNN), **RESUMED)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("strategy", ["time", "users"])
def test_a_killed_training_resumes_to_the_same_bits(
    strategy: str, moment: str, tmp_path: Path
) -> None:
    whole, out = undisturbed(strategy), tmp_path / "r"
    if moment == "refit" and not whole.metrics["refit"]:
        pytest.skip("unseen users are not refitted")
    assert whole.metrics["best_epoch"] > 0
    with pytest.MonkeyPatch.context() as patch:
        MOMENTS[moment](patch)
        with pytest.raises(Killed):
            train(split_of(strategy), Hybrid(gnn=GNN), out=out, **RESUMED)
    stage = Run.load(out)
    assert not stage.metrics["complete"]
    assert stage.metrics["stage"] == ("popularity" if "popularity" in moment else "linear")
    found = ir.evaluate(stage, split_of(strategy)).metrics
    assert {key: found[key] for key in stage.metrics["test"]} == stage.metrics["test"]
    with pytest.raises(ItemfoldError, match="already holds a run: continue it with --resume"):
        train(split_of(strategy), Hybrid(gnn=GNN), out=out, **RESUMED)
    resumed = train(split_of(strategy), Hybrid(gnn=GNN), out=out, resume=True, **RESUMED)
    same(whole, resumed)
    same(whole, Run.load(out))
    assert "stage" not in Run.load(out).metrics


def test_stages_are_saved_in_order_and_each_is_at_least_as_good(tmp_path: Path) -> None:
    seen, saved = list[Run](), RunFolder.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", lambda self, run: (seen.append(run), saved(self, run))[1])
        train(split_of("time"), Hybrid(gnn=GNN), out=tmp_path / "r", **RESUMED)
    assert [run.metrics.get("stage") for run in seen] == ["popularity", "linear", None]
    assert [run.metrics["complete"] for run in seen] == [False, False, True]
    values = [run.metrics["valid"][METRIC] for run in seen]
    assert values == sorted(values)


# --- Ctrl-C --------------------------------------------------------------------------------------


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works even where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(patch: pytest.MonkeyPatch, number: int) -> None:
    """Press Ctrl-C within the n-th epoch of all descents."""
    epoch, calls = Learner.epoch, list[int]()

    def pressed(self: Learner, *args: Any) -> float:
        calls.append(1)
        if len(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return epoch(self, *args)

    patch.setattr(Learner, "epoch", pressed)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("strategy", ["time", "users"])
def test_ctrl_c_leaves_a_usable_run_and_resuming_gives_the_undisturbed_one(
    strategy: str, number: int, tmp_path: Path
) -> None:
    split, out = split_of(strategy), tmp_path / "r"
    with pytest.MonkeyPatch.context() as patch:
        press(patch, number)
        stopped = train(split, Hybrid(gnn=GNN), out=out, **RESUMED)
    assert not stopped.metrics["complete"]
    assert "stage" not in stopped.metrics
    assert stopped.metrics["epochs"] == number
    found = ir.evaluate(Run.load(out), split).metrics
    assert {key: found[key] for key in stopped.metrics["test"]} == stopped.metrics["test"]
    assert stopped.train.nnz == (split.refit() if stopped.metrics["refit"] else split).train.nnz
    resumed = train(split, Hybrid(gnn=GNN), out=out, resume=True, **RESUMED)
    same(undisturbed(strategy), resumed)
    assert Run.load(out).metrics["complete"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("model", [Hybrid(gnn=GNN, linear=None), LightGCN(dim=8)])
def test_ctrl_c_in_the_refit_leaves_no_untrained_network(model: Any, tmp_path: Path) -> None:
    split, out = split_of("interactions", timed=False), tmp_path / "r"
    settings = {**RESUMED, "epochs": 12, "patience": 12, "lr": 0.005}
    whole = train(split, model, **settings)
    assert whole.metrics["best_epoch"] > 2
    with pytest.MonkeyPatch.context() as patch:
        press(patch, whole.metrics["epochs"] + 1)
        stopped = train(split, model, out=out, **settings)
    assert not stopped.metrics["complete"]
    assert stopped.metrics["best_epoch"] == whole.metrics["best_epoch"]
    assert stopped.metrics["valid"] == whole.metrics["valid"]
    assert stopped.metrics["test"][METRIC] > 0.5 * whole.metrics["test"][METRIC]
    resumed = train(split, model, out=out, resume=True, **settings)
    same(whole, resumed)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_a_further_part_is_trained_is_not_ignored(tmp_path: Path) -> None:
    model = Hybrid(gnn=GNN, others=MultVAE(hidden=8, latent=4))
    with pytest.MonkeyPatch.context() as patch:
        press(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            train(split_of("time"), model, out=tmp_path / "r", **RESUMED)


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    epoch = Learner.epoch

    def twice(self: Learner, *args: Any) -> float:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return epoch(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "epoch", twice)
        with pytest.raises(KeyboardInterrupt):
            train(split_of("time"), Hybrid(gnn=GNN), out=tmp_path / "r", **RESUMED)
    stage = Run.load(tmp_path / "r")  # of the stage before
    assert (stage.metrics["stage"], stage.metrics["complete"]) == ("linear", False)


@pytest.mark.usefixtures("interruptible")
def test_without_a_folder_ctrl_c_returns_the_best_so_far() -> None:
    with pytest.MonkeyPatch.context() as patch:
        press(patch, 2)
        run = train(split_of("users"), LightGCN(dim=8), **FEW)
    assert not run.metrics["complete"]
    assert run.metrics["epochs"] == 2
    assert run.metrics["test"][METRIC] > 0


@pytest.mark.parametrize(
    ("given", "per_cube", "form"),
    [({}, 1.0, "sparse"), ({}, 0.0, "auto"), ({"linear": {"name": "ease"}}, 1.0, "auto")],
)
def test_a_short_budget_takes_the_sparse_form_if_the_dense_one_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], per_cube: float, form: str
) -> None:
    monkeypatch.setattr(estimates, "TRIALS", 10**6)  # too long to choose anything
    monkeypatch.setattr(estimates, "SECONDS_PER_CUBE", per_cube)
    run = train(split_of("time"), Hybrid(**given), budget=60.0, device="cpu")
    assert isinstance(run.model, Hybrid)
    assert getattr(run.model.linear, "form", None) == form
    assert run.metrics["test"][METRIC] > 0
