"""Runs that version 0.1 wrote, before settings and modules had their present names."""

import json
import shutil
import warnings
from pathlib import Path

import pytest

import itemfold as ir
from itemfold.experiments.build import run_config
from itemfold.experiments.stored import split_of, stored_config
from itemfold.settings.resolve import resolve

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_an_old_run_recommends_what_it_recommended_then() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # no notes about old names
        recommender = ir.Recommender.load(FIXTURES / "run-0.1")
    expected = json.loads((FIXTURES / "run-0.1" / "expected.json").read_text())
    found = recommender.recommend(history=["3", "17", "42"], k=5, explain=True)
    assert [pick.item for pick in found] == [pick["item"] for pick in expected["items"]]
    for pick, then in zip(found, expected["items"], strict=True):
        assert pick.score == pytest.approx(then["score"], rel=1e-6)
        shares = {reason.item: reason.share for reason in pick.reasons}
        assert shares == pytest.approx({r["item"]: r["share"] for r in then["reasons"]}, rel=1e-5)


def test_an_old_run_is_evaluated_to_the_figures_it_stored() -> None:
    run = ir.Run.load(FIXTURES / "run-0.1")
    found = ir.evaluate(run, split_of(run), metrics=list(run.metrics["test"]))
    assert found.metrics == pytest.approx(run.metrics["test"], rel=1e-6)
    assert run.config["train"]["n_negatives"] == 50  # under its current name
    assert run.config["split"]["strategy"] == "users"


def test_an_old_run_that_was_interrupted_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "unfinished-0.1", folder)
    run = run_config(stored_config(folder), folder, resume=True)
    assert run.metrics["best_epoch"] == 10
    assert run.metrics["test"]["ndcg@20"] == pytest.approx(0.37382084822701434, rel=1e-3)


def test_names_of_settings_of_0_1_are_no_longer_taken() -> None:
    split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
    with pytest.raises(ir.ItemfoldError, match=r"'train' has no setting 'sampled'.*n_negatives"):
        ir.train(split, ir.models.LightGCN(dim=4), epochs=1, sampled=7, refit=False)
    with pytest.raises(TypeError, match="by"):
        ir.TrainConfig(by="interactions")  # type: ignore[call-arg]


OLD = {"dim": 4, "layers": 1, "linear_l2": 20.0, "linear_items": 40, "keep": 9}


def test_names_of_a_hybrids_settings_of_0_2_still_work_with_a_note() -> None:
    split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
    with pytest.warns(FutureWarning, match="'linear_l2' is now 'linear.l2'"):
        old = ir.models.Hybrid(**OLD)
    parts = {"gnn": {"dim": 4, "layers": 1}, "linear": {"l2": 20.0, "items": 40, "keep": 9}}
    new = ir.models.Hybrid(**parts)  # type: ignore[arg-type]
    assert old.record() == new.record()
    with pytest.warns(FutureWarning, match="'dim' is now 'gnn.dim'"):
        found = resolve({"model": {"name": "hybrid", **OLD}})
    assert found.record()["model"] == {"name": "hybrid", **new.record()}
    run = ir.train(split, old, epochs=1)
    assert run.config["model"]["linear"]["l2"] == 20.0


def test_an_unknown_setting_of_a_hybrid_is_rejected() -> None:
    with pytest.raises(ir.ItemfoldError, match="'Hybrid' has no setting 'depth'; its settings are"):
        ir.models.Hybrid(depth=3)
