"""The study of ranking losses: equal search spaces, and a run from nothing on tiny data."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites import ranking_losses
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.ranking_losses import (
    FIXED_NEGATIVES,
    QUICK,
    TRIALS_OF,
    Study,
    chosen_rows,
    noise_rows,
    tau_rows,
    trial_rows,
    trial_settings,
    write_suite,
)
from itemfold.experiments.suites.ranking_losses_runs import mean_ranks, run_study, study_of
from itemfold.experiments.suites.results import ResultRow, ResultTable
from itemfold.experiments.suites.store import read_store
from itemfold.experiments.suites.suite import load_suite
from itemfold.losses import LOSSES

TINY = replace(QUICK, losses=("bpr", "softmax", "sl-at-k"))


def test_all_losses_are_searched_with_the_same_effort() -> None:
    study = Study()
    spaces = {loss: trial_settings(loss, study) for loss in LOSSES}
    assert set(study.losses) == {*LOSSES, "softmax-dot"}
    for loss, trials in spaces.items():
        assert len(trials) == 10
        for one, other in zip(trials, spaces["softmax"], strict=True):
            same = ("lr", "l2") if loss in FIXED_NEGATIVES else ("lr", "l2", "n_negatives")
            assert [one["train"][key] for key in same] == [other["train"][key] for key in same]
    taus = [trial["loss"]["tau"] for trial in spaces["softmax"]]
    assert [trial["loss"]["tau"] for trial in spaces["psl"]] == taus  # the same scale
    assert len(set(taus)) == 10
    assert all(0.02 <= tau <= 0.5 for tau in taus)
    products = trial_settings("softmax-dot", study)
    assert {trial["train"]["similarity"] for trial in products} == {"dot"}
    assert [trial["loss"]["tau"] for trial in products] == [
        trial["loss"]["tau"] for trial in spaces["item-log"]
    ]


def test_every_trial_is_a_valid_row(tmp_path: Path) -> None:
    study = Study(data=("yelp2018", "ml-latest-small"))
    path = write_suite(tmp_path, "trials", study, trial_rows(study), seeds=1)
    cells = load_suite(path).cells()
    assert len(cells) == 2 * len(study.losses) * 10
    by_row = {(cell.row, cell.entry.data): cell.config for cell in cells}
    found = by_row["psl-3", "yelp2018"]["train"]
    assert (found["similarity"], found["refit"], found["epochs"]) == ("cosine", False, 80)
    assert by_row["psl-3", "ml-latest-small"]["train"]["epochs"] == 600
    assert {config["train"]["batch_by"] for config in by_row.values()} == {"users"}


def test_the_checks_change_one_thing_of_the_best_settings(tmp_path: Path) -> None:
    study = Study(losses=("softmax", "bpr", "direct-au"), data=("ml-1m",))
    results = [
        {"data": "ml-1m/transductive", "row": f"{loss}-{n}", "seed": 0, "valid": {"ndcg@20": value}}
        for loss in study.losses
        for n, value in ((1, 0.1), (4, 0.3), (5, 0.2))  # the others have failed
    ]
    chosen = chosen_rows(study, results)
    best = trial_settings("softmax", study)[3]
    assert chosen[0]["on"]["ml-1m/transductive"]["train"] == best["train"]
    tau, noise = tau_rows(study, chosen), noise_rows(study, chosen)
    assert [row["name"] for row in tau] == [f"softmax-{n}" for n in (33, 100, 300)]
    path = write_suite(tmp_path, "noise", study, noise, curve="% false negatives")
    suite = load_suite(path)
    assert suite.rows == ("softmax-0", "softmax-5", "softmax-20", "bpr-0", "bpr-5", "bpr-20")
    configs = {cell.row: cell.config for cell in suite.cells()}
    assert configs["bpr-20"]["negatives"] == {"name": "false-negatives", "share": 0.2}
    base = load_suite(write_suite(tmp_path, "study", study, chosen)).cells(rows=["softmax"])[0]
    assert configs["softmax-0"] == base.config  # so its run is reused
    path = write_suite(tmp_path, "tau", study, tau, curve="%")
    taus = [cell.config["loss"]["tau"] for cell in load_suite(path).cells()]
    assert taus == pytest.approx([taus[1] * factor for factor in (0.33, 1, 3)], rel=0.01)


def test_the_study_runs_from_nothing_and_continues(tmp_path: Path) -> None:
    options = Options(device="cpu", results=tmp_path / "results", per_user=tmp_path / "values")
    console = Console(quiet=True)
    assert run_study(TINY, replace(options, time_limit=0), console) is None
    found = run_study(TINY, options, console)
    assert found is not None
    assert found.test is not None
    assert len(found.data) == 2
    assert set(found.ranks) == {"bpr", "softmax", "sl-at-k"}
    assert sum(found.ranks.values()) == 6
    store = read_store(options.home)
    for name, rows in (("tau", {"softmax", "sl-at-k"}), ("noise", {"softmax", "sl-at-k", "bpr"})):
        results = store.results(f"ranking-losses-{name}")
        assert {result["row"].rpartition("-")[0] for result in results} == rows
    before = {path.name: path.read_bytes() for path in options.home.glob("*.jsonl")}
    again = run_study(TINY, options, console)
    assert again is not None
    assert again.ranks == found.ranks
    assert {path.name: path.read_bytes() for path in options.home.glob("*.jsonl")} == before
    # each loss has the trial of each data set that was best on validation
    results = store.results(TRIALS_OF)
    for row in chosen_rows(TINY, results):
        for data, settings in row["on"].items():
            own = {
                result["config"]["train"]["lr"]: result["valid"]["ndcg@20"]
                for result in results
                if result["data"] == data and result["row"].rpartition("-")[0] == row["name"]
            }
            assert settings["train"]["lr"] == max(own, key=lambda lr: own[lr])


def test_the_range_of_a_setting_is_logarithmic_if_it_is_wide() -> None:
    assert ranking_losses._between((0.001, 0.1), 0.5) == 0.01
    assert ranking_losses._between((0.8, 1.4), 0.5) == 1.1


def test_a_suite_keeps_what_it_has_on_other_data(tmp_path: Path) -> None:
    of_food = replace(TINY, data=("food",), losses=("bpr", "softmax"), trials=3)
    both = replace(TINY, data=("electronic",), losses=("bpr",), trials=2)
    results = [
        {"data": f"{data}/transductive", "row": f"{loss}-2", "seed": 0, "valid": {"ndcg@20": 0.1}}
        for data in ("food", "electronic")
        for loss in ("bpr", "softmax")
    ]
    for study in (of_food, both):
        trials = write_suite(tmp_path, "trials", study, trial_rows(study), seeds=1)
        chosen = write_suite(tmp_path, "study", study, chosen_rows(study, results))
    cells = load_suite(chosen).cells()
    assert [(cell.row, cell.entry.data) for cell in cells] == [
        ("bpr", "electronic"),
        ("bpr", "food"),
        ("softmax", "food"),
    ]
    best = trial_settings("bpr", both)[1]["train"]["lr"]
    assert {cell.config["train"]["lr"] for cell in cells if cell.row == "bpr"} == {best}
    found = load_suite(trials)
    assert {cell.entry.data for cell in found.cells()} == {"electronic", "food"}
    assert set(found.rows) == {f"{loss}-{n}" for loss in ("bpr", "softmax") for n in (1, 2, 3)}
    # the best trial is the run with the first seed
    trial = next(c for c in found.cells() if (c.row, c.entry.data) == ("bpr-2", "electronic"))
    assert trial.seeded(0) == cells[0].seeded(0)


def test_another_model_runs_the_better_half_of_the_losses(tmp_path: Path) -> None:
    options = Options(device="cpu", results=tmp_path / "results", per_user=tmp_path / "values")
    console = Console(quiet=True)
    with pytest.raises(ItemfoldError, match="run lightgcn first"):
        study_of(TINY, "mf", options.home)
    found = run_study(TINY, options, console)
    assert found is not None
    before = {path.name: path.read_bytes() for path in options.home.glob("*.jsonl")}
    study = study_of(TINY, "mf", options.home)
    assert set(study.losses) == {name for name, rank in found.ranks.items() if rank <= 2}
    assert study.data == ("synthetic:users=90,items=70/transductive",)
    assert run_study(study, options, console) is not None
    store = read_store(options.home)
    assert {result["model"] for result in store.results("ranking-losses-mf")} == {"mf"}
    assert {result["row"] for result in store.results("ranking-losses-mf")} == set(study.losses)
    trials = {result["id"]: result for result in store.results("ranking-losses-mf-trials")}
    for result in store.results("ranking-losses-mf"):  # the best trial is the run of the first seed
        assert trials[result["id"]]["row"].rpartition("-")[0] == result["row"]
        assert result["config"]["train"]["l2"] == 0
        assert result["config"]["model"]["weight_decay"] > 0
    assert load_suite(options.home / "ranking-losses-mf.toml").title.startswith(
        "Ranking losses on MF"
    )
    assert {name: (options.home / name).read_bytes() for name in before} == before
    # the selection stays when results change
    (options.home / "ranking-losses.jsonl").unlink()
    assert study_of(TINY, "mf", options.home) == study


def test_a_model_that_cannot_score_unseen_users_is_rejected_there(tmp_path: Path) -> None:
    study = replace(TINY, data=("ml-latest-small/inductive",))
    with pytest.raises(ItemfoldError, match="mf cannot score unseen users: every user vector"):
        study_of(study, "mf", tmp_path, ("bpr",))


def test_trials_alternate_between_losses() -> None:
    names = [row["name"] for row in trial_rows(TINY)]
    assert names == [f"{loss}-{n}" for n in (1, 2) for loss in TINY.losses]


def test_losses_are_compared_on_the_seeds_that_all_have() -> None:
    """The second split is easy: the mean over both would favour the loss that has it."""

    def row(name: str, *values: float) -> ResultRow:
        cell = SimpleNamespace(row=name)
        results = [{"seed": n, "test": {"ndcg@20": v}} for n, v in enumerate(values)]
        return ResultRow(cell, results)  # type: ignore[arg-type]

    entry = Entry("ml-1m", "transductive")
    table = ResultTable(entry, [row("a", 0.2, 0.9), row("b", 0.3)], {}, [], [])
    found = mean_ranks([table])
    assert found is not None
    assert found.ranks == {"b": 1.0, "a": 2.0}
    assert found.test is None
