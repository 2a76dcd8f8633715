"""Columns are recognised by known names, or by their last words if only one column has them."""

from pathlib import Path

import pytest

import itemfold as ir
from itemfold.data.columns import choose_columns
from itemfold.errors import ItemfoldError


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (
            "user_id,session_size,click_article_id,click_timestamp,click_os",
            {"user": "user_id", "item": "click_article_id", "time": "click_timestamp"},
        ),
        ("user,venue,utc_timestamp", {"user": "user", "item": "venue", "time": "utc_timestamp"}),
        (
            "visitor-id,clicked-product-id,star rating",
            {"user": "visitor-id", "item": "clicked-product-id", "rating": "star rating"},
        ),
        # a known name goes before an ending
        ("user_id,parent_item_id,item_id", {"user": "user_id", "item": "item_id"}),
        # durations and dates of items are no times of interactions
        ("user_id,item_id,watch_time,release_date", {"user": "user_id", "item": "item_id"}),
        # two endings are as many guesses
        (
            "user_id,item_id,first_timestamp,last_timestamp",
            {"user": "user_id", "item": "item_id"},
        ),
    ],
)
def test_columns_by_known_names_or_their_last_words(header: str, found: dict[str, str]) -> None:
    columns = header.split(",")
    places = choose_columns(columns, {}, "f.csv")
    assert {role: columns[place] for role, place in places.items()} == found


def test_a_requested_column_goes_before_all_others() -> None:
    columns = ["user_id", "item_id", "watch_time"]
    assert choose_columns(columns, {"time": "watch_time"}, "f.csv")["time"] == 2


def test_two_items_by_their_last_words_have_to_be_named() -> None:
    with pytest.raises(ItemfoldError, match=r"no item column.*--item-col"):
        choose_columns(["user_id", "shown_article_id", "clicked_article_id"], {}, "f.csv")


def test_a_file_of_clicks_is_read_with_its_times(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "user_id,click_article_id,click_timestamp\n1,a,1700000000000\n2,b,1700000060000\n"
    )
    data = ir.load(path)
    assert data.item_ids.ids.tolist() == ["a", "b"]
    assert data.times.tolist() == [1700000000.0, 1700000060.0]
