"""Training of a hybrid: what it chooses, what stays as given, resuming, repeating, refitting."""

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import random_matrix

import itemfold as ir
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import run_config
from itemfold.models import RLAE, Hybrid
from itemfold.models.rlae import TRIED, TYPICAL
from itemfold.settings.resolve import resolve
from itemfold.settings.toml_file import flat, load_config, put
from itemfold.training import fit, run_folder
from itemfold.training.deadline import Deadline
from itemfold.training.fit import train
from itemfold.training.fitted import Context
from itemfold.training.loop import _is_spent
from itemfold.training.run import Run
from itemfold.training.state import Best, DescentState
from itemfold.training.strategies import candidates as entrants
from itemfold.training.strategies import hybrid, noise, workbench
from itemfold.training.strategies.blend import BlendSearch
from itemfold.training.strategies.hybrid import HybridState

DATA = "synthetic:users=80,items=60,interactions=900"
COSINES, PRODUCTS = "cosines, negatives by popularity", "inner products, uniform negatives"
FEW: dict[str, Any] = {"epochs": 4, "eval_every": 2, "device": "cpu"}
# many validations close to each other, so that the best epoch depends on what is validated
MANY: dict[str, Any] = {**FEW, "epochs": 12, "eval_every": 1, "ema_decay": 0.5, "lr": 0.03}
BLEND = ((0.0, 0.4, 0.0, 1.0, 1.5),)
HALF_LIVES = {"half_life": "never", "popularity_half_life": "never"}
FIXED: dict[str, Any] = {"gnn": {"dim": 8}, "linear": {"l2": 20.0}}
SMALL: dict[str, Any] = {"gnn": {"dim": 8}}
PROTOCOLS = ("transductive", "inductive")


@pytest.fixture(autouse=True)
def _choose_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few users of these splits choose as many would; tests of few users are elsewhere."""
    monkeypatch.setattr(noise, "FEW_USERS", 0)


@functools.cache
def split_of(protocol: str) -> Split:
    return (ir.split_users if protocol == "inductive" else ir.split_interactions)(ir.load(DATA))


def config_of(protocol: str, model: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A configuration in which only these settings are given."""
    return {
        "data": {"data": DATA},
        "split": {"strategy": "users" if protocol == "inductive" else "interactions"},
        "model": {"name": "hybrid", **SMALL, **(model or {})},
        "train": {**FEW, **settings},
    }


def same(first: Run, second: Run) -> None:
    """Assert that the weights are equal bit for bit."""
    left, right = first.model.state_dict(), second.model.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def validations(run: Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]


def candidates_of(run: Run) -> list[str]:
    return [entry["name"] for entry in run.metrics["candidates"]]


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try the candidates of a GPU, where there may be two, but train on the CPU."""
    monkeypatch.setattr(entrants, "pick_device", lambda _: torch.device("cuda"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)


def only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let one candidate alone take part."""
    as_on_a_gpu(monkeypatch)
    every = entrants.candidates
    monkeypatch.setattr(
        workbench, "candidates", lambda *args: [c for c in every(*args) if c.name == name]
    )


def decide(monkeypatch: pytest.MonkeyPatch, values: dict[str, float]) -> None:
    """Let the values of the candidates be these, whatever their networks are worth."""
    under_way, enter, search = list[str](), hybrid.Stages._compare_candidate, BlendSearch.run

    def _compare_candidate(self: hybrid.Stages, entry: entrants.Candidate, *args: Any) -> None:
        under_way.append(entry.name)
        enter(self, entry, *args)
        under_way.clear()

    def run(self: BlendSearch, *args: Any, **named: Any) -> Any:
        blend, found = search(self, *args, **named)
        if not under_way:
            return blend, found
        blend = blend.with_weight(self.names.index("network"), 1.0)
        return blend, np.full(len(found), values[under_way[0]])

    monkeypatch.setattr(hybrid.Stages, "_compare_candidate", _compare_candidate)
    monkeypatch.setattr(BlendSearch, "run", run)


