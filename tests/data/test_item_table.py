"""Tables of items and files of ids."""

import numpy as np
import polars as pl
import pytest

from itemfold.data.interactions import IdMap
from itemfold.data.items.item_table import ItemTable, as_number, read_ids, read_item_table
from itemfold.errors import ItemfoldError

ROWS = {"movieId": [7, 9], "year": [1995, None], "image url": ["https://x.example/7.jpg", ""]}


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_any_kind_of_table_gives_the_same_columns(tmp_path, kind):
    path, frame = tmp_path / f"items.{kind}", pl.DataFrame(ROWS)
    if kind == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="," if kind == "csv" else "\t")
    table = read_item_table(path)
    columns = table.columns_of(IdMap(np.array([9, 8, 7])))
    assert columns["year"] == ["", "", "1995"]
    assert columns["image url"] == ["", "", "https://x.example/7.jpg"]


def test_ids_come_from_lines_or_from_a_column(tmp_path):
    (tmp_path / "ids.txt").write_text("7\n\n 9 \n", encoding="utf-8")
    (tmp_path / "ids.csv").write_text("stock,item_id\n3,7\n1,9\n", encoding="utf-8")
    for name in ("ids.txt", "ids.csv"):
        assert read_ids("available", tmp_path / name) == ["7", "9"]
    table = read_item_table(available=tmp_path / "ids.txt")
    assert table.available_of(IdMap(np.array([9, 8, 7]))).tolist() == [True, False, True]
    assert read_item_table() is None
    assert ItemTable().available_of(IdMap(np.array([1]))) is None


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("none.csv", None, "'item_table' must be an existing file"),
        ("a.csv", "what,year\n1,2\n", "expected an item column; columns found: what, year"),
        ("a.csv", "item,year\n1,2,3\n", "line 2: expected 2 fields, found 3"),
        ("a.csv", "", "the file is empty; expected a table"),
    ],
)
def test_a_table_that_cannot_be_read_is_reported(tmp_path, name, text, sentence):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ItemfoldError, match=sentence):
        read_item_table(tmp_path / name)


def test_files_without_a_useful_id_are_rejected(tmp_path):
    (tmp_path / "ids.txt").write_text("\n")
    with pytest.raises(ItemfoldError, match="'available' must hold at least one id"):
        read_ids("available", tmp_path / "ids.txt")
    with pytest.raises(ItemfoldError, match="'available' must be an existing file"):
        read_ids("available", tmp_path / "none.txt")
    (tmp_path / "ids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ItemfoldError, match="must be text in UTF-8"):
        read_ids("available", tmp_path / "ids.txt")
    with pytest.raises(ItemfoldError, match="'available' must name at least one item"):
        ItemTable(available=["x"]).available_of(IdMap(np.array([1])))


def test_numbers_and_dates_order_items():
    assert as_number("date", "2024-02-01") < as_number("date", "2024-02-01T01:00:00")
    assert np.isnan(as_number("year", ""))
    with pytest.raises(ItemfoldError, match="'year' must be numbers or dates, got 'soon'"):
        as_number("year", "soon")
