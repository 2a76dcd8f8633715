"""Suites: what a file may contain, and equal results whatever interrupts a run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.stats
import torch
from rich.console import Console

from itemfold.errors import ItemfoldError
from itemfold.evaluation.significance import crossed_test
from itemfold.experiments.build import make_data, make_split
from itemfold.experiments.suites import FOLDER
from itemfold.experiments.suites.jobs import SuiteJob
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.reproduce import SuiteOutcome, run_suite, run_tables
from itemfold.experiments.suites.store import Line, identity, path_of, read_store
from itemfold.experiments.suites.suite import Suite, load_suite, row_settings
from itemfold.experiments.suites.user_values import UserValues, read_values, values_path
from itemfold.models import MODELS
from itemfold.models.base import Kind
from itemfold.settings.changes import changes
from itemfold.training.interrupt import Interrupt

TINY = "synthetic:users=60,items=50,interactions=900"
SHIPPED = sorted(path.stem for path in FOLDER.glob("*.toml"))


def make(folder: Path, text: str, name: str = "own") -> Suite:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return load_suite(path)


def tiny(folder: Path, rows: str = "", epochs: int = 3) -> Suite:
    return make(
        folder,
        f"""
        data = ["{TINY}", "{TINY}/inductive"]
        columns = ["recall@20", "ndcg@20"]
        seeds = 2
        [defaults]
        model = {{ name = "lightgcn", dim = 4, layers = 1 }}
        train = {{ epochs = {epochs}, eval_every = 1, n_negatives = 8, refit = false }}
        [[row]]
        name = "bpr"
        loss = "bpr"
        [[row]]
        name = "item"
        {rows}
        """,
    )


def run(suite: Suite, folder: Path, **options: Any) -> SuiteOutcome:
    quiet = Console(file=(folder / "log").open("a"), width=200)
    chosen = {"results": folder / "results", "per_user": folder / "values", **options}
    return run_suite(suite, Options(**chosen), quiet)


def results(folder: Path, suite: str = "own") -> dict[tuple[str, str, int], dict[str, Any]]:
    """All results without what depends on time and machine."""
    out = {}
    store = read_store(folder / "results")
    for content in store.results(suite) if suite in store.files else ():
        del content["seconds"], content["hardware"]
        out[content["data"], content["row"], content["seed"]] = content
    return out


def paired_tests_of(folder: Path, data: str, suite: str = "own") -> Line:
    return read_store(folder / "results").tests(suite, data)


def users_of(folder: Path, key: tuple[str, str, int], suite: str = "own") -> UserValues:
    """The per-user values of a run."""
    found = read_values(values_path(folder / "values", results(folder, suite)[key]["id"]))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite run from start to end by one process."""
    folder = tmp_path_factory.mktemp("finished")
    outcome = run(tiny(folder), folder)
    assert (outcome.ran, outcome.failed, outcome.left) == (8, {}, 0)
    return folder


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_suite_names_components_and_settings_that_exist(name: str) -> None:
    suite = load_suite(name)
    assert suite.title
    assert suite.description
    assert suite.cells()
    for cell in suite.cells():
        assert cell.seeds >= 1
        assert changes(cell.seeded(0), cell.seeded(0)) == []


