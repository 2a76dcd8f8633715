"""Items without interactions: recommended, explained, served, from the run folder alone."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.data.items.item_table import ItemTable
from itemfold.evaluation.tradeoff import Sweeper, SweepPoint
from itemfold.reranking.similarity import NEAREST
from itemfold.training.fingerprint import fingerprint
from itemfold.training.stored_ids import read_features

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


@pytest.mark.parametrize("new_items", [False, True])
def test_reasons_do_not_score_the_catalogue_again(
    table: Path, monkeypatch: pytest.MonkeyPatch, new_items: bool
) -> None:
    split = ir.split_interactions(ir.load(DATA, item_features=table))
    parts = {"gnn": ir.models.LightGCN(dim=8), "linear": ir.models.RLAE(l2=50.0)}
    run = ir.train(split, ir.models.Hybrid(**parts), epochs=2)
    if not new_items:
        run.features = None
    recommender, calls = ir.Recommender(run), []

    def count(part: ir.models.Model, name: str) -> None:
        method = getattr(part, name)
        monkeypatch.setattr(part, name, lambda *given: calls.append(name) or method(*given))

    count(run.model.linear, "scores")
    count(run.model.gnn, "vectors_of")  # for the product with all item vectors
    for asked in ({"user": 7}, {"history": [3, 9, 12]}):
        plain = recommender.recommend(**asked, k=200)
        assert sorted(calls) == ["scores", "vectors_of"]
        calls.clear()
        explained = recommender.recommend(**asked, k=200, explain=True)
        assert sorted(calls) == ["scores", "vectors_of"]
        calls.clear()
        assert any(pick.is_new for pick in explained) == new_items
        assert [(p.item, p.score) for p in explained] == [(p.item, p.score) for p in plain]
        assert all(pick.reasons for pick in explained)


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
    with pytest.raises(ir.ItemfoldError, match="must also have rows of the known items"):
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
    with pytest.raises(ir.ItemfoldError, match="its checksum does not match"):
        ir.Run.load(copy)


def test_the_commands_train_and_recommend(table: Path, tmp_path: Path) -> None:
    run, call = str(tmp_path / "r"), CliRunner().invoke
    options = ["--model", "ease", "--split", "items", "--item-features", str(table)]
    done = call(app, ["train", DATA, *options, "--out", run])
    assert done.exit_code == 0, done.output
    assert "genres: 18 categories" in " ".join(done.output.split())
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert 0 < metrics["test"]["ndcg@20"] < 1
    more = set(metrics["among_all_items"]) - set(metrics["test"])
    by_popularity = {"popularity_bias", "head_recall", "tail_recall"}  # new items have none
    assert {key.partition("@")[0][:15] for key in more} == by_popularity
    again = call(app, ["evaluate", run, "--json"])
    assert json.loads(again.output)["metrics"]["ndcg@20"] == metrics["test"]["ndcg@20"]
    more = tmp_path / "more.csv"
    more.write_text("item,title,genres\n5001,Late Arrival (2020),Drama|Comedy\n")
    known = ir.Run.load(run).item_ids.ids[:3].tolist()
    history = ",".join(map(str, known))
    asked = ["recommend", run, "--history", history, "--new-items", str(more), "--only", "5001"]
    shown = call(app, [*asked, "--explain"])
    assert shown.exit_code == 0, shown.output
    assert "new, scored by its features: Late Arrival (2020), like" in " ".join(
        shown.output.split()
    )
    bad = call(app, ["recommend", run, "--history", history, "--new-items", "nowhere.csv"])
    assert bad.exit_code == 2
    assert "must be an existing file" in bad.output


def test_a_report_of_new_items_can_be_written(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(folder), "--no-curves", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "Popularity of recommended items" in out.read_text()


LATE = "item,title,genres\n5001,Late Arrival (2020),Drama|Comedy\n"


def test_the_service_finds_recommends_and_explains_new_items(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from itemfold.serving.http import ServedRuns, ServiceSettings, create_app

    late = tmp_path / "late.csv"
    late.write_text(LATE)
    settings = ServiceSettings(new_items=late)
    app = create_app(
        ServedRuns({"run": settings.load(folder, "cpu")}), settings, folders={"run": folder}
    )
    body = {"history": [3, 9], "k": 200, "explain": True}
    expected = ir.Recommender.load(folder, new_items=late).recommend(**body)
    new = {pick.item: pick for pick in expected if pick.is_new}
    assert set(new) == {1001, 1002, 1003, 5001}

    def asked(client: TestClient) -> tuple[set[int], str]:
        answer = client.post("/v1/recommend", json=body).json()
        return {pick["item"] for pick in answer["items"]}, answer["run_fingerprint"]

    with TestClient(app, base_url="http://localhost") as client:
        picks = client.post("/v1/recommend", json=body).json()["items"]
        assert {pick["item"] for pick in picks if pick["is_new"]} == set(new)
        for pick in picks:
            like = [one.item for one in new[pick["item"]].like] if pick["is_new"] else []
            assert [one["item"] for one in pick["like"]] == like
        found = client.get("/v1/items", params={"q": "late arr"}).json()
        assert [(item["item"], item["is_new"]) for item in found] == [(5001, True)]
        listed = client.get("/v1/items", params={"new": True, "genre": "Drama"}).json()
        dramas = {pick.item for pick in new.values() if "Drama" in pick.genres.split("|")}
        assert {item["item"] for item in listed} == dramas
        known = client.get("/v1/items", params={"q": "3", "limit": 1}).json()
        assert [(item["item"], item["is_new"]) for item in known] == [(3, False)]
        about = client.get("/v1/about").json()
        assert (about["items"], about["new_items"]) == (len(expected) + 2, 4)
        before = asked(client)
        late.write_text(LATE.replace("5001", "5002"))
        client.portal.call(app.state.reloader.poll)  # sees the change
        client.portal.call(app.state.reloader.poll)  # finds it stable
        after = asked(client)
        assert (before[0] - after[0], after[0] - before[0]) == ({5001}, {5002})
        assert before[1] != after[1]
        late.write_text("")
        client.portal.call(app.state.reloader.poll)
        client.portal.call(app.state.reloader.poll)
        assert asked(client) == after  # the old run stays


def test_serving_new_items_from_a_missing_file_is_one_sentence(folder: Path) -> None:
    pytest.importorskip("fastapi")
    options = ["--new-items", "nowhere.csv", "--port", "0", "--workers", "1"]
    bad = CliRunner().invoke(app, ["serve", str(folder), *options])
    assert bad.exit_code == 2
    assert "must be an existing file" in bad.output


@pytest.mark.parametrize(
    "settings",
    [
        {"diversity": 0.5},
        {"diversity": 0.5, "diversity_by": "genre"},
        {"popularity_discount": 0.7},
        {"long_tail": 0.8},
        {"freshness": 0.5},
        {"max_per": {"genre": 2}},
    ],
)
def test_lists_with_new_items_can_be_steered(folder: Path, settings: dict[str, Any]) -> None:
    recommender, steering = ir.Recommender.load(folder), ir.Steering(**settings)
    every = recommender.recommend(history=[3, 9, 12], k=200, steering=steering)
    new = {pick.item for pick in every if pick.is_new}
    assert new == {1001, 1002, 1003} or "max_per" in settings
    assert len(recommender.recommend_all(k=5, steering=steering).columns()["item_id"])
    if "max_per" in settings:
        genres = [genre for pick in every for genre in pick.genres.split("|")]
        assert max(map(genres.count, genres)) <= 2


@pytest.mark.parametrize("model", [ir.models.EASE(l2=20.0), ir.models.LightGCN(dim=8)])
def test_a_new_item_is_near_the_items_with_its_features(table: Path, model: Any) -> None:
    epochs = {} if isinstance(model, ir.models.EASE) else {"epochs": 2}
    run = ir.train(ir.split_interactions(ir.load(DATA, item_features=table)), model, **epochs)
    recommender = ir.Recommender(run)
    found = recommender.facts.vectors()
    vectors = found.numpy() if isinstance(found, torch.Tensor) else found.toarray()
    known = ir.Recommender(replace(run, features=None)).facts.vectors()
    known = known.numpy() if isinstance(known, torch.Tensor) else known.toarray()
    assert np.array_equal(vectors[: len(known)], known)
    row = recommender.items.ids.index([1001])[0]
    alike = recommender.model.similar_to(int(row))[: len(known)].numpy()
    best = np.argsort(-alike)[:NEAREST]
    mean = alike[best] @ known[best]
    np.testing.assert_allclose(vectors[row], mean / np.linalg.norm(mean), atol=1e-5)


def test_an_item_table_has_pictures_and_availability_of_new_items(folder: Path) -> None:
    shelf = ItemTable([1002, 3], {"image": ["new.jpg", "old.jpg"]}, available=[1002, 4])
    picks = ir.Recommender.load(folder, item_table=shelf).recommend(history=[9], k=200)
    assert {(pick.item, pick.image) for pick in picks} == {(1002, "new.jpg"), (4, "")}


def test_a_new_item_may_be_disliked(folder: Path) -> None:
    recommender = ir.Recommender.load(folder)
    plain = recommender.recommend(history=[3, 9], k=200)
    for seen in (True, False):
        picks = recommender.recommend(
            history=[3, 9], dislikes=[1002], exclude_seen=seen, k=200, explain=True
        )
        assert 1002 not in {pick.item for pick in picks}
    scores = {pick.item: pick.score for pick in plain}
    for pick in recommender.recommend(history=[3, 9], dislikes=[1002], k=200):
        assert pick.score == pytest.approx(scores[pick.item], abs=1e-5)
    for pick in recommender.recommend(history=[3, 9], dislikes=[12], k=200, explain=True):
        total = sum(reason.share for reason in pick.reasons) + pick.own + pick.others
        assert total == pytest.approx(pick.score, abs=1e-5)


def points_of(run: ir.Run, split: ir.Split) -> list[SweepPoint]:
    return list(Sweeper(run, split).sweep("popularity_discount", values=(0.0, 0.5)))


def test_held_out_items_can_be_steered_and_ranked_among_all(table: Path) -> None:
    split = ir.split_items(ir.load(DATA, item_features=table))
    run = ir.train(split, ir.models.EASE(l2=20.0))
    metrics = ["ndcg@20", "diversity@20", "genre_diversity@20", "coverage@20", "novelty@20"]
    plain = ir.evaluate(run, split, metrics=metrics).metrics
    assert {name: run.metrics["test"][name] for name in metrics} == plain
    assert 0 < plain["diversity@20"] < 1
    # the popularity of new items is always 0, so it says nothing of lists of them
    assert not any(name.startswith("popularity_bias") for name in run.metrics["test"])
    assert "popularity_bias@20" in run.metrics["among_all_items"]
    assert not any("popularity_bias" in key for key in points_of(run, split)[0].metrics)
    varied = ir.Steering(diversity=0.9, diversity_by="genre")
    steered = ir.evaluate(run, split, 3, metrics=["genre_diversity@3"], steering=varied).metrics
    before = ir.evaluate(run, split, 3, metrics=["genre_diversity@3"]).metrics
    assert steered["genre_diversity@3"] > before["genre_diversity@3"]
    everything = ir.evaluate(run, split.among_all_items(), metrics=metrics).metrics
    assert everything["coverage@20"] > plain["coverage@20"]
    other = ir.split_interactions(ir.load(DATA))
    with pytest.raises(ir.ItemfoldError, match="needs a split of `split_items`"):
        other.among_all_items()


def test_an_update_keeps_features_and_adds_further_items(folder: Path, tmp_path: Path) -> None:
    run = ir.Run.load(folder)
    fresh = pl.DataFrame({"user": [1, 2, 3], "item": [1001, 1001, 4]})
    newer = ir.update(run, fresh, out=tmp_path / "newer")
    recommender = ir.Recommender.load(tmp_path / "newer")
    assert recommender.items.new.ids.tolist() == [1002, 1003]
    row = int(newer.item_ids.index([1001])[0])
    assert newer.titles[row] == ir.Recommender(run).recommend(history=[3], only=[1001])[0].title
    pick = recommender.recommend(history=[3, 9], only=[1001, 1002], k=2)
    assert {p.item: p.is_new for p in pick} == {1001: False, 1002: True}
    more = pl.DataFrame({"item": [4001], "genres": ["Noir"]})
    grown = ir.update(run, fresh, item_features=more)
    assert 4001 in {p.item for p in ir.Recommender(grown).recommend(history=[3], k=200)}
    bare = ir.train(ir.split_interactions(ir.load(DATA)), ir.models.EASE())
    with pytest.raises(ir.ItemfoldError, match="'item_features' cannot be added"):
        ir.update(bare, fresh, item_features=more)
    known = pl.DataFrame({"item": [4, 4001], "genres": ["War", "Noir"]})
    with pytest.raises(ir.ItemfoldError, match="'new' must have the same item features"):
        ir.update(run, ir.read(fresh, item_features=known))


def test_features_count_in_the_fingerprint(folder: Path) -> None:
    run = ir.Run.load(folder)
    before = fingerprint(run)
    assert fingerprint(ir.Run.load(folder)) == before
    found = {before, fingerprint(replace(run, features=None))}
    (look,) = run.features.vectors()
    look.values[0, 0] += 1
    found.add(fingerprint(run))
    assert len(found) == 3


def test_an_export_has_the_known_items_and_counts_the_others(folder: Path, tmp_path: Path) -> None:
    facts = ir.export(folder, "parquet", tmp_path / "tables")
    run = ir.Run.load(folder)
    assert facts["new_items_left_out"] == 3
    assert pl.read_parquet(tmp_path / "tables" / "items.parquet").height == len(run.item_ids)
