"""Lists and functions of other libraries are evaluated as a model with the same lists is."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.interactions import IdMap
from itemfold.evaluation.lists import Lists, lists_of, read_lists

DATA = ir.load("synthetic:users=120,items=60,interactions=2000")
VISITS = np.random.default_rng(0).zipf(1.3, (3000, 2)) % [60, 40]
VISITS_AT = pl.DataFrame(VISITS, schema=["user", "item"]).with_row_index("time")
SPLITS = {
    "known": ir.split_interactions(DATA),
    "unseen": ir.split_users(DATA, test=0.3),
    "window": ir.split_window(DATA),
    "repeats": ir.split_by_time(ir.read(VISITS_AT, time="time"), repeats=True),
}


@pytest.fixture(scope="module", params=SPLITS)
def pair(request) -> tuple[ir.Split, ir.Run]:
    split = SPLITS[request.param]
    return split, ir.train(split, ir.models.EASE(), refit=False)


def frame_of(run: ir.Run, split: ir.Split, k: int = 20) -> pl.DataFrame:
    """The lists of a run, ranked by numpy alone."""
    held = split.test
    scores = run.model.scores(held.history, held.users).numpy().copy()
    if not held.repeats:
        scores[held.history.toarray() != 0] = -np.inf
    if held.excluded is not None:
        scores[held.excluded.toarray() != 0] = -np.inf
    rows = []
    for at, user in enumerate(held.ids.tolist()):
        best = np.lexsort((np.arange(scores.shape[1]), -scores[at]))[:k]
        for rank, item in enumerate(best.tolist(), start=1):
            if np.isfinite(scores[at, item]):
                shown = split.item_ids.ids[item]
                rows.append((user, shown, rank, float(scores[at, item])))
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rank", "score"], orient="row")


def test_lists_of_a_run_have_its_metrics(pair):
    split, run = pair
    expected = ir.evaluate(run, split)
    frame = frame_of(run, split)
    for given_lists in (
        frame.drop("score").sample(fraction=1, shuffle=True, seed=1),  # by rank
        frame.drop("rank"),  # the best score first, equal ones in the order of the rows
        frame.select("user_id", "item_id"),  # the order of the rows
        frame.to_pandas(),
        frame.to_arrow(),
        frame.lazy(),
        frame.with_columns(pl.all().cast(pl.String)),
    ):
        found = ir.evaluate(given_lists, split)
        assert found.metrics == pytest.approx(expected.metrics, abs=1e-6)
        for name, values in expected.per_user.items():
            np.testing.assert_allclose(found.per_user[name], values, atol=1e-6)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.notes == ()


def test_a_function_has_the_metrics_of_the_model_that_it_calls(pair):
    split, run = pair
    expected = ir.evaluate(run, split, metrics=["ndcg@10", "ap", "coverage@10", "diversity@5"])
    names = list(expected.metrics)
    for function in (
        run.model.scores,
        lambda history, users: run.model.scores(history, users).numpy(),
        lambda history, users: run.model.scores(history, users).tolist(),
    ):
        found = ir.evaluate(function, split, metrics=names)
        assert found.metrics == pytest.approx(expected.metrics)


def test_a_function_of_factors_trained_elsewhere():
    """A factorisation by numpy, with rows of `split.train` as users."""
    split = SPLITS["known"]
    left, values, right = np.linalg.svd(split.train.toarray(), full_matrices=False)
    users, items = left[:, :8] * values[:8], right[:8]
    found = ir.evaluate(lambda history, rows: users[rows] @ items, split, k=10)
    scores, held = users @ items, split.test
    for row, value in enumerate(found.per_user["recall@10"]):
        seen, wanted = set(held.history[[row]].indices), set(held.target[[row]].indices)
        ranked = [i for i in np.argsort(-scores[held.users[row]]) if i not in seen]
        assert value == pytest.approx(len(wanted & set(ranked[:10])) / len(wanted))


@given(
    seed=st.integers(0, 1000),
    depth=st.integers(1, 8),
    share=st.floats(0, 1),
    name=st.sampled_from(["known", "repeats"]),
)
@settings(max_examples=40, deadline=None)
def test_ranked_lists_equal_a_loop(seed, depth, share, name):
    """Unknown ids, items of histories, repeats and missing users, against a loop over rows."""
    held = SPLITS[name].test
    ids = SPLITS[name].item_ids
    rng = np.random.default_rng(seed)
    users = rng.choice([*held.ids.tolist()[:10], "nobody", held.ids[0]], 60)
    items = np.where(rng.random(60) < share, rng.choice(ids.ids, 60).astype(str), "no such item")
    top, _ = Lists(users, items).ranked(held, ids, depth)
    names = list(map(str, ids.ids))
    for at, user in enumerate(map(str, held.ids)):
        seen = set() if name == "repeats" else {names[i] for i in held.history[[at]].indices}
        expected, known = [], set()
        for who, item in zip(map(str, users), map(str, items), strict=True):
            if who == user and item not in seen and item not in known:
                expected.append(names.index(item) if item in names else -1)
                known |= {item} if item in names else set()
        expected = (expected + [-1] * depth)[:depth]
        assert top[at].tolist() == expected


def test_notes_count_what_does_not_count():
    split = SPLITS["known"]
    first, second = split.test.ids[:2].tolist()
    seen = [set(split.item_ids.ids[split.test.history[[row]].indices]) for row in (0, 1)]
    known = next(iter(seen[0]))
    new, other = (next(i for i in split.item_ids.ids if i not in items) for items in seen)
    users = [first, first, first, first, second, "x"]
    items = [known, new, new, "strange", other, new]
    found = ir.evaluate(pd.DataFrame({"user": users, "item": items}), split, k=5)
    notes = " ".join(found.notes)
    for text in (
        "Users of lists who are not in the test part, left out: 1.",
        f"Test users without a list, who count as 0: {len(found.ids) - 2}.",
        "Test users whose list has fewer than 5 items: 2.",
        "Items of histories in the lists, left out: 1.",
        "Repeated items in the lists, left out: 1.",
        "Unknown items in the lists, which count as misses: 1.",
    ):
        assert text in notes
    assert (found.per_user["ndcg@5"][2:] == 0).all()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"who": [1], "item": [2]}, "must have a column user, or user_id, got who, item"),
        ({"user": [1], "what": [2]}, "must have a column item, or item_id, got user, what"),
        ({"user": [], "item": []}, "has no recommendations"),
        ({"user": [1], "item": [2], "rank": ["first"]}, "every rank must be a number"),
        ({"user": [1], "item": [2], "score": [None]}, "every score must be a number"),
        ({"user": ["x"], "item": [2]}, "must be of users of the test part, such as"),
    ],
)
def test_bad_frames_are_one_sentence(frame, message):
    with pytest.raises(ir.ItemfoldError, match=message):
        ir.evaluate(pl.DataFrame(frame, strict=False), SPLITS["known"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda history, users: np.zeros(3), r"must return scores of shape \(\d+, 60\)"),
        (lambda history, users: np.full(history.shape, np.nan), "got NaN"),
        (lambda history, users: "scores", "'run' must return scores, got"),
    ],
)
def test_bad_functions_are_one_sentence(function, message):
    with pytest.raises(ir.ItemfoldError, match=message):
        ir.evaluate(function, SPLITS["known"])


def test_other_misuse():
    split = SPLITS["known"]
    frame = frame_of(ir.train(split, ir.models.EASE(), refit=False), split)
    with pytest.raises(ir.ItemfoldError, match="'ap' needs the whole ranking: use ap@20"):
        ir.evaluate(frame, split, metrics=["ap"])
    with pytest.raises(ir.ItemfoldError, match="'steering' needs a run or a model"):
        ir.evaluate(frame, split, steering=ir.Steering(diversity=0.5))
    for wrong in ("runs/r", 7, ir.models.EASE):
        with pytest.raises(ir.ItemfoldError, match="'run' must be a Run, a model, a frame"):
            ir.evaluate(wrong, split)


def test_files_of_lists(tmp_path):
    frame = pl.DataFrame({"user_id": ["007", "8"], "item_id": ["01", "2"], "score": [0.5, 0.1]})
    frame.write_csv(tmp_path / "x.csv")
    frame.write_csv(tmp_path / "x.tsv", separator="\t")
    frame.write_parquet(tmp_path / "x.parquet")
    for kind in ("csv", "tsv", "parquet"):
        found = lists_of(read_lists(tmp_path / f"x.{kind}"))
        assert found.users.tolist() == ["007", "8"]
        assert found.items.tolist() == ["01", "2"]
    with pytest.raises(ir.ItemfoldError, match="'--lists' must be a file"):
        read_lists(tmp_path / "no.csv")
    (tmp_path / "x.xls").write_text("x")
    with pytest.raises(ir.ItemfoldError, match=r"'--lists' must end in \.csv"):
        read_lists(tmp_path / "x.xls")


def test_ids_map_as_text():
    lists = Lists(np.array(["1", "1"], object), np.array(["2", "3"], object))
    held = SPLITS["known"].test
    assert IdMap(held.ids).index(lists.users).min() >= 0
