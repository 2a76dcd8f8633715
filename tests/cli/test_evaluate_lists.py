"""`itemfold evaluate --lists`: the lists of one system on the split of another, or of data."""

import json

import polars as pl
import pytest
from command import call

DATA = "synthetic:users=120,items=60,interactions=2000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name in ("ease", "popularity"):
        call("train", DATA, "--model", name, "--out", root / name)
    call("recommend", root / "ease", "--all", "--out", root / "theirs.csv", "--k", "20")
    return root


def test_lists_have_the_metrics_of_the_run_that_made_them(folder):
    stored = json.loads((folder / "ease/metrics.json").read_text())["test"]
    for target in (folder / "popularity", DATA):
        lists = ("--lists", folder / "theirs.csv", "--metrics", "ndcg@20,hit@20")
        found = json.loads(call("evaluate", target, *lists, "--json").stdout)
        assert found["metrics"]["ndcg@20"] == pytest.approx(stored["ndcg@20"])
    shown = call("evaluate", folder / "popularity", *lists, "--format", "markdown").stdout
    assert "**against popularity**" in shown
    assert f"| theirs | {stored['ndcg@20']:.4f} |" in shown
    compared = call(
        "compare", folder / "popularity", folder / "ease", "--metrics", "ndcg@20,hit@20"
    )
    p_values = [line.split()[-2:] for line in compared.stdout.splitlines() if " ease " in line][:2]
    assert len(p_values) == 2
    for pair in p_values:
        assert f"| {pair[0]} | {pair[1]} |" in shown


def test_another_split_of_the_data(folder):
    """The lists leave out training items of their own split, so these users find less."""
    options = (DATA, "--lists", folder / "theirs.csv", "--json")
    same = json.loads(call("evaluate", *options, "--seed", "0").stdout)
    other = json.loads(call("evaluate", *options, "--seed", "1").stdout)
    assert other["metrics"]["ndcg@20"] < same["metrics"]["ndcg@20"]
    assert any("Items of histories" in note for note in other["notes"])


def test_misuse_is_one_sentence(folder, tmp_path):
    run, lists = folder / "ease", folder / "theirs.csv"
    for options, message in (
        ((run, "--seed", "3"), "'--seed' has no effect on a run"),
        ((run, "--split", "users", "--lists", lists), "'--split' has no effect on a run"),
        ((run, "--min-rating", "3"), "'--min-rating' has no effect on a run"),
        ((run, "--lists", tmp_path / "no.csv"), "'--lists' must be a file"),
        ((run, "--lists", lists, "--diversity", "0.5"), "'--lists' cannot be combined"),
        ((run, "--lists", lists, "--sweep", "diversity"), "'--lists' cannot be combined"),
        ((run, "--sweep", "diversity", "--plot", tmp_path / "p.svg"), "'--plot' does not draw"),
    ):
        (line,) = call("evaluate", *options, code=2).stderr.strip().splitlines()
        assert message in line
    pl.DataFrame({"who": [1], "what": [2]}).write_csv(tmp_path / "x.csv")
    (line,) = call("evaluate", run, "--lists", tmp_path / "x.csv", code=2).stderr.splitlines()
    assert "must have a column user" in line