KNOWN = {  # of the paper's two tables of the state of the art
    "transductive": "mf cml enmf deepwalk line node2vec mult-vae ngcf lr-gccf nia-gcn lightgcn "
    "dgcf sgl simgcl xsimgcl adap-tau neural-ndcg mixgcf item",
    "inductive": "mult-vae gcn-bpr gat-bpr gin-bpr lightgcn neural-ndcg mixgcf item",
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_system_of_the_papers_tables_has_a_row_with_its_figures(name: str) -> None:
    suite = load_suite(name)
    assert set(KNOWN[name].split()) <= set(suite.rows)
    with_figures = {"ml-1m", "yelp2018", "amazon-book", "ml-latest-small"}
    for cell in suite.cells():
        if cell.row in KNOWN[name].split() and cell.entry.data in with_figures:
            assert len(cell.paper) == 2, (cell.row, cell.entry)
            assert cell.seeds == (5 if cell.entry.data == "ml-latest-small" else 3)


@pytest.mark.parametrize("name", sorted({*SHIPPED} - {"smoke", "negatives"}))
def test_every_table_has_ease_and_a_version_for_a_few_minutes(name: str) -> None:
    suite = load_suite(name)
    models = {cell.config["model"]["name"] for cell in suite.cells()}
    assert "ease" in models
    if name != "unseen":
        cells = suite.cells(["synthetic"])
        assert {cell.seeds for cell in cells} == {1}
        kinds = [MODELS[cell.config["model"]["name"]].kind for cell in cells]
        descended = [
            cell for cell, kind in zip(cells, kinds, strict=True) if kind is not Kind.CLOSED_FORM
        ]
        assert max(cell.config["train"]["epochs"] for cell in descended) <= 100


def test_every_model_is_in_the_table_of_systems_or_of_the_default() -> None:
    cells = [*load_suite("systems").cells(), *load_suite("hybrid").cells()]
    for protocol in ("transductive", "inductive"):
        found = {c.config["model"]["name"] for c in cells if c.entry.protocol == protocol}
        able = {n for n, m in MODELS.items() if m.inductive or protocol == "transductive"}
        assert found == able


def test_one_name_is_one_configuration_everywhere() -> None:
    """A row name on a data set means the same settings in every shipped suite."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in SHIPPED:
        for cell in load_suite(name).cells():
            places = found.setdefault((cell.row, cell.entry.key), {})
            places[name] = identity(cell.seeded(0))
    different = {key: places for key, places in found.items() if len(set(places.values())) > 1}
    assert different == {}
    assert len(found["ease", "ml-latest-small/inductive"]) > 5


@pytest.mark.parametrize("name", SHIPPED)
def test_no_two_rows_of_a_suite_are_the_same_run(name: str) -> None:
    """An override that another one replaces leaves a row that compares a run with itself."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in load_suite(name).cells():
        found.setdefault((cell.entry.key, identity(cell.seeded(0))), []).append(cell.row)
    assert [rows for rows in found.values() if len(rows) > 1] == []


@pytest.mark.parametrize(
    "row",
    [
        "inductive/ease",
        "inductive/item-log",
        "inductive/item-log@ml-latest-small",
        "systems/item-log",
        "transductive/item-log",
        "transductive/item-log@ml-1m",
    ],
)
def test_the_rows_that_the_readme_names_exist(row: str) -> None:
    assert row_settings(row, "synthetic", None)["model"]["name"] in ("ease", "lightgcn")


def test_later_overrides_win_and_defaults_fit_the_component(tmp_path: Path) -> None:
    suite = make(
        tmp_path,
        f"""
        data = ["{TINY}", "ml-1m/inductive"]
        seeds = 3
        [defaults]
        loss = {{ tau = 2.0 }}
        train = {{ lr = 0.5, l2 = 0.1 }}
        on.inductive = {{ train = {{ l2 = 0.2 }}, seeds = 5 }}
        on.ml-1m = {{ train = {{ lr = 0.25 }}, data = {{ k_core = 3 }} }}
        [[row]]
        name = "plain"
        model = "lightgcn"
        [[row]]
        name = "own"
        model = "lightgcn"
        loss = "bpr"
        train = {{ lr = 0.125 }}
        on."ml-1m/inductive".train = {{ l2 = 0.3 }}
        """,
    )
    cells = {(cell.row, cell.entry.data): cell for cell in suite.cells()}
    plain, plain_ml = cells["plain", TINY], cells["plain", "ml-1m"]
    own, own_ml = cells["own", TINY], cells["own", "ml-1m"]
    found = [(c.config["train"]["lr"], c.config["train"]["l2"], c.seeds) for c in cells.values()]
    # for "own" on ml-1m, the learning rate of the data set overrides the row's general one
    assert found == [(0.5, 0.1, 3), (0.125, 0.1, 3), (0.25, 0.2, 5), (0.25, 0.3, 5)]
    assert plain.config["loss"] == {"name": "item-ndcg", "tau": 2.0}
    assert own.config["loss"] == {"name": "bpr"}  # it has no temperature
    assert own.config["train"]["batch_by"] == "interactions"  # the default of BPR
    assert plain.config["split"]["strategy"] == "interactions"
    assert plain_ml.config["split"]["strategy"] == own_ml.config["split"]["strategy"] == "users"
    assert plain_ml.config["data"] == {"k_core": 3, "data": "ml-1m"}
    assert plain.seeded(2)["train"]["seed"] == plain.seeded(2)["split"]["seed"] == 2


def test_figures_belong_to_an_entry_under_the_names_that_results_have(tmp_path: Path) -> None:
    suite = make(
        tmp_path,
        """
        data = ["yelp2018", "yelp2018/inductive", "ml-1m"]
        source = "Somebody 2020"
        [[row]]
        name = "a"
        paper.yelp2018 = { "ndcg@20" = 0.05 }
        paper."ml-1m/transductive" = { "NDCG@20" = 0.25 }
        band."yelp2018/inductive" = { "MAP@20" = [0.08, 0.09] }
        """,
    )
    one, two, three = suite.cells()
    assert [cell.paper for cell in (one, two, three)] == [{"ndcg@20": 0.05}, {}, {"ndcg@20": 0.25}]
    assert [cell.band for cell in (one, two)] == [{}, {"ap@20": (0.08, 0.09)}]
    assert one.source == "Somebody 2020"


ROW = '[[row]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"at least one \[\[row\]\]"),
        ("sedes = 3\n" + ROW, "a suite has no key 'sedes'; known keys: .*seeds"),
        (ROW + "modle = 'mf'", "row 'a' has no key 'modle'; known keys: .*model"),
        (ROW + "model = 'gnc'", "'model' must be one of hybrid"),
        (ROW + "model = {name = 'mf', layers = 2}", "has no setting 'layers'; its .*dim"),
        (ROW + "train = {learning_rate = 1}", "has no setting 'learning_rate'; its .*lr"),
        (ROW + "train = {lr = -1}", "row 'a' on synthetic/transductive: 'lr' must be a positive"),
        (ROW + "train = {epochs = 'ten'}", "'train.epochs' must be a whole number"),
        ("[defaults.train]\nepoch = 3\n" + ROW, "has 'epoch', which no row has .*epochs"),
        ("[defaults]\nseeds = 2\n" + ROW, r"\[defaults\] has no key 'seeds'"),
        (ROW + "on.gowalla.train = {lr = 1}", "'on' 'gowalla', which is none of"),
        (ROW + "on.synthetic = {tau = 1}", "on synthetic has no key 'tau'"),
        (ROW + "data = 'gowalla'", "unknown data 'gowalla'"),
        (ROW + "protocol = 'both'", "'protocol' must be one of transductive, inductive"),
        (ROW + "seeds = 0", "'seeds' must be a positive integer, got 0"),
        (ROW + "paper.synthetic = {'ndcg@20' = 5.88}", "must be a fraction"),
        (ROW + "band.synthetic = {'ndcg@20' = 0.5}", "must be two fractions"),
        (ROW + "tuned.synthetic = 1.5", "'tuned.synthetic' must be a whole number of at least 0"),
        (ROW + "tuned = 3", "'tuned' must be a table by data set, got 3"),
        (ROW + "tuned.nowhere = 3", "has 'tuned' for 'nowhere', not one of its data sets"),
        (ROW + "paper.yelp = {'ndcg@20' = 0.1}", "'paper' for 'yelp'"),
        (ROW + "model = 'mf'\nprotocol = 'inductive'", "cannot be used in the inductive protocol"),
        (ROW + ROW, "different names"),
        ('baseline = "b"\n' + ROW, "'baseline' must be one of a, got 'b'"),
        ('columns = ["ndgc@20"]\n' + ROW, "ndgc"),
        ('plot = ["ap"]\n' + ROW, "'plot' must be one of capped_recall@20, .*, got 'ap'"),
        ("cost = 1\n" + ROW, "'cost' must be true or false, got 1"),
        (ROW + 'baseline = "b"', "'baseline' must be one of a, got 'b'"),
    ],
)
def test_mistakes_are_reported_with_the_valid_names(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ItemfoldError, match=message):
        make(tmp_path, "" if not text else 'data = "synthetic"\n' + text)


