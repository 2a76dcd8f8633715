"""Models as implicit, RecTools and scikit-learn users expect them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from small import checkerboard

import itemfold as ir
from itemfold.environment import pick_device
from itemfold.models import MODELS, Model

BOARD = checkerboard()
QUICK: dict[str, dict[str, Any]] = {"lightgcn": {"dim": 8}, "mf": {"dim": 8}}


def plays(seed: int = 0, users: int = 50, items: int = 30) -> sp.csr_matrix:
    """Numbers of plays: two groups of users, each with its half of the items."""
    rng = np.random.default_rng(seed)
    own = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    counts = rng.integers(1, 20, (users, items)) * (rng.random((users, items)) < 0.6) * own
    return sp.csr_matrix(counts.astype(np.float32))


# --- implicit ------------------------------------------------------------------------------------


def test_the_quick_start_of_implicit_runs_with_another_import_and_class() -> None:
    user_plays, artists = plays(), np.array([f"artist {i}" for i in range(30)])

    model = ir.models.IALS(dim=8, l2=0.05)
    model.fit(user_plays)

    userid = 12
    ids, scores = model.recommend(
        userid, user_plays[userid], N=10, filter_already_liked_items=False
    )
    table = pd.DataFrame(
        {
            "artist": artists[ids],
            "score": scores,
            "already_liked": np.isin(ids, user_plays[userid].indices),
        }
    )
    assert table["already_liked"].any()
    assert table["score"].is_monotonic_decreasing

    ids, scores = model.recommend(userid, user_plays[userid])
    assert ids.shape == scores.shape == (10,)
    assert not np.isin(ids[np.isfinite(scores)], user_plays[userid].indices).any()
    assert (ids[:3] % 2 == userid % 2).all()  # the user's own half

    itemid = 4
    ids, scores = model.similar_items(itemid)
    assert itemid not in ids
    assert (ids[:3] % 2 == itemid % 2).all()

    userids = np.arange(40)
    ids, scores = model.recommend(userids, user_plays[userids])
    assert ids.shape == (40, 10)
    one, alone = model.recommend(7, user_plays[7])
    np.testing.assert_array_equal(ids[7], one)
    np.testing.assert_allclose(scores[7], alone, rtol=1e-4)


def test_lists_are_the_best_of_the_scores_that_are_left() -> None:
    """The oracle sorts the scores of the model itself."""
    likes = sp.csr_array((plays(3) > 0).astype(np.float32))
    model = ir.models.EASE(l2=5.0).fit(likes)
    users = np.array([4, 9, 1])
    allowed, dropped = [1, 2, 3, 5, 8, 13, 21], [3, 8]
    ids, scores = model.recommend(
        users, likes[users], N=4, items=np.array(allowed), filter_items=dropped
    )
    expected = model.scores(likes[users], users).numpy()
    for row, user in enumerate(users):
        seen = set(likes[[user]].indices.tolist())
        left = [item for item in allowed if item not in seen and item not in dropped]
        left = sorted(left, key=lambda item: (-expected[row, item], item))[:4]
        assert ids[row][: len(left)].tolist() == left
        assert (ids[row][len(left) :] == -1).all()
        assert np.isneginf(scores[row][len(left) :]).all()
        np.testing.assert_allclose(scores[row][: len(left)], expected[row, left], rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(0, 49), min_size=1, max_size=8, unique=True))
def test_a_batch_is_its_users_one_by_one_and_never_lists_what_they_like(
    n: int, users: list[int]
) -> None:
    likes = sp.csr_array((plays(1) > 0).astype(np.float32))
    model = _fitted_ease()
    ids, _ = model.recommend(users, likes[users], N=n)
    assert ids.shape == (len(users), min(n, 30))
    for row, user in enumerate(users):
        alone, _ = model.recommend(user, likes[[user]], N=n)
        np.testing.assert_array_equal(ids[row], alone)
        kept = ids[row][ids[row] >= 0]
        assert len(set(kept.tolist())) == len(kept)
        assert not np.isin(kept, likes[[user]].indices).any()


_EASE: list[Model] = []


def _fitted_ease() -> Model:
    if not _EASE:
        _EASE.append(ir.models.EASE(l2=5.0).fit(sp.csr_array((plays(1) > 0).astype(np.float32))))
    return _EASE[0]


def test_a_new_user_is_scored_by_the_items_given() -> None:
    likes = sp.csr_array((plays(1) > 0).astype(np.float32))
    model = _fitted_ease()
    row = sp.csr_array(([1.0, 1.0], ([0, 0], [2, 6])), shape=(1, 30))
    ids, _ = model.recommend(999, row, N=5)
    found = ir.Recommender(model.run_).recommend(history=[2, 6], k=5)
    assert ids.tolist() == [pick.item for pick in found]
    folded, _ = model.recommend(0, row, N=5, recalculate_user=True)
    np.testing.assert_array_equal(folded, ids)
    trained, _ = model.recommend(0, row, N=5)
    expected = np.argsort(-model.scores(likes[[0]], np.array([0])).numpy()[0], kind="stable")
    assert trained.tolist() == [item for item in expected.tolist() if item not in (2, 6)][:5]


def test_entries_of_a_matrix_are_weights_as_in_implicit() -> None:
    counts = plays()
    weighted = ir.models.IALS(dim=8).fit(counts)
    ones = ir.models.IALS(dim=8).fit((counts > 0).astype(np.float32))
    assert weighted.run_.interactions.data.std() > 0.1
    assert (ones.run_.interactions.data == 1).all()
    ratio = weighted.run_.interactions.data / sp.csr_array(counts).data
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
    with pytest.warns(UserWarning, match="MultVAE cannot use weights: every entry"):
        ir.models.MultVAE(hidden=8, latent=4).fit(counts, budget=1)
    with pytest.raises(ir.ItemfoldError, match="weights must be positive numbers, got -1"):
        ir.models.EASE().fit(sp.csr_array([[1, -1], [1, 1]]))


# --- RecTools ------------------------------------------------------------------------------------


def ratings() -> pd.DataFrame:
    names = {"user_id": BOARD.user_ids.ids[BOARD.users], "item_id": BOARD.item_ids.ids[BOARD.items]}
    return pd.DataFrame({**names, "weight": 1.0, "datetime": "2024-01-01"})


def test_the_quick_start_of_rectools_runs_with_another_import_and_class() -> None:
    table = ratings()
    dataset = ir.read(table)

    model = ir.models.ItemKNN(neighbours=10)
    model.fit(dataset)

    recos = model.recommend(
        users=table["user_id"].unique(), dataset=dataset, k=10, filter_viewed=True
    )
    assert isinstance(recos, pd.DataFrame)
    assert {"user_id", "item_id", "score", "rank"} <= set(recos.columns)
    assert recos["user_id"].nunique() == BOARD.n_users
    seen = set(zip(table["user_id"], table["item_id"], strict=True))
    assert not seen & set(zip(recos["user_id"], recos["item_id"], strict=True))
    assert (recos.groupby("user_id")["score"].diff().dropna() <= 0).all()
    again = model.recommend(
        users=table["user_id"].unique(), dataset=dataset, k=10, filter_viewed=False
    )
    assert seen & set(zip(again["user_id"], again["item_id"], strict=True))


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_go_in_and_ids_come_out(library: Any) -> None:
    frame = library.DataFrame({name: list(column) for name, column in ratings().items()})
    frame = (
        frame.rename({"user_id": "who"})
        if library is pl
        else frame.rename(columns={"user_id": "who"})
    )
    model = ir.models.EASE(l2=5.0).fit(frame, user="who")
    ids, scores = model.recommend("u3", N=4)
    assert ids.shape == scores.shape == (4,)
    many, _ = model.recommend(["u3", "u5"], frame, N=4)
    np.testing.assert_array_equal(many[0], ids)
    lists = model.recommend(["u3"], dataset=frame, k=4)
    assert isinstance(lists, library.DataFrame)
    assert list(lists["item_id"]) == ids.tolist()


# --- scikit-learn --------------------------------------------------------------------------------


def cloned(estimator: Any) -> Any:
    """What `sklearn.base.clone` does with an estimator, or with one of its parameters."""
    if not hasattr(estimator, "get_params"):
        return estimator
    params = {name: cloned(value) for name, value in estimator.get_params(deep=False).items()}
    made = type(estimator)(**params)
    for name, value in made.get_params(deep=False).items():
        assert value is params[name] or value == params[name], name
    return made


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_cloned_by_its_params(name: str) -> None:
    model = MODELS[name]()
    copy = cloned(model)
    assert type(copy) is type(model)
    assert copy.record() == model.record()
    assert model.__sklearn_clone__().record() == model.record()
    assert all(callable(getattr(model, verb)) for verb in ("fit", "recommend", "similar_items"))
    assert model.set_params(**model.get_params(deep=False)).record() == copy.record()


def test_params_of_models_within_have_two_underscores() -> None:
    model = ir.models.Hybrid(gnn=ir.models.LightGCN(dim=8), linear=ir.models.RLAE(l2=50.0))
    assert model.get_params()["linear__l2"] == 50.0
    model.set_params(gnn__dim=16, norm=1.0)
    assert model.get_params()["gnn__dim"] == 16
    assert model.norm == 1.0
    assert model.gnn.dim == 16
    for change, sentence in (
        ({"factors": 3}, "Hybrid has no setting 'factors'; its settings are: gnn, linear"),
        ({"norm": -1.0}, "'norm' must be a number of at least 0"),
        ({"blend__x": 1}, "'blend__x' needs a model as 'blend', got None"),
    ):
        with pytest.raises(ir.ItemfoldError, match=sentence):
            model.set_params(**change)
        assert model.norm == 1.0


def test_fitting_leaves_the_params_as_they_were_given() -> None:
    model = ir.models.RLAE()
    likes = sp.csr_array((plays(1) > 0).astype(np.float32))
    assert model.fit(likes) is model
    assert model.get_params()["l2"] is None
    assert model.run_.model.l2 is not None
    first = model.recommend([1, 2], N=5)[0]
    np.testing.assert_array_equal(model.fit(likes).recommend([1, 2], N=5)[0], first)
    model.set_params(l2=3.0)
    with pytest.raises(ir.ItemfoldError, match="'recommend' needs a fitted model"):
        model.recommend(1)


@pytest.mark.parametrize("name", ["lightgcn", "mf", "hybrid", "popularity", "gf-cf", "slim"])
def test_a_saved_model_gives_the_same_lists(name: str, tmp_path: Path) -> None:
    likes = sp.csr_array((plays(2, users=30) > 0).astype(np.float32))
    model = MODELS[name](**QUICK.get(name, {})).fit(likes, budget=2)
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    ids, scores = model.recommend(np.arange(30), likes, N=6)
    found, values = again.recommend(np.arange(30), likes, N=6)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(values, scores, rtol=1e-4, atol=1e-5)
    assert not list((tmp_path / "model").glob("*.pt"))
    other = "EASE" if name != "ease" else "MF"
    with pytest.raises(ir.ItemfoldError, match=f"not {other}"):
        getattr(ir.models, other).load(tmp_path / "model")


# --- mistakes ------------------------------------------------------------------------------------

LIKES = sp.csr_array((plays(1) > 0).astype(np.float32))
MISTAKES: dict[str, tuple[Any, str]] = {
    "an array": (
        lambda: ir.models.EASE().fit(LIKES.toarray()),
        r"'user_items' must be a sparse matrix or a table, got an array; .*csr_array\(user_items\)",
    ),
    "a frame without users": (
        lambda: ir.models.EASE().fit(pd.DataFrame({"a": [1], "b": [2]})),
        "the frame: no user column",
    ),
    "not fitted": (lambda: ir.models.EASE().similar_items(3), "needs a fitted model: call fit"),
    "the whole matrix": (
        lambda: _fitted_ease().recommend([1, 2], LIKES),
        r"one row for each of the 2 users, got 50; give user_items\[users\]",
    ),
    "other items": (
        lambda: _fitted_ease().recommend(1, LIKES[[1], :20]),
        "must have the 30 items that the model was fitted to, got 20 columns",
    ),
    "unknown user": (lambda: _fitted_ease().recommend(50), "'users' must be users .* got 50"),
    "unknown item": (
        lambda: _fitted_ease().recommend(1, items=[31]),
        "'items' must be items of the training data, got 31",
    ),
    "no items": (lambda: _fitted_ease().recommend(1, N=0), "'N' must be a positive integer, got 0"),
    "a new user of a model with user vectors": (
        lambda: ir.models.MF(dim=4).fit(LIKES, budget=1).recommend(70, LIKES[[1]]),
        "MF cannot score an unseen user",
    ),
    "k without dataset": (lambda: _fitted_ease().recommend(1, k=3), "need 'dataset'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(name: str) -> None:
    call, sentence = MISTAKES[name]
    with pytest.raises(ir.ItemfoldError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_titles_may_be_a_frame(library: Any) -> None:
    frame = library.DataFrame({"item_id": [0, 1], "title": ["Alien", "Heat"]})
    data = ir.read(LIKES, titles=frame)
    assert data.titles.tolist()[:3] == ["Alien", "Heat", ""]


def test_an_old_model_with_fit_is_still_a_closed_form() -> None:
    with pytest.warns(FutureWarning, match="Old: 'fit' is now 'solve'; the old name still works"):

        class Old(Model):
            kind = ir.models.Kind.CLOSED_FORM

            def fit(self, train: sp.csr_array) -> None:
                import torch

                self.store("counts", torch.from_numpy(train.sum(axis=0).astype(np.float32)))

            def scores(self, history: sp.csr_array, users: Any) -> Any:
                return self.counts.repeat(len(users), 1)

    counts = LIKES.sum(axis=0)
    ids, _ = Old().fit(LIKES).recommend(1, N=3, filter_already_liked_items=False)
    assert counts[ids].tolist() == sorted(counts.tolist(), reverse=True)[:3]


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("mps", "Apple's mps has no 64-bit numbers, which training needs; use cpu"),
        ("xpu:0", "Intel's xpu"),
        ("tpu", "'device' must be cpu, cuda or auto, got 'tpu'"),
        ("meta", "'device' must be cpu, cuda or auto, got 'meta'"),
    ],
)
def test_a_device_that_cannot_train_is_rejected_in_one_sentence(device: str, sentence: str) -> None:
    with pytest.raises(ir.ItemfoldError, match=sentence):
        pick_device(device)


def test_splits_have_a_namespace_and_keep_their_old_names() -> None:
    assert ir.splits.by_time is ir.split_by_time
    assert ir.splits.users is ir.split_users
    assert ir.splits.keep_all is ir.keep_all
    old = [n for n in ir.__all__ if n.startswith("split_")] + ["keep_all", "leave_last_out"]
    assert {getattr(ir, name) for name in old} <= {getattr(ir.splits, n) for n in ir.splits.__all__}


def test_the_interactions_of_a_run_have_their_old_name_too() -> None:
    run = ir.train(ir.splits.users(BOARD), ir.models.Popularity())
    assert run.train is run.interactions
    recommender = ir.Recommender(run)
    assert recommender.train is recommender.interactions
