"""Bad rows: reported all at once, or left out and counted."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import itemfold as ir
from itemfold.data.interactions import Interactions
from itemfold.errors import ItemfoldError

# one row with each problem, two without a user
TEXT = """user,item,rating,time
ann,x,4,2024-01-31
,x,4,2024-01-31
bob,,3,2024-01-31
bob,y,good,2024-01-31
bob,y,,2024-01-31
eve,y,5,soon
eve,y
 ,y,5,2024-01-31
bob,x,5,2024-02-01
"""
COUNTS = {
    "the user id is missing": 2,
    "the item id is missing": 1,
    "the rating must be a number": 1,
    "the rating is missing or not finite": 1,
    "the time must be seconds or a date like 2024-01-31": 1,
    "expected 4 fields separated by ',', as in the header": 1,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plays.csv"
    path.write_text(TEXT)
    return path


def pairs(data: Interactions) -> set[tuple[Any, Any]]:
    users, items = data.user_ids.ids[data.users], data.item_ids.ids[data.items]
    return set(zip(users.tolist(), items.tolist(), strict=True))


def test_bad_rows_are_left_out_and_counted_by_reason(path: Path) -> None:
    data = ir.read(path, skip_bad_rows=True)
    assert pairs(data) == {("ann", "x"), ("bob", "x")}
    assert data.ratings.tolist() == [4.0, 5.0]
    assert data.times[1] - data.times[0] == 86_400
    assert data.skipped == COUNTS
    (note,) = data.notes
    assert note.startswith("Rows that were left out: ")
    assert "the user id is missing (2)" in note


def test_without_the_option_all_problems_are_reported_at_once(path: Path) -> None:
    with pytest.raises(ItemfoldError) as caught:
        ir.read(path, rating="rating", time="time")
    text = str(caught.value)
    assert text.startswith(
        f"{path}, line 3: the user id is missing (2 such rows); line 4: the item"
    )
    for part in (
        "line 5: the rating must be a number, got 'good'",
        "line 6: the rating is missing or not finite",
        "line 7: the time must be seconds or a date like 2024-01-31, got 'soon'",
        "line 8: expected 4 fields separated by ',', as in the header, found 2: 'eve,y'",
        "--skip-bad-rows",
    ):
        assert part in text
    assert "\n" not in text


def test_rows_whose_only_fault_is_in_a_column_nobody_asked_for_are_kept_by_default(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item,rating\nann,x,4\nbob,y,\n")
    assert len(ir.read(path)) == 2
    assert len(ir.read(path, skip_bad_rows=True, min_rating=3)) == 1


def test_the_source_repeats_what_was_left_out(path: Path) -> None:
    data = ir.load(path, skip_bad_rows=True)
    assert data.source["skip_bad_rows"] is True
    assert ir.load(data.source.pop("data"), **data.source).fingerprint == data.fingerprint


def test_ids_are_of_the_same_kind_as_in_a_clean_file(tmp_path: Path) -> None:
    clean, gaps = tmp_path / "clean.csv", tmp_path / "gaps.csv"
    clean.write_text("user,item\n7,10\n12,9\n")
    gaps.write_text("user,item\n7,10\n,9\n12,9\n")
    expected, found = ir.read(clean), ir.read(gaps, skip_bad_rows=True)
    assert found.user_ids.ids.dtype == expected.user_ids.ids.dtype == np.int64
    assert found.fingerprint == expected.fingerprint
    assert ir.read(clean, skip_bad_rows=True).skipped == {}


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet"])
def test_frames_and_parquet_files_too(tmp_path: Path, kind: str) -> None:
    columns = {"user": [1, None, 3], "item": ["x", "y", "y"], "rating": [1.0, 2.0, float("nan")]}
    frame: Any = pd.DataFrame(columns) if kind == "pandas" else pl.DataFrame(columns)
    if kind == "parquet":
        frame.write_parquet(tmp_path / "x.parquet")
        frame = tmp_path / "x.parquet"
    with pytest.raises(ItemfoldError, match=r"row 2: the user id is missing; row 3: the rating is"):
        ir.read(frame, rating="rating")
    data = ir.read(frame, skip_bad_rows=True)
    assert pairs(data) == {(1, "x")}
    assert data.skipped == {
        "the user id is missing": 1,
        "the rating is missing or not finite": 1,
    }


def test_a_file_without_a_usable_row_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item\n,x\n,y\n")
    with pytest.raises(ItemfoldError, match=r"no row can be used; .*line 2: the user id is"):
        ir.read(path, skip_bad_rows=True)


def test_the_option_is_for_tables(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 1 2\n")
    for source, content in ((tmp_path, "file"), (sp.csr_array([[1, 0], [0, 1]]), "table")):
        expected = f"'skip_bad_rows' needs a {content} with columns, and .* has none"
        with pytest.raises(ItemfoldError, match=expected):
            ir.read(source, skip_bad_rows=True)
    with pytest.raises(ItemfoldError, match="'skip_bad_rows' must be true or false, got 'yes'"):
        ir.read(tmp_path, skip_bad_rows="yes")
    with pytest.raises(ItemfoldError, match="'skip_bad_rows' has no effect on"):
        ir.load("synthetic", skip_bad_rows=True)
