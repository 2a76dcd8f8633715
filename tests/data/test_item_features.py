"""Kinds of columns, and what does not depend on how a table is written."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_matrix import FeatureEncoder
from itemfold.data.items.item_features import ItemFeatures, read_item_features

FILMS = """movieId,title,genres,price,studio,opened
1,Toy Story (1995),Animation|Children,3.5,Pixar,1995-11-22
2,"Matrix, The (1999)",Action|Sci-Fi,,Warner,1999-03-31
3,Toy Story 2 (1999),Animation,4,Pixar,1999-11-24
4,Solaris (1972),(no genres listed),2,Mosfilm,1972-02-05
5,Stalker (1979),Sci-Fi,2,Mosfilm,1979-05-25
6,Cars (2006),Animation,5,Pixar,2006-06-09
"""


def kinds(features: ItemFeatures) -> dict[str, str]:
    return {column.name: column.kind for column in features.columns}


def values(features: ItemFeatures, name: str) -> list:
    return list(next(c for c in features.columns if c.name == name).values)


def test_each_column_of_a_file_has_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "films.csv"
    path.write_text(FILMS)
    films = read_item_features(path)
    assert kinds(films) == {
        "title": "text",
        "title (year)": "number",
        "genres": "category",
        "price": "number",
        "studio": "category",
        "opened": "number",
    }
    assert films.ids.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert values(films, "genres")[3] == ()
    assert np.isnan(values(films, "price")[1])
    assert values(films, "title (year)")[:2] == [1995, 1999]
    for name in kinds(films):
        assert f"{name}: " in films.account()


def test_a_table_means_the_same_in_every_format(tmp_path: Path) -> None:
    csv, tsv, parquet = (tmp_path / f"films.{kind}" for kind in ("csv", "tsv", "parquet"))
    csv.write_text(FILMS)
    frame = pl.read_csv(csv)
    frame.write_csv(tsv, separator="\t")
    frame.write_parquet(parquet)
    first = read_item_features(csv)
    for source in (tsv, parquet, frame, frame.to_pandas()):
        other = read_item_features(source)
        assert other.account() == first.account()
        assert other.ids.ids.tolist() == first.ids.ids.tolist()


def test_vectors_are_lists_or_numbered_columns() -> None:
    lists = pl.DataFrame({"item": [1, 2], "e": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]})
    columns = pl.DataFrame(
        {"item": [1, 2], "e_0": [1.0, 4.0], "e_1": [2.0, 5.0], "e_2": [3.0, 6.0]}
    )
    for frame in (lists, columns):
        features = read_item_features(frame)
        assert kinds(features) == {"e": "vector"}
        np.testing.assert_array_equal(features.columns[0].values, [[1, 2, 3], [4, 5, 6]])


def test_types_in_names_and_lists_of_texts() -> None:
    frame = pl.DataFrame({"item_id:token": ["a", "b"], "class:token": [7, 8]})
    assert kinds(read_item_features(frame)) == {"class": "category"}
    lists = pl.DataFrame({"item": [1, 2], "tags": [["x", "y"], []]})
    assert values(read_item_features(lists), "tags") == [("x", "y"), ()]


def test_the_item_column_is_named_known_or_first() -> None:
    frame = pl.DataFrame({"sku": ["x", "y"], "price": [1, 2], "other": ["p", "q"]})
    assert read_item_features(frame).ids.ids.tolist() == ["x", "y"]
    assert read_item_features(frame, item="other").ids.ids.tolist() == ["p", "q"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"item": [1, 1], "x": [1, 2]}, "item ids must be unique, got several rows of '1'"),
        ({"item": [1, None], "x": [1, 2]}, "row 2: the item id is missing"),
        ({"item": [1, 2]}, "expected an item column and features"),
        ({"item": [1, 2], "x": [None, None]}, "no column can be used as a feature: x is empty"),
        ({"item": [1, 2], "e": [[1.0], [1.0, 2.0]]}, "e must have 2 numbers, got 1"),
    ],
)
def test_a_table_that_cannot_be_used_is_rejected(frame: dict, message: str) -> None:
    with pytest.raises(ir.ItemfoldError, match=message):
        read_item_features(pl.DataFrame(frame))


def test_features_of_other_items_than_the_data_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "films.csv"
    path.write_text("item,x\nnobody,1\nnothing,2\n")
    with pytest.raises(ir.ItemfoldError, match="got 2 ids and none is among its"):
        ir.load("synthetic:users=20,items=30,interactions=150", item_features=path)


def test_a_later_table_is_read_as_the_first_was(tmp_path: Path) -> None:
    path = tmp_path / "films.csv"
    path.write_text(FILMS)
    first = read_item_features(path)
    one = pl.DataFrame({"movieId": [9], "title": ["Toy Story 3 (2010)"], "genres": ["Animation"]})
    later = read_item_features(one, like=first)
    assert kinds(later) == kinds(first)  # one row alone would make the genre a text
    assert values(later, "genres") == [("Animation",)]
    assert values(later, "title (year)") == [2010]
    assert np.isnan(values(later, "price")[0])
    with pytest.raises(ir.ItemfoldError, match="at least one of the columns title"):
        read_item_features(pl.DataFrame({"movieId": [9], "colour": ["red"]}), like=first)


@given(st.permutations(range(6)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    frame = pl.DataFrame(
        {"item": range(6), "title": [f"film {n % 4} of {n}" for n in range(6)], "x": range(6)}
    )
    ids = IdMap(np.arange(6))
    one, two = (read_item_features(table).of(ids) for table in (frame, frame[order]))
    a, b = (FeatureEncoder(features)(features) for features in (one, two))
    np.testing.assert_array_equal(a.regressors.toarray(), b.regressors.toarray())
    np.testing.assert_array_equal(a.words.toarray(), b.words.toarray())


def test_what_no_known_item_has_does_not_count() -> None:
    known = read_item_features(
        pl.DataFrame({"item": range(4), "kind": ["a|b", "a", "b", "a"], "x": [1.0, 2.0, 3.0, 4.0]})
    )
    encode = FeatureEncoder(known)
    strange = pl.DataFrame({"item": [9], "kind": ["zebra"], "x": [None]})
    assert not encode(read_item_features(strange, like=known)).regressors.nnz
    far = pl.DataFrame({"item": [9], "kind": ["a"], "x": [1e9]})  # no further than the last known
    rows = [encode(read_item_features(t, like=known)).regressors.toarray() for t in
            (far, pl.DataFrame({"item": [9], "kind": ["a"], "x": [4.0]}))]  # fmt: skip
    np.testing.assert_array_equal(*rows)
