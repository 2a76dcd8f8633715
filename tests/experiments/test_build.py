"""A configuration reproduces a run; unknown settings are rejected by name."""

from unittest import mock

import numpy as np
import pytest
import torch

import itemfold as ir
from itemfold.experiments import build, stored
from itemfold.experiments.build import run_config
from itemfold.losses import LOSSES
from itemfold.settings import overrides
from itemfold.settings.resolve import protocol_of, resolve, with_names
from itemfold.settings.toml_file import dump_config, load_config

TINY = "synthetic:users=80,items=60,interactions=900"
FAST = {"epochs": 3, "eval_every": 1, "batch": 64}


def config(**sections) -> dict:
    base = {"data": {"data": TINY}, "model": {"name": "lightgcn", "dim": 4}, "train": dict(FAST)}
    return {**base, **sections}


def same_weights(a: ir.Run, b: ir.Run) -> bool:
    first, second = a.model.state_dict(), b.model.state_dict()
    return first.keys() == second.keys() and all((first[k] == second[k]).all() for k in first)


@pytest.mark.parametrize("strategy", ["interactions", "users", "time", "last"])
def test_the_stored_settings_repeat_the_run(strategy, tmp_path):
    first = build.run_config(config(split={"strategy": strategy, "seed": 3}), tmp_path / "a")
    again = build.run_config(load_config(tmp_path / "a" / "config.toml"))
    assert same_weights(first, again)
    assert first.config == again.config
    assert first.metrics["test"] == again.metrics["test"]
    assert protocol_of(first.config) == first.protocol


def test_a_file_with_times_is_split_as_if_by_time_was_requested(tmp_path):
    data, path = ir.load(TINY), tmp_path / "likes.csv"
    rows = np.column_stack([data.users, data.items, data.times])
    np.savetxt(path, rows, "%d", ",", header="user,item,timestamp", comments="")
    left_open = build.run_config(config(data={"data": str(path)}))
    by_time = build.run_config(config(data={"data": str(path)}, split={"strategy": "time"}))
    assert left_open.config["split"] == by_time.config["split"]
    assert left_open.metrics["test"] == by_time.metrics["test"]
    some = build.run_config(config(data={"data": str(path)}, split={"valid": 0.1}))
    assert some.config["split"] == {**by_time.config["split"], "valid": 0.1}


def test_a_configuration_equals_the_python_calls():
    settings = config(loss={"name": "item-ndcg", "tau": 0.5}, negatives={"name": "popularity"})
    run = build.run_config(settings)
    by_hand = ir.train(
        ir.split_interactions(ir.load(TINY)),
        ir.models.LightGCN(dim=4),
        loss=ir.losses.item_ndcg(tau=0.5),
        negatives=ir.negatives.Popularity(),
        **FAST,
    )
    assert same_weights(run, by_hand)
    assert run.config == by_hand.config


def test_the_split_of_a_run_is_the_one_it_was_evaluated_on(tmp_path):
    run = build.run_config(config(split={"strategy": "users", "seed": 5}), tmp_path / "r")
    loaded = ir.Run.load(tmp_path / "r")
    split = stored.split_of(loaded)
    assert split.test.ids.tolist() == run.per_user["user"].tolist()
    evaluated = ir.evaluate(loaded, split)
    assert evaluated.metrics == pytest.approx(run.metrics["test"], rel=1e-6)
    loaded.dataset["fingerprint"] = "0" * 16
    with pytest.raises(ir.ItemfoldError, match="is not the data of this run"):
        stored.split_of(loaded)
    loaded.config["data"] = {}
    with pytest.raises(ir.ItemfoldError, match="data in memory"):
        stored.split_of(loaded)


def test_a_refitted_run_is_evaluated_with_the_extended_history():
    run = build.run_config(config())
    split = stored.split_of(run)
    assert split.valid is None
    assert (split.train != run.train).nnz == 0


def test_cold_start_is_part_of_the_settings(tmp_path):
    full = build.run_config(config(split={"strategy": "users"}))
    thin = build.run_config(config(split={"strategy": "users", "cold_start": 0.2}), tmp_path / "r")
    assert thin.train.nnz < 0.5 * full.train.nnz
    again = stored.split_of(ir.Run.load(tmp_path / "r"))
    assert (again.train != thin.train).nnz == 0


def test_given_test_files_are_kept(tmp_path):
    lines = [f"{u} {u % 7} {(u + 1) % 7} {(u + 2) % 7} {(u + 3) % 7}" for u in range(20)]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    tests = [f"{u} {(u + 4) % 7}" for u in range(20)]
    (tmp_path / "test.txt").write_text("\n".join(tests) + "\n")
    run = build.run_config(config(data={"data": str(tmp_path)}), tmp_path / "r")
    assert run.config["split"]["test"] == "given"
    split = stored.split_of(ir.Run.load(tmp_path / "r"))
    assert np.diff(split.test.target.indptr).tolist() == [1] * 20
    with pytest.raises(ir.ItemfoldError, match="has no test file"):
        build.run_config(config(split={"strategy": "interactions", "test": "given"}))


