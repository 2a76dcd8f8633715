"""Items without interactions: recommended, explained, served, from the run folder alone."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import itemrec as ir
from itemrec.cli.app import app
from itemrec.training.run_folder import read_features

DATA = "synthetic:users=120,items=90,interactions=2500"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of all items and of three that nobody knows, one of them the twin of item 5."""
    data = ir.load(DATA)
    rows = np.arange(data.n_items)
    twin = int(data.item_ids.index([5])[0])
    titles = [*data.titles.tolist(), f"{data.titles[twin]}", "Nothing Alike (2001)", "X (1990)"]
    genres = [*data.genres.tolist(), data.genres[twin], "Drama", "Noir"]
    ids = [*data.item_ids.ids[rows].tolist(), 1001, 1002, 1003]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 3)).round(3).tolist()
    path = tmp_path_factory.mktemp("features") / "films.parquet"
    columns = {"item": ids, "title": titles, "genres": genres, "length": [90.0] * len(ids)}
    pl.DataFrame({**columns, "look": vectors}).write_parquet(path)
    return path


@pytest.fixture(scope="module")
def folder(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "r"
    split = ir.split_interactions(ir.load(DATA, item_features=table))
    ir.train(split, ir.models.EASE(l2=20.0), out=out)
    return out


def test_the_folder_alone_recommends_new_items(folder: Path) -> None:
    recommender = ir.Recommender.load(folder)
    picks = recommender.recommend(history=[3, 9, 12], k=200, explain=True)
    assert {1001, 1002, 1003} <= {pick.item for pick in picks}
    for pick in picks:
        assert pick.is_new == (pick.item > 1000)
        total = sum(reason.share for reason in pick.reasons) + pick.own + pick.others
        assert total == pytest.approx(pick.score, abs=1e-5)
        assert bool(pick.like) == pick.is_new


def test_known_items_keep_their_scores(folder: Path) -> None:
    run = ir.Run.load(folder)
    with_new = ir.Recommender(run).recommend(user=7, k=200)
    run.features = None
    without = ir.Recommender(run).recommend(user=7, k=200)
    known = [(pick.item, pick.score) for pick in with_new if not pick.is_new]
    assert known == [(pick.item, pick.score) for pick in without]


def test_a_twin_is_like_the_item_it_copies(folder: Path) -> None:
    recommender = ir.Recommender.load(folder)
    twin = recommender.recommend(history=[3, 9], k=1, only=[1001], explain=True)[0]
    titles = {like.item: like for like in twin.like}
    assert 5 in titles
    assert set(titles[5].shared) >= set(twin.genres.split("|"))
    assert 5 in {pick.item for pick in recommender.similar_items(1001, k=3)}


def test_new_items_obey_filters_and_are_never_recommended_again(folder: Path) -> None:
    recommender = ir.Recommender.load(folder)
    picks = recommender.recommend(history=[3, 1002], k=200)
    assert 1002 not in {pick.item for pick in picks}
    assert picks.unknown == (1002,)
    assert 1001 not in {p.item for p in recommender.recommend(history=[3], k=200, without=[1001])}
    noir = {p.item for p in recommender.recommend(history=[3], k=200, genre="Noir")}
    assert 1003 in noir
    assert 1002 not in noir
    lists = recommender.recommend_all(k=200)
    assert 1001 in lists.columns()["item_id"]


def test_new_items_may_come_after_training_and_mean_the_same(folder: Path, table: Path) -> None:
    run = ir.Run.load(folder)
    whole = ir.Recommender(run)
    expected = {p.item: p.score for p in whole.recommend(history=[3, 9], k=200) if p.is_new}
    run.features = run.features.of(run.item_ids)  # as if the three had not been there
    late = pl.read_parquet(table).filter(pl.col("item") > 1000)
    found = ir.Recommender(run, new_items=late).recommend(history=[3, 9], k=200)
    assert {p.item: p.score for p in found if p.is_new} == pytest.approx(expected, abs=1e-4)


def test_a_run_without_features_has_its_titles_and_genres() -> None:
    run = ir.train(ir.split_interactions(ir.load(DATA)), ir.models.EASE(l2=20.0))
    assert run.features is None
    titles = {"item": [2001], "title": [f"{run.titles[4]}"], "genres": [run.genres[4]]}
    recommender = ir.Recommender(run, new_items=pl.DataFrame(titles))
    pick = recommender.recommend(history=[3], only=[2001], explain=True)[0]
    assert pick.item == 2001
    assert run.item_ids.ids[4] in {like.item for like in pick.like}
    run.titles = run.genres = None
    with pytest.raises(ir.ItemrecError, match="must also have rows of the known items"):
        ir.Recommender(run, new_items=pl.DataFrame(titles))


def test_damaged_features_are_noticed(folder: Path, tmp_path: Path) -> None:
    stored = json.loads((folder / "ids.json").read_text())["features"]
    vectors = {"look": np.zeros((len(stored["items"]), 3), np.float32)}
    assert read_features(stored, vectors) is not None
    stored["columns"][0]["values"].pop()
    with pytest.raises(ValueError, match="values of 'title'"):
        read_features(stored, vectors)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    text = (copy / "ids.json").read_text()
    (copy / "ids.json").write_text(text.replace("Nothing Alike", "Nothing Above"))
    with pytest.raises(ir.ItemrecError, match="its checksum is not the one"):
        ir.Run.load(copy)


def test_the_commands_train_and_recommend(table: Path, tmp_path: Path) -> None:
    run, call = str(tmp_path / "r"), CliRunner().invoke
    options = ["--model", "ease", "--split", "items", "--item-features", str(table)]
    done = call(app, ["train", DATA, *options, "--out", run])
    assert done.exit_code == 0, done.output
    assert "genres: 18 categories" in " ".join(done.output.split())
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert 0 < metrics["test"]["ndcg@20"] < 1
    assert set(metrics["among_all_items"]) == set(metrics["test"])
    again = call(app, ["evaluate", run, "--json"])
    assert json.loads(again.output)["metrics"]["ndcg@20"] == metrics["test"]["ndcg@20"]
    more = tmp_path / "more.csv"
    more.write_text("item,title,genres\n5001,Late Arrival (2020),Drama|Comedy\n")
    known = ir.Run.load(run).item_ids.ids[:3].tolist()
    history = ",".join(map(str, known))
    asked = ["recommend", run, "--history", history, "--new-items", str(more), "--only", "5001"]
    shown = call(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "new, scored by its features: Late Arrival (2020), like" in " ".join(
        shown.output.split()
    )
    bad = call(app, ["recommend", run, "--history", history, "--new-items", "nowhere.csv"])
    assert bad.exit_code == 2
    assert "must be an existing file" in bad.output


def test_the_service_finds_and_recommends_new_items(folder: Path) -> None:
    pytest.importorskip("fastapi")
    from itemrec.serving.http.catalogue import Catalogue

    recommender = ir.Recommender.load(folder)
    found = Catalogue(recommender.items).find("Nothing Alike", 5)
    assert [item.item for item in found][:1] == [1002]