def deciding(monkeypatch: pytest.MonkeyPatch, winner: str) -> None:
    """Two candidates, of which this one is better."""
    as_on_a_gpu(monkeypatch)
    decide(monkeypatch, {COSINES: 0.4, PRODUCTS: 0.4, winner: 0.5})


# --- what is given stays -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "candidates"),
    [
        ({"lr": 0.02}, 2),
        ({"l2": 0.5}, 2),
        ({"epochs": 3}, 2),
        ({"n_negatives": 7}, 2),
        ({"patience": 10}, 2),  # below the 20 epochs between validations of the second candidate
        ({"eval_every": 1, "patience": 3}, 2),
        ({"eval_every": 150, "patience": 160}, 2),
        ({"eval_every": 150}, 2),  # above the patience of both candidates
        ({"batch": 128}, 1),
        ({"batch_by": "users"}, 1),
        ({"similarity": "dot"}, 1),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_given_training_settings_are_never_replaced(
    settings: dict[str, Any], candidates: int
) -> None:
    given = {"epochs": 4, "device": "cpu", **settings}
    run = train(split_of("inductive"), Hybrid(**FIXED, blend=BLEND), **given)
    assert len(candidates_of(run)) == candidates
    assert {name: run.config["train"][name] for name in given} == given
    assert not set(given) & set(run.metrics["chosen"].get("train", {}))


@pytest.mark.parametrize(
    "given", [{"eval_every": 6}, {"patience": 3}, {"eval_every": 4, "patience": 4}, {"lr": 0.5}]
)
def test_the_pace_after_a_start_from_the_data_follows_what_is_given(given: dict[str, Any]) -> None:
    """Few epochs are needed after an SVD: 2 validations without a gain end training."""
    settings = resolve({"train": {"device": "cpu", **given}})
    entry = entrants.settings_from_data(settings, split_of("inductive"))
    assert entry["model"]["gnn"]["dim"] == 64
    assert entry["model"]["gnn"]["start"].startswith("svd")
    found = settings.choose(entry, "data").train
    expected = {"eval_every": 1, "patience": 2 * given.get("eval_every", 1), "lr": 0.01, **given}
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("way", ["objects", "configuration"])
@pytest.mark.parametrize("section", ["loss", "negatives"])
@pytest.mark.usefixtures("gpu")
def test_a_given_loss_or_sampler_ends_the_race(section: str, way: str) -> None:
    split = split_of("inductive")
    if way == "objects":
        part: dict[str, Any] = (
            {"loss": ir.losses.softmax(tau=0.3)}
            if section == "loss"
            else {"negatives": ir.negatives.Popularity()}
        )
        run = train(split, Hybrid(**FIXED, blend=BLEND), **part, **FEW)
    else:
        part = {"name": "softmax", "tau": 0.3} if section == "loss" else {"name": "popularity"}
        config = config_of("inductive", {**FIXED, "blend": BLEND})
        run = run_config({**config, section: part}, data=split)
    assert candidates_of(run) == ["as given"]
    assert section not in run.metrics["chosen"]
    name = {"loss": "softmax", "negatives": "popularity"}[section]
    assert run.config[section]["name"] == name
    if section == "loss":
        assert run.config["loss"]["tau"] == 0.3


@pytest.mark.parametrize("way", ["objects", "configuration"])
def test_given_settings_of_the_model_are_never_replaced(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is open")

    monkeypatch.setattr(RLAE, "apply_settings", tried)
    given = {
        "gnn": {"dim": 8, "layers": 1, "start": "random"},
        "blend": ((0.0, 0.3, 0.0, 1.0, 0.2), (5.0, 0.1, 0.0, 0.5, 0.7)),
        "new_blend": ((0.0, 0.9, 0.0, 0.1, 0.0),),
        **HALF_LIVES,
        "linear": {"l2": 7.0, "relax": 0.2, "items": 40, "keep": 9},
    }
    split = split_of("transductive")
    if way == "objects":
        run = train(split, Hybrid(**given), **FEW)
    else:
        run = run_config(config_of("transductive", given), data=split)
    for stored in (run.model.record(), run.config["model"]):
        for part in ("gnn", "linear"):
            assert {name: stored[part][name] for name in given[part]} == given[part]
        for name in ("blend", "new_blend", *HALF_LIVES):
            assert stored[name] == given[name]
    assert run.metrics["trials"] == []
    assert "model" not in run.metrics["chosen"]
    assert isinstance(run.model, Hybrid)
    assert run.model.gnn is not None
    assert run.model.gnn.item_vectors.shape == (60, 8)


@pytest.mark.usefixtures("gpu")
def test_a_race_needs_dense_data(monkeypatch: pytest.MonkeyPatch) -> None:
    split, model = split_of("inductive"), Hybrid(**FIXED, blend=BLEND)
    density = split.train.nnz / (split.n_users * split.n_items)
    assert candidates_of(train(split, model, **FEW)) == [COSINES, PRODUCTS]
    monkeypatch.setattr(entrants, "DENSE", density * 1.001)
    assert candidates_of(train(split, model, **FEW)) == [COSINES]


def test_on_a_cpu_there_is_one_candidate() -> None:
    settings = resolve({"train": {"device": "cpu"}})
    found = entrants.candidates(settings, split_of("inductive"))
    assert [entry.name for entry in found] == [COSINES]
    nothing = entrants.candidates(resolve({"model": {"gnn": "none"}}), split_of("inductive"))
    assert [entry.name for entry in nothing] == ["no network"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 128), ({"budget": 290.0}, 64), ({"budget": 300.0}, 128), ({"dim": 32}, None)],
)
def test_large_sparse_data_has_longer_vectors_if_there_is_time(
    given: dict[str, Any], expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = split_of("transductive")
    model = {"gnn": {"dim": given.pop("dim")}} if "dim" in given else {}
    settings = resolve({"model": {"name": "hybrid", **model}, "train": {"device": "cpu", **given}})

    def chosen() -> int | None:
        return entrants.settings_from_data(settings, split)["model"]["gnn"].get("dim")

    assert chosen() in (64, None)
    monkeypatch.setattr(entrants, "LARGE", 0)
    assert chosen() in (64, None)  # dense
    monkeypatch.setattr(entrants, "DENSE", 1.0)
    monkeypatch.setattr(entrants, "epoch_seconds", lambda _, columns: {128: 10.0}[columns])
    assert chosen() == expected


@pytest.mark.usefixtures("gpu")
def test_a_race_needs_negatives_of_every_user() -> None:
    split = split_of("inductive")
    matrix = split.train.toarray()
    matrix[3] = 1  # this user has every item
    full = replace(split, train=sp.csr_array(matrix), times=None)
    run = train(full, Hybrid(**FIXED, blend=BLEND), **FEW)
    assert candidates_of(run) == [COSINES]


@pytest.mark.usefixtures("gpu")
def test_a_race_needs_negatives_of_every_user_in_the_refit_too() -> None:
    split = split_of("transductive")
    assert split.valid is not None
    user, matrix = int(split.valid.users[0]), split.train.toarray()
    matrix[user] = 1 - split.valid.target[[0]].toarray()[0]  # the rest is validation data
    full = replace(split, train=sp.csr_array(matrix))
    for refit, expected in ((True, 1), (False, 2)):
        settings = resolve({"train": {"refit": refit}})
        assert len(entrants.candidates(settings, full)) == expected


@pytest.mark.parametrize("asked", [{}, {"gnn": {"layers": 3}}])
def test_what_is_open_is_chosen_and_noted(asked: dict[str, Any]) -> None:
    run = train(split_of("inductive"), Hybrid(**asked), **FEW)
    chosen, model = run.metrics["chosen"], run.model
    assert isinstance(model, Hybrid)
    if asked:
        assert model.gnn is not None
        assert chosen["model"]["gnn"]["dim"] == model.gnn.dim == entrants.DIM["cpu"]
        assert chosen["model"]["gnn"]["start"].startswith("svd")
        assert chosen["negatives"] == {"group": entrants.NEGATIVES_GROUP["cpu"]}
    else:  # random interactions: the network adds nothing, and it was not asked for
        assert chosen["model"]["gnn"] == "none"
        assert model.gnn is None
    assert candidates_of(run) == [COSINES]
    assert {"network", "linear", "popularity"} <= set(run.metrics["alone"])
    assert chosen["model"]["linear"]["items"] == 60
    linear = {name: chosen["model"]["linear"][name] for name in TRIED[0]}
    assert linear in TRIED
    assert len(run.metrics["trials"]) == len(TRIED)
    assert tuple(tuple(row) for row in chosen["model"]["blend"]) == model.blend
    stored = flat(run.config)
    for path, value in flat(chosen).items():
        assert json.loads(json.dumps(stored[path])) == value, path
        assert run.sources[path].startswith("chosen"), path


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_validation_data_typical_settings_are_used(protocol: str) -> None:
    everything = SPLITS["all"](ir.load(DATA), protocol=protocol)
    run = train(everything, epochs=3, device="cpu")
    assert isinstance(run.model, Hybrid)
    assert run.model.blend == BLEND
    linear = run.config["model"]["linear"]
    assert {name: linear[name] for name in TYPICAL} == TYPICAL
    assert run.metrics["trials"] == run.metrics["candidates"] == []
    assert (run.metrics["best_epoch"], run.metrics["epochs"]) == (3, 3)
    history = everything.train[:5]
    assert run.model.scores(history, np.full(5, -1)).isfinite().all()


def test_an_epoch_has_at_least_sixteen_steps_unless_the_data_is_tiny() -> None:
    settings, split = resolve({"train": {"device": "cpu"}}), split_of("inductive")
    for users, items in ((60, 50), (400, 300), (900, 400)):
        matrix = random_matrix(users, items, 0.3)
        found = entrants.settings_from_data(settings, replace(split, train=matrix))["train"][
            "batch"
        ]
        fitting = [2**n for n in range(9, 16) if matrix.nnz / 2**n >= 16]
        assert found == max(fitting, default=512)


def test_a_model_that_was_trained_chooses_again_on_other_data() -> None:
    model = Hybrid(**SMALL)
    train(split_of("inductive"), model, **FEW)
    assert model.blend is None  # training leaves it as it is
    run = train(split_of("transductive"), model, **FEW)
    assert run.model is not model
    chosen = run.metrics["chosen"]["model"]
    assert "blend" in chosen
    assert {"l2", "items"} <= set(chosen["linear"])
    assert len(run.metrics["trials"]) == len(TRIED)


def test_a_large_catalogue_is_covered_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(entrants.MAX_DENSE_ITEMS, "cpu", 25)
    run = train(split_of("inductive"), Hybrid(**SMALL, linear={"form": "dense"}), **FEW)
    assert run.metrics["chosen"]["model"]["linear"]["items"] == 25
    assert isinstance(run.model, Hybrid)
    sources = run.model.linear.weight_starts.diff()
    assert int((sources > 0).sum()) == 25


# --- repeating -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [COSINES, PRODUCTS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_its_configuration_repeats_a_run_without_any_trial(
    protocol: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, name)
    first = run_config(config_of(protocol, **MANY), tmp_path / "first")
    monkeypatch.undo()
    again = run_config(load_config(tmp_path / "first" / "config.toml"), tmp_path / "again")
    assert validations(first) == validations(again)
    same(first, again)
    assert again.metrics["trials"] == []
    assert candidates_of(again) == ["as given"]
    assert again.metrics["chosen"] == {}
    assert again.metrics["best_epoch"] == first.metrics["best_epoch"]
    assert again.metrics["test"] == first.metrics["test"]
    files = [tmp_path / run / "config.toml" for run in ("first", "again")]
    assert load_config(files[0]) == load_config(files[1])


