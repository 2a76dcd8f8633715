"""What `train` says at the end: five metrics, a verdict and a list, each checked independently."""

import copy
import re
import shlex

import numpy as np
import polars as pl
import pytest
import scipy.stats
from command import call
from rich.console import Console

import itemfold as ir
from itemfold.cli.tables.details import details
from itemfold.cli.tables.summary import cautions, example_list, summary, verdict
from itemfold.training.run import Run

DATA = "synthetic:users=200,items=80,interactions=3000"
SPLIT = ir.split_interactions(ir.load(DATA))


def shown(part, width=80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(part)
    return capture.get()


def rows(text: str) -> dict[str, list[str]]:
    found = re.findall(r"^ *(\w+@\d+) +(.*)$", text, re.M)
    return {name: cells.split() for name, cells in found}


@pytest.fixture(scope="module")
def ease() -> Run:
    return ir.train(SPLIT, ir.models.EASE())


@pytest.fixture(scope="module")
def hybrid() -> Run:
    return ir.train(SPLIT, epochs=2, eval_every=2)


def test_popularity_is_that_of_its_own_run(ease):
    alone = ir.train(SPLIT, ir.models.Popularity())
    assert "popularity" not in alone.metrics
    stored = ease.metrics["popularity"]
    for name in ("ndcg@20", "recall@20", "hit@20", "coverage@20", "novelty@20"):
        assert stored[name] == pytest.approx(alone.metrics["test"][name])
    a, b = ease.per_user["ndcg@20"], alone.per_user["ndcg@20"]
    assert stored["p"] == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue)
    assert stored["difference"] == pytest.approx(np.mean(b - a))
    assert stored["low"] < stored["difference"] < stored["high"]


def test_five_rows_beside_popularity_and_the_best_part(hybrid):
    text = shown(summary(hybrid))
    found = rows(text)
    assert list(found) == ["ndcg@20", "recall@20", "hit@20", "coverage@20", "novelty@20"]
    parts = {name: part for name, part in hybrid.metrics["parts"].items() if name != "popularity"}
    best = max(parts, key=lambda name: parts[name]["ndcg@20"])
    assert f"{best} alone" in text
    for name, cells in found.items():
        assert cells[0] == f"{hybrid.metrics['test'][name]:.4f}"
        assert cells[-2:] == [
            f"{hybrid.metrics['popularity'][name]:.4f}",
            f"{parts[best][name]:.4f}",
        ]
    for hidden in ("gini", "popularity_bias", "group", "chosen"):
        assert hidden not in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("difference", "p", "words"),
    [
        (-0.1, 0.001, "better than popularity in ndcg@20"),
        (0.1, 0.001, "worse than popularity in ndcg@20"),
        (-0.1, 0.3, "within chance of popularity in ndcg@20"),
    ],
)
def test_the_verdict_says_how_surely(ease, difference, p, words):
    run = copy.copy(ease)
    values = {"ndcg@20": 0.2, "difference": difference, "p": p, "low": -0.15, "high": -0.05}
    run.metrics = {**ease.metrics, "popularity": values}
    sentence = verdict(run)
    assert words in sentence
    assert f"{-difference / 0.2:+.1%} (95 %: +25.0% to +75.0%, " in sentence
    assert ("p = .001" if p == 0.001 else "p = .300") in sentence


def test_a_sum_that_is_its_part_is_called_equal(ease):
    run = copy.copy(ease)
    values = {"ndcg@20": 0.2, "difference": 0.0, "p": 1.0, "low": 0.0, "high": 0.0}
    run.metrics = {**ease.metrics, "popularity": values}
    assert verdict(run) == ("ease is equal to popularity in ndcg@20.")


