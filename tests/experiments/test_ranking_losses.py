"""The study of ranking losses: equal search spaces, and a run from nothing on tiny data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites import ranking_losses
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.ranking_losses import (
    QUICK,
    Study,
    chosen_rows,
    compare,
    run_study,
    trial_rows,
    trial_settings,
    with_folders,
    write_suite,
)
from itemfold.experiments.suites.store import read_store
from itemfold.experiments.suites.suite import load_suite
from itemfold.losses import LOSSES

TINY = replace(QUICK, losses=("bpr", "softmax", "sl-at-k"))


def test_all_losses_are_searched_with_the_same_effort() -> None:
    study = Study()
    spaces = {loss: trial_settings(loss, study) for loss in LOSSES}
    assert set(study.losses) == set(LOSSES)
    for loss, trials in spaces.items():
        assert len(trials) == 10
        for one, other in zip(trials, spaces["softmax"], strict=True):
            same = ("lr", "l2") if loss == "direct-au" else ("lr", "l2", "n_negatives")
            assert [one["train"][key] for key in same] == [other["train"][key] for key in same]
    taus = [trial["loss"]["tau"] for trial in spaces["softmax"]]
    assert [trial["loss"]["tau"] for trial in spaces["psl"]] == taus  # the same scale
    assert len(set(taus)) == 10
    assert all(0.02 <= tau <= 0.5 for tau in taus)


def test_data_without_a_name_is_a_folder_of_the_data_root(tmp_path: Path) -> None:
    study = Study(data=("ml-1m", "food/inductive", "synthetic:users=9,items=9"))
    with pytest.raises(ItemfoldError, match="'data_root' must be a folder that holds food/train"):
        with_folders(study, tmp_path)
    (tmp_path / "food").mkdir()
    (tmp_path / "food" / "train.txt").write_text("0 1 2")
    found = with_folders(study, tmp_path).data
    assert found == ("ml-1m", f"{tmp_path}/food/inductive", "synthetic:users=9,items=9")
    assert Entry.parse(found[1]).protocol == "inductive"


def test_every_trial_is_a_valid_row(tmp_path: Path) -> None:
    study = replace(Study(models=("lightgcn", "mf")), data=("ml-1m",))
    path = write_suite(tmp_path, "trials", study, trial_rows(study), seeds=1)
    cells = load_suite(path).cells()
    assert len(cells) == 2 * len(LOSSES) * 10
    by_row = {cell.row: cell.config for cell in cells}
    assert by_row["mf-psl-3"]["loss"]["name"] == "psl"
    assert by_row["psl-3"]["train"]["similarity"] == "cosine"
    assert not by_row["psl-3"]["train"]["refit"]


def test_the_study_runs_from_nothing_and_continues(tmp_path: Path) -> None:
    options = Options(device="cpu", results=tmp_path / "results", per_user=tmp_path / "values")
    console = Console(quiet=True)
    found = run_study(TINY, options, console)
    assert sorted(found.ranks.tolist())[0] >= 1
    stored = json.loads((options.home / "ranking-losses-ranks.json").read_text())
    assert set(stored["ranks"]) == {"bpr", "softmax", "sl-at-k"}
    before = {path.name: path.read_bytes() for path in options.home.glob("*.jsonl")}
    again = run_study(TINY, options, console)
    assert again.ranks.tolist() == found.ranks.tolist()
    assert {path.name: path.read_bytes() for path in options.home.glob("*.jsonl")} == before
    # each loss has the trial of each data set that was best on validation
    results = read_store(options.home).results("ranking-losses-trials")
    for row in chosen_rows(TINY, options.home):
        for data, settings in row["on"].items():
            own = {
                result["config"]["train"]["lr"]: result["valid"]["ndcg@20"]
                for result in results
                if result["data"] == data and result["row"].rpartition("-")[0] == row["name"]
            }
            assert settings["train"]["lr"] == max(own, key=lambda lr: own[lr])
    more = replace(TINY, losses=(*TINY.losses, "warp"))
    with pytest.raises(ItemfoldError, match=r"warp on synthetic.* lacks trials: run the study"):
        chosen_rows(more, options.home)
    with pytest.raises(ItemfoldError, match="the study is not complete, run it again: warp on"):
        compare(more, options.home, console)


def test_the_range_of_a_setting_is_logarithmic_if_it_is_wide() -> None:
    assert ranking_losses._between((0.001, 0.1), 0.5) == 0.01
    assert ranking_losses._between((0.8, 1.4), 0.5) == 1.1