def test_a_loss_with_its_default_temperature_is_repeated_too(tmp_path: Path) -> None:
    """A loss as a plain function has its settings unsaid; from a file they are all bound."""
    split = split_of("inductive")
    first = train(split, Hybrid(**SMALL), loss=ir.losses.softmax, out=tmp_path / "first", **MANY)
    again = run_config(load_config(tmp_path / "first" / "config.toml"), data=split)
    assert validations(first) == validations(again)
    same(first, again)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    runs = [train(split_of("inductive"), Hybrid(**SMALL), seed=s, **FEW) for s in (1, 1, 2)]
    same(runs[0], runs[1])
    assert runs[0].metrics["chosen"] == runs[1].metrics["chosen"]
    item = [run.model.state_dict()["gnn.item_embedding"] for run in runs]
    assert not torch.equal(item[0], item[2])


# --- the race ------------------------------------------------------------------------------------


@pytest.mark.parametrize("winner", [COSINES, PRODUCTS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_candidate_with_the_higher_metric_is_in_the_model(
    protocol: str, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deciding(monkeypatch, winner)
    split = split_of(protocol)
    run = train(split, Hybrid(**FIXED), **FEW)
    found = {entry["name"]: entry["ndcg@20"] for entry in run.metrics["candidates"]}
    assert found == pytest.approx({COSINES: 0.4, PRODUCTS: 0.4, winner: 0.5})
    only(monkeypatch, winner)
    alone = train(split, Hybrid(**FIXED), **FEW)
    assert candidates_of(alone) == [winner]
    same(run, alone)
    assert run.metrics["chosen"] == alone.metrics["chosen"]
    assert run.metrics["best_epoch"] == alone.metrics["best_epoch"]
    similarity = run.config["train"]["similarity"]
    assert similarity == ("cosine" if winner == COSINES else "dot")
    assert run.config["negatives"]["name"] == ("in-batch" if winner == COSINES else "uniform")


def test_if_candidates_are_equal_the_first_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch)
    decide(monkeypatch, {COSINES: 0.5, PRODUCTS: 0.5})
    run = train(split_of("inductive"), Hybrid(**FIXED), **FEW)
    assert candidates_of(run) == [COSINES, PRODUCTS]
    assert run.config["train"]["similarity"] == "cosine"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_validation_metrics_are_those_of_the_final_model(protocol: str) -> None:
    split = split_of(protocol)
    run = train(split, Hybrid(**FIXED), **FEW, refit=False)
    found = ir.evaluate(run, split, part="valid", metrics=list(run.metrics["valid"])).metrics
    assert found == pytest.approx(run.metrics["valid"])
    test = ir.evaluate(run, split, metrics=["ndcg@20"]).metrics
    assert test["ndcg@20"] == pytest.approx(run.metrics["test"]["ndcg@20"])


# --- resuming ------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches this, just as nothing catches a kill."""


def kill(monkeypatch: pytest.MonkeyPatch, when: Callable[[HybridState], bool]) -> None:
    """Die after the first state for which this is true was written."""
    saved = run_folder.save_state

    def save_and_die(path: Path, state: Any, *args: Any) -> None:
        saved(path, state, *args)
        if when(state):
            raise Killed

    monkeypatch.setattr(run_folder, "save_state", save_and_die)


MOMENTS: dict[str, Callable[[HybridState], bool]] = {
    "first candidate": lambda s: (
        (s.descent.phase, len(s.finished), s.descent.epoch) == ("select", 0, 2)
    ),
    "second candidate": lambda s: (
        (s.descent.phase, len(s.finished), s.descent.epoch) == ("select", 1, 3)
    ),
    "refit": lambda s: (s.descent.phase, s.descent.epoch) == ("refit", 1),
}
TO_RESUME: dict[str, Any] = {**FEW, "eval_every": 1, "save_seconds": 0.0, "ema_decay": 0.5}


@functools.cache
def undisturbed(protocol: str, winner: str) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        deciding(patch, winner)
        return run_config(config_of(protocol, **TO_RESUME))


@pytest.mark.parametrize("winner", [COSINES, PRODUCTS])
@pytest.mark.parametrize(
    ("protocol", "moment"),
    [*(("transductive", moment) for moment in MOMENTS), ("inductive", "second candidate")],
)
def test_an_interrupted_run_resumes_to_the_same_bits(
    protocol: str, moment: str, winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = undisturbed(protocol, winner), tmp_path / "r"
    deciding(monkeypatch, winner)
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, MOMENTS[moment])
        with pytest.raises(Killed):
            run_config(config_of(protocol, **TO_RESUME), folder)
    resumed = run_config(load_config(folder / "request.toml"), folder, resume=True)
    same(whole, resumed)
    assert validations(whole) == validations(resumed)
    for key in ("chosen", "best_epoch", "epochs", "valid", "test"):
        assert resumed.metrics[key] == whole.metrics[key], key
    assert candidates_of(resumed) == [COSINES, PRODUCTS]
    assert len(resumed.metrics["trials"]) == len(TRIED)
    assert resumed.config == whole.config


@pytest.mark.usefixtures("gpu")
def test_a_run_that_dies_twice_resumes_to_the_same_choices(tmp_path: Path) -> None:
    """With the real search of the blend, too."""
    config, folder = config_of("transductive", **TO_RESUME), tmp_path / "r"
    whole = run_config(config)
    for moment in ("second candidate", "refit"):
        with pytest.MonkeyPatch.context() as patch:
            kill(patch, MOMENTS[moment])
            with pytest.raises(Killed):
                run_config(config, folder, resume=folder.exists())
    resumed = run_config(config, folder, resume=True)
    same(whole, resumed)
    assert resumed.metrics["chosen"] == whole.metrics["chosen"]


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped in its first candidate."""
    folder = tmp_path_factory.mktemp("unfinished") / "r"
    with pytest.MonkeyPatch.context() as patch:
        kill(patch, MOMENTS["first candidate"])
        with pytest.raises(Killed):
            run_config(config_of("inductive", save_seconds=0.0), folder)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "r"
    run_config(config_of("inductive"), folder)
    return folder


OTHER: list[tuple[str, dict[str, Any]]] = [
    ("train", {"lr": 0.02}),
    ("train", {"batch": 64}),
    ("train", {"batch": 2048}),  # the default of training, which the run did not choose
    ("train", {"seed": 1}),
    ("train", {"epochs": 5}),
    ("model", {"gnn": {"dim": 16}}),
    ("model", {"gnn": {"dim": 8, "layers": 1}}),
    ("model", {"blend": [[0.0, 0.9, 0.9]]}),
    ("model", {"new_blend": [[0.0, 0.9, 0.0, 1.0, 0.9]]}),
    ("model", {"half_life": "30d"}),
    ("model", {"popularity_half_life": "never"}),
    ("model", {"linear": {"l2": 1.5}}),
    ("model", {"linear": {"items": 30}}),
    ("model", {"linear": "ease"}),
    ("loss", {"name": "softmax"}),
    ("loss", {"tau": 0.7}),
    ("negatives", {"name": "popularity"}),
    ("negatives", {"group": 32}),
]


def with_other(section: str, settings: dict[str, Any], **given: Any) -> Any:
    config = config_of("inductive", **given)
    config[section] = {**config.get(section, {}), **settings}
    return config


@pytest.mark.parametrize(("section", "settings"), OTHER)
def test_an_unfinished_run_is_not_resumed_with_other_settings(
    section: str, settings: dict[str, Any], unfinished: Path
) -> None:
    with pytest.raises(ItemfoldError, match=rf"holds a run with other settings: '{section}\."):
        run_config(with_other(section, settings, save_seconds=0.0), unfinished, resume=True)
    assert Run.load(unfinished).metrics["stage"] == "linear"  # what can be used meanwhile


@pytest.mark.parametrize(("section", "settings"), OTHER)
def test_a_finished_run_refuses_other_options(
    section: str, settings: dict[str, Any], finished: Path
) -> None:
    with pytest.raises(ItemfoldError, match=rf"holds a run with other settings: '{section}\."):
        run_config(with_other(section, settings), finished, resume=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("blend", BLEND),
        ("linear.l2", {"linear": {"l2": 5.0}}),
        ("linear.items", {"linear": {"items": 30}}),
        ("gnn.layers", {"gnn": {"dim": 8, "layers": 1}}),
    ],
)
def test_a_finished_run_misses_an_option_it_was_started_with(
    name: str, value: Any, tmp_path: Path
) -> None:
    given = value if isinstance(value, dict) else {name: value}
    run_config(config_of("inductive", given), tmp_path / "r")
    with pytest.raises(ItemfoldError, match=rf"'model\.{name}' is .*, got None"):
        run_config(config_of("inductive"), tmp_path / "r", resume=True)


@pytest.mark.parametrize("winner", [COSINES, PRODUCTS])
def test_a_finished_run_accepts_the_options_it_was_started_with(
    winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deciding(monkeypatch, winner)
    config = config_of("inductive")
    first = run_config(config, tmp_path / "r")
    monkeypatch.setattr(fit, "_tested", None)  # nothing is trained again
    for given in (config, load_config(tmp_path / "r" / "config.toml")):
        again = run_config(given, tmp_path / "r", resume=True)
        same(first, again)
        assert again.metrics == first.metrics


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


@pytest.mark.parametrize("model", ["hybrid", "rlae"])
def test_resuming_a_finished_run_that_chose_changes_none_of_its_files(
    model: str, tmp_path: Path
) -> None:
    config = config_of("inductive")
    config["model"] = {"name": model}
    run_config(config, tmp_path / "r")
    before = content(tmp_path / "r")
    for _ in range(2):
        run_config(config, tmp_path / "r", resume=True)
        assert content(tmp_path / "r") == before
    option = {"hybrid": "linear.l2", "rlae": "l2"}[model]
    chosen = run_config(config, tmp_path / "r", resume=True).metrics["chosen"]
    assert f"model.{option}" in flat(chosen)
    put(config["model"], option, 3.0)
    with pytest.raises(ItemfoldError, match=f"'model.{option}' is .*, got 3"):
        run_config(config, tmp_path / "r", resume=True)
    assert content(tmp_path / "r") == before


# --- refit ---------------------------------------------------------------------------------------


def test_the_refit_has_validation_data_in_every_part() -> None:
    split = split_of("transductive")
    run = train(split, Hybrid(**SMALL), **FEW)
    model, both = run.model, split.refit().train
    assert run.metrics["refit"]
    assert isinstance(model, Hybrid)
    assert both.nnz > split.train.nnz
    np.testing.assert_array_equal(run.train.toarray(), both.toarray())
    count = both.toarray().sum(0)
    logarithm = np.log1p(count.astype(np.float64))
    expected = (logarithm - logarithm.mean()) / logarithm.std()
    np.testing.assert_allclose(model.popularity.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert model.gnn is not None
    assert model.linear is not None
    np.testing.assert_array_equal(model.gnn.item_degree.numpy(), count)  # type: ignore[operator]
    linear = RLAE(**{name: getattr(model.linear, name) for name in TRIED[0]})
    linear.setup(both, inductive=False, generator=torch.Generator())
    linear.solve(both)
    rows, nobody = both[:9], np.full(9, -1)
    torch.testing.assert_close(model.linear.scores(rows, nobody), linear.scores(rows, nobody))


@pytest.mark.parametrize("name", [COSINES, PRODUCTS])
def test_the_refit_is_a_run_on_all_data_with_what_was_chosen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, name)
    split = split_of("transductive")
    run = train(split, Hybrid(**SMALL), **FEW)
    monkeypatch.undo()
    config = {section: dict(values) for section, values in run.config.items()}
    assert run.metrics["best_epoch"] > 0
    config["train"]["epochs"] = run.metrics["best_epoch"]
    direct = run_config(config, data=split.refit())
    same(run, direct)
    assert direct.metrics["test"] == run.metrics["test"]


# --- budget --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_a_budget_that_is_spent_at_once_only_weights_are_chosen(
    protocol: str, tmp_path: Path
) -> None:
    settings = {**FEW, "epochs": 500, "budget": 1e-6}
    run = train(split_of(protocol), out=tmp_path / "r", **settings)
    assert candidates_of(run) == []
    assert run.metrics["complete"]
    assert run.metrics["epochs"] == run.metrics["best_epoch"] == 0
    assert run.metrics["refit"] is (protocol == "transductive")
    assert isinstance(run.model, Hybrid)
    assert run.model.gnn is None  # no time for it
    assert run.model.blend is not None
    assert run.metrics["trials"] == []
    alone = run.metrics["alone"]
    assert set(alone) == {"popularity", "linear"}
    left_out = [note for note in run.notes if "no time to fit the parts again" in note]
    assert len(left_out) == (protocol == "transductive")
    assert run.metrics["valid"]["ndcg@20"] >= 0.9 * max(alone.values())
    again = ir.evaluate(run, split_of(protocol), metrics=["ndcg@20"]).metrics
    assert again["ndcg@20"] == run.metrics["test"]["ndcg@20"]
    same(Run.load(tmp_path / "r"), run)


@pytest.mark.parametrize("start", [{}, {"start": "random"}])
def test_rows_of_a_blend_need_their_network_whatever_the_budget(start: dict[str, str]) -> None:
    settings = {**FEW, "epochs": 500, "budget": 1e-6}
    model = Hybrid(gnn={"dim": 8, **start}, blend=BLEND)
    run = train(split_of("transductive"), model, **settings)
    assert isinstance(run.model, Hybrid)
    assert run.model.blend == BLEND
    assert run.model.gnn is not None


@pytest.mark.usefixtures("gpu")
def test_a_large_budget_changes_nothing() -> None:
    runs = [train(split_of("inductive"), Hybrid(**SMALL), **FEW, budget=b) for b in (None, 1e6)]
    same(*runs)
    assert candidates_of(runs[1]) == [COSINES, PRODUCTS]


def spent(
    monkeypatch: pytest.MonkeyPatch,
    left: float | None,
    refits: bool,
    state: DescentState,
    validation: float = 0.0,
) -> bool:
    """Whether training ends if so many seconds are left."""
    monkeypatch.setattr("itemfold.training.deadline.time.monotonic", lambda: 1000.0)
    deadline = Deadline(None if left is None else left + 80, started=920.0)
    settings = resolve({"train": {"refit": refits, "eval_every": 1, "patience": 9}})
    context = Context(deadline=deadline)
    return _is_spent(settings, split_of("transductive"), state, context, validation)


def test_time_is_kept_for_the_refit(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 s are left: a refit of 5 of the 20 epochs takes a quarter of the 40 s of training."""
    state, check = DescentState(seconds=40.0, epoch=20, best=Best(5)), monkeypatch
    assert not spent(check, None, True, state)
    assert not spent(check, 20, True, state)
    state.best.epoch = 15
    assert spent(check, 20, True, state)
    assert not spent(check, 20, False, state)
    assert spent(check, 1, False, state)  # less than the next epoch takes
    assert spent(check, 20, False, state, validation=19)


def test_time_is_kept_for_what_follows_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("itemfold.training.deadline.time.monotonic", lambda: 1000.0)
    deadline = Deadline(budget=100.0, started=920.0)
    assert deadline.left() == 20
    deadline.reserve = 15.0
    assert deadline.left() == 5
    with deadline.reserving(2.0):
        assert deadline.left() == 3
    assert deadline.left() == 5
    assert Deadline(None, started=0.0, reserve=9.0).left() == float("inf")


def test_the_refit_of_a_second_candidate_is_not_charged_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first took 60 s for 30 epochs, the second 1 s for its first 20."""
    state = DescentState(seconds=60.0, epoch=30, best=Best(30))
    state.next_candidate()
    state.seconds, state.epoch, state.best.epoch = 61.0, 20, 20
    assert not spent(monkeypatch, 2, True, state)
    assert spent(monkeypatch, 0.5, True, state)