def test_an_unknown_suite_lists_the_shipped_ones() -> None:
    with pytest.raises(ItemfoldError, match=r"one of .*negatives, .*smoke, .* got 'negative'"):
        load_suite("negative")


def test_other_data_sets_can_be_requested() -> None:
    suite = load_suite("negatives")
    rows = len(suite.rows)
    asked = suite.cells(["yelp2018/inductive"])
    assert [cell.entry for cell in asked] == [Entry("yelp2018", "inductive")] * rows
    both = suite.cells(["yelp2018"], ["band"])
    assert [cell.entry.protocol for cell in both] == ["transductive", "inductive"]
    assert {cell.entry.key for cell in suite.cells(["synthetic"])} == {
        "synthetic/transductive",
        "synthetic/inductive",
    }
    with pytest.raises(ItemfoldError, match="unknown data 'gowalla'"):
        suite.cells(["gowalla"])
    with pytest.raises(ItemfoldError, match=r"'rows' must be one of uniform.* got 'ppr'"):
        suite.cells(rows=["ppr"])


def test_a_setting_added_later_leaves_results_valid(tmp_path: Path) -> None:
    now = tiny(tmp_path).cells()[1].seeded(0)
    older = {name: dict(section) for name, section in now.items()}
    del older["train"]["ema_decay"]  # as if it did not exist then; now it has its default
    assert changes(older, now) == []
    assert changes({**older, "loss": {**older["loss"], "tau": 7.0}}, now) == ["loss.tau"]
    now["train"]["ema_decay"] = 0.5
    assert changes(older, now) == ["train.ema_decay"]


