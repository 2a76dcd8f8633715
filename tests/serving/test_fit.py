"""`ir.fit`: a recommender trained on a whole table."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

import itemfold as ir

DATA = ir.load("synthetic:users=60,items=80,interactions=900")
TABLE = {"user_id": DATA.users.astype(np.int64), "item_id": DATA.items.astype(np.int64)}
EASE = ir.models.EASE()


@pytest.fixture(scope="module")
def fitted() -> ir.Recommender:
    return ir.fit(pl.DataFrame(TABLE), budget=2, progress=False)


def test_the_default_model_is_trained_on_every_interaction(fitted: ir.Recommender) -> None:
    assert fitted.run.metrics["model"] == "hybrid"
    assert fitted.train.nnz == len(DATA)
    assert fitted.run.metrics["refit"]
    assert 0 < fitted.run.metrics["valid"]["ndcg@20"] < 1
    assert fitted.run.metrics["test"] == {}


def test_a_list_has_no_item_of_the_history(fitted: ir.Recommender) -> None:
    seen = set(DATA.items[DATA.users == 7].tolist())
    assert not seen & {pick.item for pick in fitted.recommend(7, k=20)}


@pytest.mark.parametrize(
    "source",
    [
        pd.DataFrame(TABLE),
        pl.DataFrame(TABLE),
        pl.DataFrame(TABLE).lazy(),
        pa.table(TABLE),
        DATA,
        sp.csr_array((np.ones(len(DATA)), (DATA.users, DATA.items))),
    ],
    ids=lambda source: type(source).__module__ + "." + type(source).__name__,
)
def test_every_kind_of_source_gives_the_same_recommender(source: object) -> None:
    expected = ir.Recommender(ir.train(ir.keep_all(DATA), EASE)).recommend_all(k=5)
    found = ir.fit(source, EASE, progress=False).recommend_all(k=5)
    np.testing.assert_array_equal(found.rows, expected.rows)


def test_columns_can_be_named_and_filtered() -> None:
    frame = pl.DataFrame(TABLE).rename({"user_id": "who", "item_id": "what"})
    frame = frame.with_columns(stars=pl.Series(np.arange(len(frame)) % 5 + 1))
    reading = {"user": "who", "item": "what", "rating": "stars", "min_rating": 3}
    found = ir.fit(frame, EASE, progress=False, **reading)
    assert found.train.nnz == frame.filter(pl.col("stars") >= 3).height


def test_a_path_and_a_name_are_loaded(tmp_path) -> None:
    pl.DataFrame(TABLE).write_csv(tmp_path / "plays.csv")
    from_file = ir.fit(str(tmp_path / "plays.csv"), EASE, out=tmp_path / "run", progress=False)
    assert from_file.train.nnz == len(DATA)
    again = ir.Recommender.load(tmp_path / "run")
    assert again.recommend(7, k=5) == from_file.recommend(7, k=5)
    named = ir.fit("synthetic:users=60,items=80,interactions=900", EASE, progress=False)
    assert named.train.nnz == len(DATA)


def test_the_same_seed_gives_the_same_lists() -> None:
    model = ir.models.RLAE()
    lists = [ir.fit(DATA, model, progress=False, seed=3).recommend_all(k=5) for _ in "ab"]
    np.testing.assert_array_equal(lists[0].rows, lists[1].rows)


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        (DATA, {"user": "who"}, "'user' has no effect on 'data' that is already read"),
        (pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]}), {}, "no user with a validation"),
        (7, {}, "'source' must be a path"),
        (DATA, {"budget": 0}, "'budget' must be a positive number, got 0"),
        (DATA, {"seed": -1}, "'seed' must be an integer of at least 0, got -1"),
    ],
)
def test_invalid_data_raises_an_error_of_one_line(source, options, sentence) -> None:
    with pytest.raises(ir.ItemfoldError, match=r"^[^\n]*$") as error:
        ir.fit(source, progress=False, **options)
    assert sentence in str(error.value)


# --- frames --------------------------------------------------------------------------------------


def test_a_frame_has_the_lists_of_the_users_in_their_order(fitted: ir.Recommender) -> None:
    users = [9, 4, 17]
    frame = fitted.recommend_frame(users, k=3)
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == ["user_id", "item_id", "rank", "score"]
    expected = [pick.item for user in users for pick in fitted.recommend(user, k=3)]
    assert frame["item_id"].to_list() == expected
    assert frame["rank"].to_list() == [1, 2, 3] * 3
    assert fitted.recommend_frame(k=2)["user_id"].n_unique() == DATA.n_users


def test_the_frame_is_of_the_kind_that_went_in() -> None:
    found = ir.fit(pd.DataFrame(TABLE), EASE, progress=False)
    users = pd.Series([9, 4])
    frame = found.recommend_frame(users, k=2, without=[3])
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["user_id"]) == [9, 9, 4, 4]
    bare = ir.Recommender(found.run)
    assert isinstance(bare.recommend_frame(users, k=2), pd.DataFrame)
    assert isinstance(bare.recommend_frame([9], k=2), pl.DataFrame)


def test_titles_are_a_column_where_there_are_some() -> None:
    titles = {int(item): f"film {item}" for item in range(80)}
    found = ir.fit(pl.DataFrame(TABLE), EASE, progress=False, titles=titles)
    lists = found.recommend_frame([1], k=4)
    assert lists["title"].to_list() == [f"film {item}" for item in lists["item_id"]]
    with pytest.raises(ir.ItemfoldError, match="'user' must be a user of the training data"):
        found.recommend_frame([999])


def test_keep_all_with_a_validation_part_trains_on_the_rest_and_refits_on_everything() -> None:
    split = ir.keep_all(DATA, valid=0.1, seed=1)
    assert split.valid is not None
    assert split.train.nnz + split.valid.target.nnz == len(DATA)
    assert split.refit().train.nnz == len(DATA)
    assert len(split.test) == 0
    assert "valid" not in ir.keep_all(DATA).settings  # as in older runs
    with pytest.raises(ir.ItemfoldError, match="'valid' must be 0 in the inductive protocol"):
        ir.keep_all(DATA, valid=0.1, protocol="inductive")
