"""Recommendations against naive sorting, explanations against their sums, and errors."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import board_split
from torch import Tensor

import itemfold as ir
from itemfold.models.base import Model
from itemfold.serving.recommender import POPULAR

DATA = ir.load("synthetic:users=120,items=90,interactions=1800")


def trained(model: ir.models.Model, strategy=ir.split_interactions, **settings) -> ir.Run:
    return ir.train(strategy(DATA, seed=0), model, epochs=6, lr=0.05, eval_every=3, **settings)


@pytest.fixture(scope="module")
def lightgcn() -> ir.Run:
    return trained(ir.models.LightGCN(dim=8, layers=2))


@pytest.fixture(scope="module")
def inductive() -> ir.Run:
    return trained(ir.models.LightGCN(dim=8, layers=2), ir.split_users)


@pytest.fixture(scope="module")
def ease() -> ir.Run:
    return trained(ir.models.EASE(l2=20.0))


def scores_of(run: ir.Run, history: list, row: int) -> np.ndarray:
    line = np.zeros((1, len(run.item_ids)), np.float32)
    line[0, run.item_ids.index(history)] = 1
    return run.model.scores(sp.csr_array(line), np.array([row]))[0].numpy()


@pytest.mark.parametrize("name", ["lightgcn", "inductive", "ease"])
def test_lists_equal_a_naive_sort_without_seen_items(name, request):
    run = request.getfixturevalue(name)
    recommender = ir.Recommender.from_run(run)
    ids = run.item_ids.ids.tolist()
    history = ids[3:40:7]
    scores = scores_of(run, history, -1)
    naive = sorted((i for i in ids if i not in history), key=lambda i: -scores[ids.index(i)])
    found = recommender.recommend(history=history, k=10)
    assert [pick.item for pick in found] == naive[:10]
    assert np.allclose(
        [pick.score for pick in found], np.sort(scores[run.item_ids.index(naive)])[::-1][:10]
    )
    row = 5
    own = run.train.indices[run.train.indptr[row] : run.train.indptr[row + 1]]
    scores = scores_of(run, run.item_ids.ids[own].tolist(), row)
    scores[own] = -np.inf
    found = recommender.recommend(user=run.user_ids.ids[row], k=5)
    assert [pick.item for pick in found] == run.item_ids.ids[np.argsort(-scores)[:5]].tolist()


def test_seen_items_come_back_on_request(lightgcn):
    recommender = ir.Recommender.from_run(lightgcn)
    ids = lightgcn.item_ids.ids.tolist()
    everything = recommender.recommend(history=ids[:5], k=1000, exclude_seen=False)
    assert sorted(p.item for p in everything) == ids
    assert len(recommender.recommend(history=ids[:5], k=1000)) == len(ids) - 5


@pytest.mark.parametrize("name", ["lightgcn", "inductive", "ease"])
def test_shares_and_the_own_part_add_up_to_the_score(name, request):
    run = request.getfixturevalue(name)
    recommender = ir.Recommender.from_run(run)
    row = int(np.argmax(np.diff(run.train.indptr)))
    for found in (
        recommender.recommend(user=run.user_ids.ids[row], k=4, explain=True),
        recommender.recommend(history=run.item_ids.ids[:6].tolist(), k=4, explain=True),
    ):
        for pick in found:
            shares = [reason.share for reason in pick.reasons]
            assert shares == sorted(shares, reverse=True)
            assert sum(shares) + pick.own == pytest.approx(pick.score, abs=1e-6)
            if found.user is None or name != "lightgcn":  # no parameters of the user
                assert pick.own == pytest.approx(0, abs=1e-5)


def test_a_trained_users_own_part_is_its_layer_zero_vector(lightgcn):
    found = ir.Recommender.from_run(lightgcn).recommend(user=lightgcn.user_ids.ids[0], explain=True)
    model = lightgcn.model
    for pick in found:
        item = model.item_vectors[int(lightgcn.item_ids.index([pick.item])[0])]
        own = float(model.user_embedding[0].detach() @ item) / 3  # mean over h⁰, h¹, h²
        assert pick.own == pytest.approx(own, abs=1e-5)


def test_ease_reasons_are_its_weights(ease):
    pick = ir.Recommender.from_run(ease).recommend(history=[3, 8], k=1, explain=True)[0]
    column = int(ease.item_ids.index([pick.item])[0])
    for reason in pick.reasons:
        row = int(ease.item_ids.index([reason.item])[0])
        assert reason.share == pytest.approx(float(ease.model.weights[row, column]))


def test_unknown_items_are_reported_and_change_nothing(lightgcn):
    recommender = ir.Recommender.from_run(lightgcn)
    plain = recommender.recommend(history=[3, 8], k=5)
    mixed = recommender.recommend(history=["8", "nothing", 3, 3, 10**9], k=5)
    assert mixed.unknown == ("nothing", 10**9)
    assert mixed.items == plain.items
    assert "nothing" in str(mixed)


def test_ids_may_be_in_any_container_and_of_any_number_type(lightgcn):
    recommender = ir.Recommender.from_run(lightgcn)
    plain = recommender.recommend(history=[3, 8], k=2)
    for history in (
        (i for i in (3, 8)),
        {3, 8},
        np.array([3.0, 8.0]),
        [np.float64(3), 8.0],
        np.array(["3", "8"]),
    ):
        found = recommender.recommend(history=history, k=np.int64(2))
        assert found.items == plain.items
        assert not found.unknown
    known = recommender.recommend(user=7, k=3).items
    for user in (7.0, np.int32(7), np.array(7), np.array([7])):
        assert recommender.recommend(user=user, k=3).items == known
    some = recommender.recommend_all(3, users=(u for u in (7, 4)))
    assert (some.rows == recommender.recommend_all(3, users=[7, 4]).rows).all()


@pytest.mark.parametrize("history", [[], ["nothing"]])
def test_an_unknown_history_gives_the_most_popular_items_with_a_note(lightgcn, history):
    found = ir.Recommender.from_run(lightgcn).recommend(history=history, k=5, explain=True)
    counts = np.bincount(lightgcn.train.indices, minlength=len(lightgcn.item_ids))
    best = np.argsort(-counts, kind="stable")[:5]
    assert found.fallback == POPULAR
    assert [p.item for p in found] == lightgcn.item_ids.ids[best].tolist()
    assert not any(p.reasons for p in found)


def test_filters(lightgcn):
    recommender = ir.Recommender.from_run(lightgcn)
    base = recommender.recommend(history=[3], k=90)
    order = [p.item for p in base]
    kept = recommender.recommend(history=[3], k=90, only=[order[7], order[2], "no such"])
    assert kept.unknown == ("no such",)
    found = recommender.recommend(history=["nix", 3], only=["no such", 4], without=["neither"])
    assert found.unknown == ("nix", "no such", "neither")
    assert "not known: nix, no such, neither" in str(found)
    assert recommender.recommend_all(2, without=["neither", 3]).unknown == ("neither",)
    assert [p.item for p in kept] == [order[2], order[7]]
    left = recommender.recommend(history=[3], k=90, without=order[:10])
    assert [p.item for p in left] == order[10:]
    crime = recommender.recommend(history=[3], k=90, genre="crime")
    assert [p.item for p in crime] == [p.item for p in base if "Crime" in p.genres.split("|")]
    assert len(crime)
    with pytest.raises(ir.ItemfoldError, match=r"'genre' must be one of .*drama.*, got 'Opera'"):
        recommender.recommend(history=[3], genre="Opera")
    with pytest.raises(ir.ItemfoldError, match="'only' must name at least one item"):
        recommender.recommend(history=[3], only=["no such"])


def test_all_users_equal_one_at_a_time_in_any_block(lightgcn):
    recommender = ir.Recommender.from_run(lightgcn)
    lists = recommender.recommend_all(7, budget=0.01)
    again = recommender.recommend_all(7)
    assert (lists.rows == again.rows).all()
    for row in (0, 17, 119):
        single = recommender.recommend(user=lists.users[row], k=7)
        assert lists.item_ids[lists.rows[row]].tolist() == [p.item for p in single]
        assert np.allclose(lists.scores[row], [p.score for p in single], atol=1e-6)
    some = recommender.recommend_all(7, users=lists.users[[4, 2]])
    assert (some.rows == again.rows[[4, 2]]).all()


def test_table_files(lightgcn, tmp_path: Path):
    polars = pytest.importorskip("polars")
    lists = ir.Recommender.from_run(lightgcn).recommend_all(3, only=[1, 2])  # fewer than asked
    columns = lists.columns()
    assert len(columns["item_id"]) == int((lists.rows >= 0).sum()) < 3 * 120
    lists.save(tmp_path / "recs.csv")
    lists.save(tmp_path / "recs.parquet")
    with (tmp_path / "recs.csv").open() as file:
        rows = list(csv.DictReader(file))
    frame = polars.read_parquet(tmp_path / "recs.parquet")
    assert [int(r["item_id"]) for r in rows] == frame["item_id"].to_list()
    assert frame.columns == ["user_id", "item_id", "rank", "score"]
    assert frame["item_id"].to_list() == columns["item_id"].tolist()
    for name in ("recs.xlsx", "no/such/folder.csv"):
        with pytest.raises(ir.ItemfoldError, match="'out' must"):
            lists.save(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["recs.csv", "recs.parquet"]


def test_similar_items(lightgcn, ease):
    vectors = lightgcn.model.item_vectors.double().numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    row = 4
    cosine = unit @ unit[row]
    cosine[row] = -np.inf
    found = ir.Recommender.from_run(lightgcn).similar_items(lightgcn.item_ids.ids[row], k=6)
    assert [p.item for p in found] == lightgcn.item_ids.ids[np.argsort(-cosine)[:6]].tolist()
    assert found[0].score == pytest.approx(cosine.max(), abs=1e-5)
    found = ir.Recommender.from_run(ease).similar_items(ease.item_ids.ids[row], k=1)
    weights = ease.model.weights[row].clone()
    weights[row] = -torch.inf
    assert found[0].item == ease.item_ids.ids[int(weights.argmax())]


@pytest.mark.parametrize("model", [ir.models.SLIM(l2=20.0), ir.models.ItemKNN(), ir.models.GFCF()])
def test_similar_items_of_linear_models_are_what_one_item_alone_recommends(model):
    recommender = ir.Recommender.from_run(trained(model))
    for item in (3, 8):
        alone = recommender.recommend(history=[item], k=6)
        found = recommender.similar_items(item, k=6)
        assert [(p.item, p.score) for p in found] == [(p.item, p.score) for p in alone if p.score]


@pytest.mark.parametrize("model", [ir.models.SLIM(neighbours=5), ir.models.ItemKNN(neighbours=2)])
def test_similar_items_are_those_with_a_stored_weight_the_largest_first(model):
    run = trained(model)
    model = run.model
    parts = (model.weight_values, model.weight_items, model.weight_starts)
    weights = sp.csr_array(tuple(part.numpy() for part in parts), shape=(90, 90)).toarray()
    recommender = ir.Recommender.from_run(run)
    for line, item in zip(weights, run.item_ids.ids.tolist(), strict=True):
        expected = [row for row in np.argsort(-line, kind="stable") if line[row] != 0]
        found = recommender.similar_items(item, k=90)
        assert [p.item for p in found] == run.item_ids.ids[expected].tolist()
        assert [p.score for p in found] == line[expected].tolist()


def test_a_folder_recommends_as_the_run_did(lightgcn, tmp_path):
    lightgcn.save(tmp_path / "r")
    loaded = ir.Recommender.load(tmp_path / "r")
    fresh = ir.Recommender.from_run(lightgcn)
    assert loaded.recommend(history=[3, 8], explain=True) == fresh.recommend(
        history=[3, 8], explain=True
    )
    assert loaded.recommend("7").items == fresh.recommend(7).items


def test_errors_name_the_model_and_the_rule(lightgcn):
    mf = ir.Recommender.from_run(trained(ir.models.MF(dim=8)))
    assert len(mf.recommend(user=3, k=2)) == 2
    with pytest.raises(
        ir.ItemfoldError, match=r"MF cannot score an unseen .*; give a user of the training"
    ):
        mf.recommend(history=[3])
    with pytest.raises(ir.ItemfoldError, match="MF gives no exact explanations; leave out"):
        mf.recommend(user=3, explain=True)
    popular = ir.Recommender.from_run(trained(ir.models.Popularity()))
    with pytest.raises(ir.ItemfoldError, match="Popularity has neither item vectors"):
        popular.similar_items(3)
    recommender = ir.Recommender.from_run(lightgcn)
    for message, call in {
        "either 'user' or 'history'": {},
        "'user' must be a user of the training data, got 'x'": {"user": "x"},
        "'k' must be a positive integer, got 0": {"user": 1, "k": 0},
        "'k' must be a positive integer, got 2.0": {"user": 1, "k": 2.0},
        "'history' must be a list, got '1,2'": {"history": "1,2"},
        "'history' must be a list, got 1": {"history": 1},
        "'only' must be a list, got 5": {"user": 1, "only": 5},
        "'genre' must be a list, got 5": {"user": 1, "genre": 5},
    }.items():
        with pytest.raises(ir.ItemfoldError, match=message):
            recommender.recommend(**call)
    with pytest.raises(ir.ItemfoldError, match="'users' must be a list, got '34'"):
        recommender.recommend_all(users="34")
    with pytest.raises(ir.ItemfoldError, match="'item' must be an item"):
        recommender.similar_items("x")


def test_requests_do_not_change_what_a_model_scores_with() -> None:
    class Counts(Model):
        """Every user gets a copy of one buffer: the caller may change scores."""

        kind = ir.models.Kind.CLOSED_FORM

        def solve(self, train: sp.csr_array) -> None:
            counts = np.bincount(train.indices, minlength=self.n_items)
            self.store("counts", torch.from_numpy(counts.astype(np.float32)))

        def scores(self, history: sp.csr_array, users: Any) -> Tensor:
            counts: Tensor = self.counts
            return counts.repeat(len(users), 1)

    run = ir.train(board_split(), Counts())  # it is evaluated as well
    recommender = ir.Recommender(run)
    items = run.item_ids.ids.tolist()
    first = recommender.recommend(history=items[:2], k=3)
    recommender.recommend(history=[pick.item for pick in first], k=3)
    assert recommender.recommend(history=items[:2], k=3) == first