def test_a_result_records_how_it_was_made(finished: Path) -> None:
    key = (f"{TINY}/inductive", "item", 1)
    found = read_store(finished / "results").result("own", key)
    assert found is not None
    assert (found["row"], found["seed"], found["protocol"]) == ("item", 1, "inductive")
    assert found["config"]["split"]["seed"] == found["config"]["train"]["seed"] == 1
    assert found["id"] == identity(found["config"])
    assert len(found["dataset"]["fingerprint"]) == 16
    assert {"device", "cpu", "cores", "torch"} <= set(found["hardware"])
    assert 0 < found["best_epoch"] <= found["epochs"] == 3
    values = users_of(finished, key)
    assert values.run == found["id"]
    assert values.metrics["ndcg@20"].mean() == pytest.approx(found["test"]["ndcg@20"], abs=1e-6)
    assert path_of(finished / "results", "own").stat().st_size < 8 * 2800
    assert not any((finished / "values/unfinished").iterdir())


def test_paired_tests_are_over_users_and_seeds(finished: Path) -> None:
    data = f"{TINY}/transductive"
    found = paired_tests_of(finished, data)
    rows: dict[str, dict[Any, dict[int, float]]] = {"bpr": {}, "item": {}}
    for row, users in rows.items():
        for seed in (0, 1):
            kept = users_of(finished, (data, row, seed))
            for user, value in zip(kept.users, kept.metrics["ndcg@20"], strict=True):
                users.setdefault(user, {})[seed] = float(value)
    differences = [
        [
            rows["item"][user].get(seed, np.nan) - rows["bpr"][user].get(seed, np.nan)
            for user in sorted(rows["bpr"])
        ]
        for seed in (0, 1)
    ]
    expected = crossed_test(differences).p_t
    test = found["rows"]["item"]["ndcg@20"]
    assert test["seeds"] == 2
    assert test["uncorrected"]["p_t"] == pytest.approx(expected)
    means = np.nanmean(differences, axis=0)  # Wilcoxon's test is over users alone
    wilcoxon = scipy.stats.wilcoxon(means[np.isfinite(means)]).pvalue
    assert test["uncorrected"]["p_wilcoxon"] == pytest.approx(wilcoxon)
    other = found["rows"]["item"]["recall@20"]["uncorrected"]["p_t"]
    worse = max(expected, other)
    assert test["p_t"] == pytest.approx(
        min(1, max(2 * min(expected, other), worse)) if expected == worse else min(1, 2 * expected)
    )