def test_each_line_of_the_list_names_the_largest_reason(ease):
    text = shown(example_list(ease), width=200)
    user = re.search(r"The list of user (\S+), who has", text)[1]
    for pick in ir.Recommender(ease).recommend(user, k=5, explain=True):
        best = max(pick.reasons, key=lambda reason: reason.share)
        assert re.search(rf"^ *\d +{pick.item} .*{re.escape(best.title)} *$", text, re.M)
    narrow = shown(example_list(ease), width=60).splitlines()
    assert sum(bool(re.match(" *[1-5]  ", line)) for line in narrow) == 5


def test_few_users_and_few_items_are_warned_about(ease):
    assert cautions(ease) == [
        "with 80 items, a list of 20 contains many by chance, so the figures are high"
    ]
    few = copy.copy(ease)
    few.metrics = {**ease.metrics, "users": {**ease.metrics["users"], "judged": 3}}
    assert cautions(few)[0] == "3 test users are too few to tell a difference from chance"
    assert "warning: 3 test users" in shown(summary(few))


def test_a_shorter_list_is_measured_by_a_command_that_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = [f"u{u},i{(u * k) % 12}" for u in range(1, 40) for k in range(1, 9)]
    (tmp_path / "plays.csv").write_text("\n".join(["user,item", *lines]))
    text = call("train", "plays.csv", "--model", "ease", "--out", "my run").stdout
    warning = "warning: with 12 items, a list of 20 contains all of them, so the figures are high"
    assert warning in " ".join(text.split())
    (command,) = re.findall(r"metrics of shorter lists: itemfold (.*)\n", text)
    assert command == "evaluate 'my run' --k 1"
    assert "ndcg@1 " in call(*shlex.split(command)).stdout


@pytest.mark.parametrize(("more", "history"), [([], "'Game, 10'"), (["ann,Chess,1"], "Chess")])
def test_the_example_of_a_history_works_with_commas_in_ids(more, history, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = [f'u{u},"Game, {10 + (u * k) % 12}",{k}' for u in range(1, 40) for k in range(1, 9)]
    (tmp_path / "plays.csv").write_text("\n".join(["user,item,hours", *lines, *more]))
    text = call("train", "plays.csv", "--model", "ease", "--out", "r").stdout
    (command,) = re.findall(r"recommend: itemfold (.*)\n", text)
    assert command == f"recommend r --history {history} --explain"
    assert "score" in call(*shlex.split(command)).stdout


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (["mf"], "--user u1"),
        (["hybrid", "--set", "model.others=mf"], "--user u1"),
        (["popularity"], "--history i0,i1"),
        (["ease"], "--history i0,i1 --explain"),
    ],
)
def test_the_example_suits_what_the_model_can_do(model, options, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = [f"u{u},i{(u * k) % 120}" for u in range(1, 40) for k in range(1, 9)]
    (tmp_path / "plays.csv").write_text("\n".join(["user,item", *lines]))
    text = call("train", "plays.csv", "--model", *model, "--epochs", "1", "--out", "r").stdout
    (command,) = re.findall(r"recommend: itemfold (.*)\n", text)
    assert command == f"recommend r {options}"
    assert "score" in call(*shlex.split(command)).stdout


def test_a_user_who_has_everything_has_no_empty_list():
    full = ir.read(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3]}))
    run = ir.train(ir.keep_all(full), ir.models.EASE())
    assert shown(example_list(run)).strip() == ""


def test_a_run_of_an_earlier_release_has_a_verdict(ease, hybrid):
    old = copy.copy(ease)
    old.metrics = {key: value for key, value in ease.metrics.items() if key != "popularity"}
    assert verdict(old) == f"ease: ndcg@20 {ease.metrics['test']['ndcg@20']:.4f} on test."
    older = copy.copy(hybrid)
    parts = {name: {"ndcg@20": 0.1, "p": 0.2} for name in hybrid.metrics["parts"]}
    older.metrics = {**hybrid.metrics, "parts": parts, "popularity": None}
    assert "beside popularity with ndcg@20 0.1000" in verdict(older)
    assert "ndcg@20" in rows(shown(summary(older)))