def test_without_validation_every_epoch_is_trained():
    run = build.run_config(config(split={"strategy": "interactions", "valid": 0.0}))
    assert (run.metrics["epochs"], run.metrics["best_epoch"]) == (3, 3)


def test_settings_by_name():
    settings = config()
    for text in ("dim=16", "loss.tau=0.5", "pooling=sum", "train.refit=false", "split.seed=4"):
        overrides.assign(settings, text)
    assert settings["model"] == {"name": "lightgcn", "dim": 16, "pooling": "sum"}
    assert settings["loss"] == {"tau": 0.5}
    assert settings["train"]["refit"] is False
    assert settings["split"] == {"seed": 4}
    for text, message in {
        "seed=1": "write split.seed or train.seed",
        "model.heads=2": r"\[model\] has name, dim, layers, pooling",
        "nothing=1": "known keys: .*epochs, lr",
        "dim": "must look like model.dim=64",
        "nowhere.dim=3": "known keys",
    }.items():
        with pytest.raises(ir.ItemfoldError, match=message):
            overrides.assign(settings, text)


def test_choosing_another_loss_drops_the_settings_of_the_default():
    settings = {"model": {"name": "simplex"}, "loss": {"margin": 0.5}}  # of its default loss, ccl
    overrides.choose(settings, "loss", "item-ndcg")
    assert settings["loss"] == {"name": "item-ndcg"}
    settings = {"model": {"name": "simplex"}, "loss": {"margin": 0.5}}
    overrides.choose(settings, "loss", "ccl")
    assert settings["loss"] == {"name": "ccl", "margin": 0.5}


def test_choosing_another_component_drops_the_settings_of_the_first():
    settings = config(
        model={"name": "gat", "heads": 2}, split={"strategy": "users", "fold_in": 0.5}
    )
    overrides.choose(settings, "model", "mf")
    assert settings["model"] == {"name": "mf"}
    overrides.choose_split(settings, "inductive", None)
    assert settings["split"] == {"strategy": "users", "fold_in": 0.5}
    overrides.choose_split(settings, "transductive", None)
    assert settings["split"] == {}  # the strategy depends on the data