def test_a_row_is_tested_against_its_own_baseline(tmp_path: Path) -> None:
    rows = """
        baseline = "item"  # itself: not tested
        [[row]]
        name = "other"
        loss = { tau = 0.5 }
        baseline = "item"
    """
    suite = tiny(tmp_path, rows, epochs=1)
    own = suite.path.read_text().replace('loss = "bpr"', 'loss = "bpr"\nbaseline = "bpr"')
    suite = make(tmp_path, own)
    data = f"{TINY}/inductive"
    run(suite, tmp_path, datasets=[data])
    found = paired_tests_of(tmp_path, data)["rows"]
    assert set(found) == {"other"}
    assert found["other"]["baseline"] == "item"
    means = {
        row: [users_of(tmp_path, (data, row, seed)).metrics["ndcg@20"].mean() for seed in (0, 1)]
        for row in ("item", "other")
    }
    differences = np.subtract(means["other"], means["item"])
    assert found["other"]["ndcg@20"]["difference"] == pytest.approx(np.mean(differences))


def test_columns_of_the_whole_list_are_evaluated_too(tmp_path: Path) -> None:
    suite = make(
        tmp_path,
        f"""
        data = ["{TINY}", "{TINY}/inductive"]
        columns = ["ap", "ndcg", "recall@5", "ndcg@20"]
        [[row]]
        name = "popularity"
        model = "popularity"
        """,
    )
    assert run(suite, tmp_path).ran == 2
    for stored in results(tmp_path).values():
        split = make_split(stored["config"], make_data(stored["config"]))
        split = split.refit() if stored["refit"] else split
        model = MODELS["popularity"]()
        model.setup(split.train, inductive=False, generator=torch.Generator())
        model.solve(split.train)
        scores = model.scores(split.test.history, split.test.users)
        scores[torch.from_numpy(split.test.history.toarray() > 0)] = -torch.inf
        expected = []
        for row, target in zip(scores.numpy(), split.test.target.toarray(), strict=True):
            order = np.argsort(-row, kind="stable")
            ranks = np.flatnonzero(target[order]) + 1
            expected.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
        assert stored["test"]["ap"] == pytest.approx(np.mean(expected))
        assert stored["test"]["recall@5"] <= stored["test"]["recall@20"]


def test_finished_runs_are_skipped_until_their_settings_change(finished: Path) -> None:
    path = path_of(finished / "results", "own")
    before, changed = path.read_bytes(), path.stat().st_mtime_ns
    again = run(load_suite(finished / "own.toml"), finished)
    assert (again.done, again.ran) == (8, 0)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, changed)
    text = (finished / "own.toml").read_text()
    other = make(finished, text.replace("n_negatives = 8", "n_negatives = 9"))
    stale = run(other, finished, rows=["item"], time_limit=0)
    assert (stale.done, stale.left) == (0, 4)
    make(finished, text)


def test_a_run_whose_settings_changed_is_made_again(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "results", tmp_path / "results")
    text = (finished / "own.toml").read_text().replace("n_negatives = 8", "n_negatives = 9")
    one = {"datasets": [f"{TINY}/inductive"], "rows": ["item"], "seeds": 1}
    assert run(make(tmp_path, text), tmp_path, **one).ran == 1
    key = (f"{TINY}/inductive", "item", 0)
    before, now = results(finished), results(tmp_path)
    assert now[key]["config"]["train"]["n_negatives"] == 9
    assert {k: v for k, v in now.items() if k != key} == {
        k: v for k, v in before.items() if k != key
    }
    runs = read_store(tmp_path / "results").files["own"].runs
    assert before[key]["id"] not in runs  # nothing refers to it any more
    assert len(runs) == 8


def test_a_column_added_to_a_suite_is_computed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "results", tmp_path / "results")
    text = (finished / "own.toml").read_text()
    text = text.replace('"ndcg@20"]', '"MAP@5", "coverage@20", "NDCG@20"]')
    suite = make(tmp_path, text)
    one = {"datasets": [f"{TINY}/inductive"], "rows": ["bpr"], "seeds": 1}
    assert run(suite, tmp_path, time_limit=0).left == 8
    assert run(suite, tmp_path, **one).ran == 1
    again = run(suite, tmp_path, **one)
    assert (again.done, again.ran) == (1, 0)
    key = (f"{TINY}/inductive", "bpr", 0)
    before, now = results(finished)[key]["test"], results(tmp_path)[key]["test"]
    assert now == {**before, "ap@5": now["ap@5"], "coverage@20": now["coverage@20"]}