def test_the_list_is_that_of_the_recommender_for_a_user_of_median_history(ease):
    text = shown(example_list(ease))
    user = re.search(r"The list of user (\S+), who has", text)[1]
    picks = ir.Recommender(ease).recommend(user, k=5)
    assert re.findall(r"^ *\d +(\S+)  ", text, re.M) == [str(pick.item) for pick in picks]
    for pick in picks:
        assert pick.title in text
    (row,) = ease.user_ids.index([user])
    size = np.diff(ease.interactions.indptr)
    assert abs(size[row] - np.median(size)) <= 0.5
    assert f"and {size[row] - 4} more" in " ".join(text.split())


def test_other_metrics_are_shown_if_asked_for(tmp_path):
    options = ("--model", "ease", "--metrics", "gini@20,NDCG@20", "--out", tmp_path / "r")
    text = call("train", DATA, *options).stdout
    stored = Run.load(tmp_path / "r").metrics["test"]
    assert {name: cells[0] for name, cells in rows(text).items()} == {
        name: f"{stored[name]:.4f}" for name in ("gini@20", "ndcg@20")
    }
    result = call("train", DATA, "--metrics", "ndcg@10", "--out", tmp_path / "s", code=2)
    assert "'--metrics' must be metrics at 20" in result.stderr
    assert not (tmp_path / "s").exists()


def test_the_rest_is_printed_with_details(ease, hybrid):
    for run in (ease, hybrid):
        found = rows(shown(details(run), width=200))
        assert set(found) == {*run.metrics["test"], *run.metrics["valid"]}


def test_without_a_test_part_the_figures_of_validation_are_shown(tmp_path):
    options = ("--model", "ease", "--split", "all", "--out", tmp_path / "r")
    text = call("train", DATA, *options, "--set", "split.valid=0.2").stdout
    stored = Run.load(tmp_path / "r").metrics["valid"]
    assert {name: cells[0] for name, cells in rows(text).items()} == {
        name: f"{value:.4f}" for name, value in stored.items()
    }
    assert text.count("closed form") == 1
    plain = call("train", DATA, *options[:-1], tmp_path / "s").stdout
    assert rows(plain) == {}
    assert plain.count("none are held out for evaluation") == 1


def test_a_metric_that_the_data_does_not_permit_has_no_figure(tmp_path):
    likes = tmp_path / "likes.csv"
    lines = [f"{user},{(user * 7 + n * n) % 23}" for user in range(40) for n in range(6)]
    likes.write_text("user,item\n" + "\n".join(dict.fromkeys(lines)) + "\n")
    options = ("--metrics", "genre_diversity@20,hit@20", "--out", tmp_path / "r")
    text = call("train", likes, "--model", "ease", *options).stdout
    assert rows(text)["genre_diversity@20"][0] == "–"


@pytest.mark.parametrize(("weights", "explained"), [((1, 0, 0), False), ((0.1, 0, 1), True)])
def test_an_item_that_adds_nothing_to_a_score_is_no_reason(weights, explained, tmp_path) -> None:
    """With popularity alone, no item of the history adds to a score."""
    split = ir.split_interactions(ir.load("synthetic:users=60,items=40,interactions=600"))
    linear = ir.models.EASE(l2=5.0)
    run = ir.train(split, ir.models.Hybrid(gnn=None, linear=linear, blend=[[0, *weights]]))
    run.save(tmp_path / "r")
    text = shown(example_list(run))
    assert ("because of" in text) == explained
    assert ("popularity alone decides this list" in text) == (not explained)
    user = run.user_ids.ids.tolist()[0]
    told = call("recommend", tmp_path / "r", "--user", user, "--explain").stdout
    assert "own" in told
    shares = re.findall(r"[-+]\d\.\d{3} (?!own)", told)
    assert bool(shares) == explained
