"""Weights of interactions: against a naive loop, through every split, and as columns of files."""

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.describe import describe
from itemfold.data.weights import half_life_seconds
from itemfold.errors import ItemfoldError

DAY = 86400.0
rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0.1, 1000), st.floats(0, 400 * DAY)),
    min_size=1,
    max_size=20,
)


def frame(table: list[tuple]) -> pl.DataFrame:
    return pl.DataFrame(table, schema=["user", "item", "plays", "time"], orient="row")


def weight_of(data: ir.Interactions) -> dict[tuple[int, int], float]:
    users, items = data.user_ids.ids[data.users], data.item_ids.ids[data.items]
    return dict(zip(zip(users.tolist(), items.tolist(), strict=True), data.weights, strict=True))


@given(rows, st.sampled_from(["merge", "sum"]), st.sampled_from(["log", "none"]), st.booleans())
def test_weights_equal_a_naive_loop(table, duplicates, transform, recent):
    data = ir.read(
        frame(table),
        weight="plays",
        duplicates=duplicates,
        weight_transform=transform,
        half_life="30d" if recent else None,
    )
    now = max(row[3] for row in table)
    for pair, found in weight_of(data).items():
        own = [row for row in table if row[:2] == pair]
        last = max(row[3] for row in own)

        def half(seconds: float) -> float:
            return 0.5 ** (seconds / (30 * DAY)) if recent else 1.0

        if duplicates == "sum":
            value = sum(plays * half(last - time) for *_, plays, time in own)
        else:
            value = max(plays for *_, plays, _ in own)
        expected = (np.log(1 + value) if transform == "log" else value) * half(now - last)
        assert found == pytest.approx(expected, rel=1e-9)


def test_a_sum_without_a_column_counts_rows():
    data = ir.read(
        frame([(0, 0, 9.0, 0.0), (0, 0, 9.0, 0.0), (0, 1, 9.0, 0.0)]),
        duplicates="sum",
        weight_transform="none",
    )
    assert weight_of(data) == {(0, 0): 2.0, (0, 1): 1.0}
    assert data.duplicates == 1


def test_without_options_there_are_no_weights():
    data = ir.read(frame([(0, 0, 9.0, 0.0), (0, 0, 9.0, 5.0), (1, 1, 2.0, 1.0)]))
    assert data.weights is None
    assert not data.weighting
    assert describe(data).weights is None


STRATEGIES = {
    "interactions": ir.split_interactions,
    "users": ir.split_users,
    "time": ir.split_by_time,
    "last": ir.leave_last_out,
    "all": ir.keep_all,
}


def raw_matrix(data: ir.Interactions) -> np.ndarray:
    out = np.zeros((data.n_users, data.n_items))
    out[data.users, data.items] = data.weights
    return out


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_follow_their_pairs_into_every_part(strategy):
    data = ir.load("synthetic:users=60,items=80,interactions=900", half_life="5y")
    split = STRATEGIES[strategy](data)
    assert split.train.data.mean() == pytest.approx(1, rel=1e-5)
    assert split.train.dtype == np.float32
    raw, columns = raw_matrix(data), data.item_ids.index(split.item_ids.ids)
    whole = raw[data.user_ids.index(split.user_ids.ids)][:, columns]
    scale = split.train.data.sum() / whole[split.train.toarray() > 0].sum()
    parts = [(split.train, split.user_ids.ids)]
    for held in (split.valid, split.test):
        if held is not None and len(held):
            parts += [(held.history, held.ids), (held.target, held.ids)]
    for part, ids in parts:
        found = part.toarray()
        expected = raw[data.user_ids.index(ids)][:, columns] * scale
        np.testing.assert_allclose(found[found > 0], expected[found > 0], rtol=1e-4)


def test_the_same_pairs_are_held_out_with_and_without_weights():
    name = "synthetic:users=60,items=80,interactions=900"
    plain, weighted = (ir.split_interactions(ir.load(name, **w)) for w in ({}, {"half_life": "9d"}))
    assert np.array_equal(plain.train.indices, weighted.train.indices)
    assert np.array_equal(plain.test.target.indices, weighted.test.target.indices)
    assert (plain.train.data == 1).all()
    assert (plain.valid.history.data == 1).all()
    assert plain.dataset["fingerprint"] == weighted.dataset["fingerprint"]  # they can be compared


def test_a_refit_and_a_cold_start_keep_the_weights():
    data = ir.load("synthetic:users=60,items=80,interactions=900", half_life="5y")
    split = ir.split_interactions(data)
    held = sp.csr_array(
        (split.valid.target.data, split.valid.target.indices, split.valid.target.indptr),
        shape=split.valid.target.shape,
    ).toarray()
    grown = split.train.toarray()
    grown[split.valid.users] += held
    np.testing.assert_array_equal(split.refit().train.toarray(), grown)
    cold = ir.cold_start(split, keep=0.3).train.toarray()
    assert (cold[cold > 0] == split.train.toarray()[cold > 0]).all()