def test_the_copy_of_a_suite_follows_the_original(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "results", tmp_path / "results")
    text = 'title = "Another"\n' + (finished / "own.toml").read_text()
    outcome = run(make(tmp_path, text), tmp_path)
    assert (outcome.done, outcome.ran) == (8, 0)
    assert load_suite(tmp_path / "results/own.toml").title == "Another"


def test_tests_are_not_rewritten_where_values_are_missing(finished: Path) -> None:
    suite = load_suite(finished / "own.toml")
    before = read_store(finished / "results").files["own"].tests
    assert len(before) == 2
    run(suite, finished, per_user=finished / "nowhere")
    assert read_store(finished / "results").files["own"].tests == before
    assert "the paired tests are left unchanged" in (finished / "log").read_text()


def test_a_run_that_two_suites_share_is_made_once(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "results", tmp_path / "results")
    shutil.copytree(finished / "values", tmp_path / "values")
    text = (finished / "own.toml").read_text().replace('name = "item"', 'name = "ours"')
    twin = make(tmp_path, text, name="twin")
    outcome = run(twin, tmp_path)
    assert (outcome.done, outcome.ran) == (8, 0)
    data = f"{TINY}/inductive"
    reused = results(tmp_path, "twin")[data, "ours", 1]
    first = results(tmp_path)[data, "item", 1]
    assert reused == {**first, "suite": "twin", "row": "ours"}
    files = read_store(tmp_path / "results").files
    assert (len(files["own"].runs), len(files["twin"].runs), len(files["twin"].rows)) == (8, 0, 8)
    tests = [paired_tests_of(tmp_path, data, name) for name in ("own", "twin")]
    assert tests[0]["rows"]["item"] == tests[1]["rows"]["ours"]
    without = make(tmp_path, text, name="without")  # its per-user values are elsewhere
    assert run(without, tmp_path, per_user=tmp_path / "nowhere").ran == 0
    assert results(tmp_path, "without")[data, "ours", 1] == {**reused, "suite": "without"}
    assert read_store(tmp_path / "results").files["without"].tests == {}
    other = make(tmp_path, text.replace("n_negatives = 8", "n_negatives = 9"), name="other")
    assert run(other, tmp_path, time_limit=0).left == 8
    more = make(tmp_path, text.replace('"ndcg@20"]', '"ap", "ndcg@20"]'), name="more")
    assert run(more, tmp_path, time_limit=0).left == 8  # those have no AP
    timed = make(tmp_path, "cost = true\n" + text, name="timed")
    assert run(timed, tmp_path, time_limit=0).left == 8
    # what is measured again keeps its own time, and its figures are still stored once
    another = {"device": "CPU", "cpu": "another one", "cores": 1, "jobs": 1, "torch": "2"}
    with mock.patch("itemfold.experiments.suites.worker.hardware", return_value=another):
        assert run(timed, tmp_path, datasets=[data], rows=["bpr"], seeds=1).ran == 1
    files = read_store(tmp_path / "results").files
    assert files["timed"].runs == {}
    (row,) = files["timed"].rows.values()
    assert {"seconds", "hardware"} <= set(row)
    assert row["hardware"] == another
    again = results(tmp_path, "timed")[data, "bpr", 0]
    assert again == {**results(tmp_path)[data, "bpr", 0], "suite": "timed"}


def test_all_is_everything_but_the_smoke_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    asked: dict[str, list[str] | None] = {}
    module = "itemfold.experiments.suites.reproduce."

    def run_none(suite: Suite, options: Options, _: Console) -> SuiteOutcome:
        called.append(suite.name)
        asked[suite.name] = None if options.rows is None else list(options.rows)
        return SuiteOutcome()

    monkeypatch.setattr(module + "run_suite", run_none)
    others = {"datasets": "count_datasets", "qualitative": "write_example_lists"}
    for name, function in others.items():
        monkeypatch.setattr(module + function, lambda *_, name=name, **__: called.append(name))
    quiet = Console(quiet=True)
    assert run_tables("all", Options(results=tmp_path), quiet)
    assert sorted(called) == sorted({*SHIPPED, "datasets", "qualitative"} - {"smoke"})
    assert set(asked.values()) == {None}
    # with rows: the suites that have one of them, each with those it has, and no other table
    called.clear(), asked.clear()
    chosen = ["gat-bpr", "band"]
    assert run_tables("all", Options(results=tmp_path, rows=chosen), quiet)
    suites = [load_suite(name) for name in SHIPPED if name != "smoke"]
    own = {suite.name: [row for row in chosen if row in suite.rows] for suite in suites}
    assert asked == {name: rows for name, rows in own.items() if rows}
    assert sorted(called) == sorted(asked)
    assert len(called) > 1


