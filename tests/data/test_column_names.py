"""Columns are recognised by known names, by the words of their names, and times by values."""

from pathlib import Path

import pytest

import itemfold as ir
from itemfold.data.columns.choice import choose_columns
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
def test_columns_by_known_names_or_their_last_part(header: str, found: dict[str, str]) -> None:
    columns = header.split(",")
    places = choose_columns(columns, {}, "f.csv")
    assert {role: columns[place] for role, place in places.items()} == found


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Anime_ID,user,score", {"user": "user", "item": "Anime_ID", "rating": "score"}),
        ("customer,product,qty", {"user": "customer", "item": "product"}),
        ("accountKey,hotel_code", {"user": "accountKey", "item": "hotel_code"}),
        ("listener,track_uri,track_name", {"user": "listener", "item": "track_uri"}),
        (
            "Member_number,Date,itemDescription",
            {"user": "Member_number", "item": "itemDescription", "time": "Date"},
        ),
        ("customer,item_code,item_description", {"user": "customer", "item": "item_code"}),
        ("reader,book_title", {"user": "reader", "item": "book_title"}),  # a name, if nothing else
        ("order_id,add_to_cart_order,product_id", {"user": "order_id", "item": "product_id"}),
        ("order_id,customer_id,product_id", {"user": "customer_id", "item": "product_id"}),
        ("shopper-no,my_sku", {"user": "shopper-no", "item": "my_sku"}),
        ("user_id:token,anime_id:token", {"user": "user_id:token", "item": "anime_id:token"}),
    ],
)
def test_columns_by_the_words_of_their_names(header: str, found: dict[str, str]) -> None:
    columns = header.split(",")
    places = choose_columns(columns, {}, "f.csv")
    assert {role: columns[place] for role, place in places.items()} == found


@pytest.mark.parametrize(
    ("column", "values", "is_time"),
    [
        ("created_at", ["2024-01-31T10:00:00Z", "2024-02-01"], True),
        ("InvoiceDate", ["2010-12-01 08:26:00"], True),
        ("eventdate", ["2016-05-09"], True),
        ("date_added", ["1700000000"], True),
        ("SHOP_DATE", ["20060831", "20061201"], True),
        ("SHOP_DATE", ["20060831", "20061301"], False),
        ("created_at", ["noon"], False),
        ("visit_time", ["12.5"], False),  # a duration
        ("release_date", ["2010-12-01"], False),  # of an item
        ("colour", ["2010-12-01"], False),
    ],
)
def test_times_by_name_and_values(column: str, values: list[str], is_time: bool) -> None:
    rows = {"user": ["a"] * len(values), "item": ["x"] * len(values), column: values}
    places = choose_columns(list(rows), {}, "f.csv", lambda j: list(rows.values())[j])
    assert ("time" in places) == is_time
    two = choose_columns([*rows, "updated_at"], {}, "f.csv", lambda j: [*rows.values(), values][j])
    assert "time" not in two or not is_time  # two times are as many guesses


def test_a_column_without_ids_is_not_the_user(tmp_path: Path) -> None:
    """As in the clicks of CIKM Cup 2016, where most sessions are anonymous."""
    path = tmp_path / "views.csv"
    path.write_text("sessionId;userId;itemId\n1;NA;8\n1;NA;9\n2;;8\n")
    assert ir.read(path).user_ids.ids.tolist() == [1, 2]
    path.write_text("sessionId;userId;itemId\n1;NA;8\n1;7;9\n2;NA;8\n")
    assert ir.read(path).user_ids.ids.tolist() == ["7", "NA"]  # some have one
    path.write_text("userId;itemId\n;8\n;9\n")  # there is no other
    with pytest.raises(ItemfoldError, match="line 2: the user id is missing"):
        ir.read(path)


def test_a_requested_column_goes_before_all_others() -> None:
    columns = ["user_id", "item_id", "watch_time"]
    assert choose_columns(columns, {"time": "watch_time"}, "f.csv")["time"] == 2


def test_two_items_by_their_last_part_have_to_be_named() -> None:
    listed = r"no item column.*shown_article_id or clicked_article_id.*--item-col"
    with pytest.raises(ItemfoldError, match=listed):
        choose_columns(["user_id", "shown_article_id", "clicked_article_id"], {}, "f.csv")


def test_a_file_of_clicks_is_read_with_its_times(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text(
        "user_id,click_article_id,click_timestamp\n1,a,1700000000000\n2,b,1700000060000\n"
    )
    data = ir.load(path)
    assert data.item_ids.ids.tolist() == ["a", "b"]
    assert data.times.tolist() == [1700000000.0, 1700000060.0]