def test_very_old_interactions_keep_a_weight_above_zero():
    table = [(u, i, 1.0, 1e9 * (u == 0)) for u in range(6) for i in range(6)]
    split = ir.keep_all(ir.read(frame(table), half_life="1h"))
    assert split.train.nnz == 36
    assert (split.train.data > 0).all()


def test_filters_keep_the_weights_of_what_remains():
    data = ir.load("synthetic:users=60,items=80,interactions=900", half_life="5y")
    before, after = weight_of(data), weight_of(data.k_core(8))
    assert 0 < len(after) < len(before)
    assert all(before[pair] == weight for pair, weight in after.items())


# --- columns and errors --------------------------------------------------------------------------


def test_bad_weights_are_reported_with_their_line_or_left_out(tmp_path: Path):
    file = tmp_path / "plays.csv"
    file.write_text("user,item,plays\na,x,3\nb,x,0\nc,y,-1\nd,y,many\ne,z,2\n")
    with pytest.raises(ItemfoldError, match=r"line 3: the weight must be a positive number, got 0"):
        ir.read(file, weight="plays")
    data = ir.read(file, weight="plays", skip_bad_rows=True)
    assert len(data) == 2
    assert sum(data.skipped.values()) == 3
    assert len(ir.read(file)) == 5  # the column is not looked at


def test_a_column_may_be_both_rating_and_weight(tmp_path: Path):
    file = tmp_path / "ratings.csv"
    file.write_text("user,item,rating\na,x,4\na,y,1\nb,x,3\n")
    data = ir.read(file, weight="rating", weight_transform="none", min_rating=3)
    assert weight_of(data) == {("a", "x"): 4.0, ("b", "x"): 3.0}
    assert data.source["weight"] == "rating"
    assert "half_life" not in data.source


def test_entries_of_a_matrix_can_be_weights():
    matrix = sp.csr_array([[5.0, 0], [1.0, 3.0]])
    data = ir.read(matrix, weight="value", weight_transform="none")
    assert sorted(data.weights) == [1, 3, 5]
    with pytest.raises(ItemfoldError, match="'weight' must be 'value' for a matrix"):
        ir.read(matrix, weight="plays")


@pytest.mark.parametrize("text", ["30", "d", "-3d", "0d", "30 days", "", "1e3d"])
def test_half_lives_need_a_unit(text):
    with pytest.raises(ItemfoldError, match="'half_life' must be a duration such as"):
        half_life_seconds(text)


def test_half_lives_may_be_timedeltas():
    name = "synthetic:users=60,items=80,interactions=900"
    one, two = (ir.load(name, half_life=h) for h in ("36h", "1.5d"))
    np.testing.assert_allclose(one.weights, two.weights)
    table = frame([(0, 0, 1.0, 0.0), (0, 1, 1.0, DAY)])
    data = ir.read(table, half_life=dt.timedelta(days=1))
    assert weight_of(data) == pytest.approx({(0, 0): 0.5, (0, 1): 1.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"duplicates": "add"}, "'duplicates' must be merge or sum, got 'add'"),
        ({"weight": "plays", "weight_transform": "sqrt"}, "'weight_transform' must be log or none"),
        ({"weight_transform": "log"}, "'weight_transform' needs weights to transform"),
        ({"half_life": 30}, "'half_life' must be a duration"),
        ({"weight": "nope"}, "no column 'nope'"),
    ],
)
def test_wrong_settings_are_rejected_by_name(settings, message):
    with pytest.raises(ItemfoldError, match=message):
        ir.read(frame([(0, 0, 1.0, 0.0)]), **settings)


def test_recency_needs_times():
    with pytest.raises(ItemfoldError, match="'half_life' needs timestamps, and 'data' has none"):
        ir.read(frame([(0, 0, 1.0, 0.0)]).drop("time"), half_life="30d")
    with pytest.raises(ItemfoldError, match="'weight' has no effect on 'synthetic', which is gen"):
        ir.load("synthetic", weight="rating")


def test_describe_gives_the_distribution():
    table = [(u, i, 1000.0 if (u, i) == (0, 0) else 1.0, 0.0) for u in range(9) for i in range(9)]
    found = describe(ir.read(frame(table), weight="plays", weight_transform="none"))
    assert found.weights.made_of == "column plays"
    assert found.weights.quantiles["50%"] == pytest.approx(81 / 1080, rel=1e-3)
    assert found.weights.effective == pytest.approx(1080**2 / 1000080, abs=0.06)
    assert any("few interactions have most of the weight" in w for w in found.warnings)
    assert (
        "log(1 + column plays)" in describe(ir.read(frame(table), weight="plays")).weights.made_of
    )