def test_short_options_reach_their_section_or_are_noted():
    settings = config(loss={"name": "bpr"})
    assert overrides.shortcut(settings, "tau", 1.0) == "bpr has no setting 'tau': --tau is not used"
    assert overrides.shortcut(settings, "seed", 7) == ""
    assert settings["train"]["seed"] == settings["split"]["seed"] == 7
    overrides.shortcut(settings, "l2", 0.1)
    assert settings["train"]["l2"] == 0.1
    settings = config(model={"name": "ease"})
    overrides.shortcut(settings, "l2", 50.0)
    assert settings["model"]["l2"] == 50.0


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"name": "nothing"}}, "'model' must be one of hybrid"),
        ({"model": {"name": "lightgcn", "dim": 0}}, "'dim' must be a positive integer, got 0"),
        ({"model": {"name": "lightgcn", "dim": "big"}}, "must be a whole number, got 'big'"),
        ({"loss": {"name": "bpr", "tau": 1.0}}, "'bpr' has no setting 'tau'"),
        ({"loss": {"name": "item-ndcg", "tau": -1}}, "'tau' must be a positive number"),
        ({"negatives": {"name": "nothing"}}, "'negatives' must be one of uniform"),
        ({"train": {"lr": "fast"}}, "'train.lr' must be a number, got 'fast'"),
        ({"train": {"epoch": 3}}, "'train' has no setting 'epoch'"),
        (
            {"train": {"metric": "coverage@20"}},
            "'metric' must be an accuracy metric, such as ndcg@20",
        ),
        ({"train": {"device": 3}}, "'train.device' must be text, got 3"),
        ({"split": {"strategy": "nothing"}}, "'split' must be one of interactions"),
        ({"split": {"strategy": "users", "seed": -1}}, "'split.seed' must be at least 0"),
        ({"data": {}}, "'data' must be given"),
        ({"data": {"data": TINY, "sep": ";"}}, "'data' has no setting 'sep'"),
        ({"evaluate": {}}, r"unknown section \[evaluate\]"),
        (
            {"model": {"name": "mf"}, "split": {"strategy": "users"}},
            "MF cannot be used in the inductive",
        ),
    ],
)
def test_bad_settings_are_rejected_and_leave_nothing(sections, message, tmp_path):
    with pytest.raises(ir.ItemfoldError, match=message):
        build.run_config(config(**sections), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_what_fails_before_the_first_epoch_leaves_nothing(tmp_path):
    full = "\n".join(["user_id,item_id"] + [f"{u},{i}" for u in range(5) for i in range(4)])
    (tmp_path / "full.csv").write_text(full + "\n")
    settings = config(
        data={"data": str(tmp_path / "full.csv")}, split={"strategy": "users", "test": 0.4}
    )
    with pytest.raises(ir.ItemfoldError, match="every item"):
        build.run_config(settings, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_written_configuration_reads_back(tmp_path):
    settings = config(loss={"name": "item-recall", "ks": [5, 20]}, split={"strategy": "users"})
    (tmp_path / "c.toml").write_text(dump_config(settings))
    assert load_config(tmp_path / "c.toml") == settings
    run = build.run_config(load_config(tmp_path / "c.toml"))
    assert run.config["loss"]["ks"] == (5, 20)


def test_folder_names():
    assert (
        str(stored.default_folder(config())) == "runs/synthetic-transductive-lightgcn-item-ndcg-0"
    )
    settings = config(model={"name": "ease"}, train={"seed": 3}, data={"data": "ml-1m"})
    assert str(stored.default_folder(settings)) == "runs/ml-1m-transductive-ease-3"


def test_a_model_has_the_training_defaults_of_its_paper() -> None:
    plain = resolve({"model": {"name": "sgl"}}).comparable()
    assert plain["loss"]["name"] == "bpr"
    assert (plain["train"]["batch_by"], plain["train"]["n_negatives"], plain["train"]["lr"]) == (
        "interactions",
        1,
        1e-3,
    )
    given = resolve(
        {"model": {"name": "sgl"}, "loss": {"name": "item-ndcg"}, "train": {"lr": 0.1}}
    ).comparable()
    assert given["loss"]["name"] == "item-ndcg"
    assert (given["train"]["batch_by"], given["train"]["lr"]) == ("users", 0.1)


def test_a_split_that_differs_from_the_original_is_rejected(tmp_path):
    for strategy in ("users", "interactions"):
        build.run_config(config(split={"strategy": strategy, "seed": 5}), tmp_path / strategy)
        loaded = ir.Run.load(tmp_path / strategy)
        stored.split_of(loaded)
        loaded.config["split"]["seed"] = 6
        with pytest.raises(ir.ItemfoldError, match="the split differs from that of this run"):
            stored.split_of(loaded)


@pytest.mark.parametrize("name", ["ease", "mult-vae", "adap-tau", "popularity"])
def test_a_model_with_its_own_objective_notes_that_a_loss_is_not_used(name):
    settings = config(model={"name": name})
    for section, other in (("loss", "softmax"), ("negatives", "ppr")):
        note = overrides.choose(settings, section, other)
        assert note == f"{name} has its own objective: --{section} is not used"
        assert section not in settings
    assert (
        overrides.shortcut(settings, "tau", 3.0)
        == f"{name} has no setting 'tau': --tau is not used"
    )
    with pytest.raises(ir.ItemfoldError, match=r"no key 'loss\.tau'"):
        overrides.assign(settings, "loss.tau=0.3")
    assert overrides.choose(config(), "loss", "softmax") == ""


def test_a_folder_where_another_run_has_begun_is_rejected(tmp_path):
    (tmp_path / "run").mkdir()
    run = build.run_config(config())
    (tmp_path / "run" / "config.toml").write_text(dump_config(run.config))
    with pytest.raises(ir.ItemfoldError, match="already holds a run"):
        build.run_config(config(split={"strategy": "users"}), tmp_path / "run")
    build.run_config(config(), tmp_path / "run")  # the same run starts again


def test_settings_of_a_model_without_a_loss_are_not_kept_for_another():
    kept = build.run_config(config(model={"name": "ease"})).config
    assert kept["loss"] == kept["negatives"] == {"name": "none"}
    for name, loss in (("ngcf", "bpr"), ("lightgcn", "item-ndcg")):
        settings = {section: dict(values) for section, values in kept.items()}
        overrides.choose(settings, "model", name)
        assert with_names(settings)["loss"]["name"] == loss
        assert with_names(settings)["negatives"]["name"] == "uniform"
    overrides.assign(settings, "loss.tau=0.5")
    assert resolve(settings).loss.values["tau"] == 0.5


def test_a_custom_loss_works_in_a_configuration() -> None:
    def hinge(pos, neg, pos_mask=None, neg_mask=None, *, gap: float = 1.0):  # type: ignore[no-untyped-def]
        return torch.relu(gap - pos.mean(1) + neg.mean(1)).mean()

    with mock.patch.dict(LOSSES, {"hinge": hinge}):
        settings = {"train": {"epochs": 1}, "loss": {"name": "hinge", "gap": 0.5}}
        run = run_config({"data": {"data": TINY}, **settings})
        assert run.config["loss"] == {"name": "hinge", "gap": 0.5}
        assert resolve({"data": {"data": TINY}, **settings}).comparable()["loss"]["gap"] == 0.5


def test_the_settings_of_a_run_from_python_are_complete() -> None:
    split = ir.split_users(ir.load(TINY))
    run = ir.train(split, ir.models.LightGCN(dim=4), epochs=1)
    assert run.config["loss"] == {"name": "item-ndcg", "tau": 1.0}