def test_after_the_time_limit_nothing_starts(tmp_path: Path) -> None:
    outcome = run(tiny(tmp_path), tmp_path, time_limit=0)
    assert (outcome.ran, outcome.left) == (0, 8)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_absent_data_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("itemfold.data.named.download._stream", _no_network)
    suite = make(tmp_path, f'data = ["amazon-book", "{TINY}"]\n' + ROW + "train = {epochs = 1}")
    outcome = run(suite, tmp_path)
    assert outcome.ran == 1
    assert "could not be downloaded" in outcome.absent["amazon-book/transductive"]
    assert "skipped: 'amazon-book'" in (tmp_path / "log").read_text()


def _no_network(*_: Any) -> None:
    raise OSError("no network")


def test_a_failed_run_is_reported_and_tried_again(tmp_path: Path) -> None:
    suite = make(tmp_path, f'data = "{TINY}"\n' + ROW + "train = {epochs = 2, lr = 1e38}")
    outcome = run(suite, tmp_path)
    assert "the loss became" in outcome.failed[f"{TINY}/transductive a seed 0"]
    assert not results(tmp_path)
    assert run(suite, tmp_path).failed


def test_an_unexpected_error_fails_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = 'model = "popularity"\n'
    suite = make(tmp_path, f'data = "{TINY}"\n' + ROW + row + ROW.replace('"a"', '"b"') + row)
    train = sys.modules["itemfold.experiments.suites.worker"]._train

    def out_of_memory(job: SuiteJob) -> Any:
        if job.cell.row == "a":
            raise MemoryError("out of memory")
        return train(job)

    monkeypatch.setattr("itemfold.experiments.suites.worker._train", out_of_memory)
    outcome = run(suite, tmp_path)
    assert outcome.ran == 1
    assert outcome.failed == {f"{TINY}/transductive a seed 0": "MemoryError: out of memory"}
    assert [result["row"] for result in results(tmp_path).values()] == ["b"]


def test_an_interrupted_run_continues_where_it_stopped(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = []

    class Impatient(Interrupt):
        """Counts epochs that go on; Ctrl-C comes in the second one."""

        def check(self) -> None:
            epochs.append(1)
            self.number = signal.SIGINT if len(epochs) == 1 else 0

    suite = tiny(tmp_path)
    monkeypatch.setattr(sys.modules["itemfold.training.loop"], "Interrupt", Impatient)
    with pytest.raises(KeyboardInterrupt):
        run(suite, tmp_path)
    assert not results(tmp_path)
    assert list((tmp_path / "values/unfinished").glob("*/state.pt"))
    run(suite, tmp_path, datasets=[f"{TINY}/transductive"], rows=["bpr"], seeds=1)
    assert len(epochs) == 2  # the first before, the third after
    ((key, own),) = results(tmp_path).items()
    assert own == results(finished)[key]


def test_workers_killed_midway_leave_whole_lines_and_the_same_results(
    finished: Path, tmp_path: Path
) -> None:
    """Two workers, their parent killed after the first result; another process does the rest."""
    tiny(tmp_path)
    command = [sys.executable, "-m", "itemfold", "reproduce", str(tmp_path / "own.toml")]
    command += ["--jobs", "2", "--results", str(tmp_path / "results")]
    command += ["--per-user", str(tmp_path / "values")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while not results(tmp_path) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    some = results(tmp_path)  # each of them complete, or reading would have failed
    assert some
    outcome = run(load_suite(tmp_path / "own.toml"), tmp_path)
    assert outcome.done + outcome.ran == 8
    assert results(tmp_path) == results(finished)
