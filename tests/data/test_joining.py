"""New interactions join a matrix: known rows stay, new ids are appended; the oracle is a set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.interactions import Interactions
from itemfold.data.joining import ItemCatalogue, as_interactions, join, later_part
from itemfold.errors import ItemfoldError, NoRowsError

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


def read(pairs: list[tuple[Any, Any]], **options: Any) -> Interactions:
    users, items = zip(*pairs, strict=True)
    return ir.read(pl.DataFrame({"user": users, "item": items}, strict=False), **options)


def named_pairs(matrix: Any, users: Any, items: Any) -> set[tuple[str, str]]:
    rows, columns = matrix.nonzero()
    return {(str(users.ids[u]), str(items.ids[i])) for u, i in zip(rows, columns, strict=True)}


@given(old=PAIRS, new=PAIRS, again=PAIRS)
def test_the_matrix_holds_the_union_and_known_ids_keep_their_rows(old, new, again) -> None:
    first = read(old)
    catalogue = ItemCatalogue(first.item_ids, None, None)
    one = join(first.csr(), first.user_ids, catalogue, read(new))
    two = join(one.train, one.user_ids, one.catalogue, read(again))
    wanted = {(str(u), str(i)) for u, i in [*old, *new, *again]}
    items = two.catalogue.item_ids
    assert named_pairs(two.train, two.user_ids, items) == wanted
    for before, after in ((first.user_ids, two.user_ids), (first.item_ids, items)):
        assert after.ids[: len(before)].tolist() == before.ids.tolist()
        assert len(set(after.ids.tolist())) == len(after)
    assert one.before.shape == one.train.shape
    assert one.new_interactions == len({*old, *new}) - len(set(old))
    assert one.known == len(set(new)) - one.new_interactions
    whole = as_interactions(two.train, two.user_ids, items, "")
    assert whole.fingerprint == read([*old, *new, *again]).fingerprint


def test_numbers_become_text_where_a_new_id_is_text() -> None:
    first = read([(1, 10), (2, 20)])
    joined = join(
        first.csr(), first.user_ids, ItemCatalogue(first.item_ids, None, None), read([("eve", 10)])
    )
    assert joined.user_ids.ids.tolist() == ["1", "2", "eve"]
    assert joined.catalogue.item_ids.ids.tolist() == [10, 20]
    assert joined.user_ids.index([1, "2", "eve"]).tolist() == [0, 1, 2]


def test_titles_of_known_items_stay_and_those_of_new_ones_are_added() -> None:
    first = read([(1, 10), (1, 20)], titles={10: "ten"})
    more = read([(1, 20), (2, 30)], titles={20: "twenty", 30: "thirty"})
    catalogue = ItemCatalogue(first.item_ids, first.titles, first.genres)
    found = join(first.csr(), first.user_ids, catalogue, more).catalogue
    assert found.titles is not None
    assert found.titles.tolist() == ["ten", "twenty", "thirty"]


def write_feedback(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def event(user: Any, item: Any, what: str, at: float = 1.0) -> dict[str, Any]:
    return {"timestamp": at, "user_id": user, "item_id": item, "event": what, "run": "r"}


def test_of_feedback_likes_and_clicks_are_taken_and_the_rest_is_counted(tmp_path) -> None:
    rows = [
        event("ann", "1", "liked", 5.0),
        event("ann", "2", "shown"),
        event(None, "1", "clicked"),
        event("bob", "2", "clicked", 7.0),
        event("bob", "3", "liked"),
        event("bob", "3", "disliked"),
    ]
    data = ir.read(write_feedback(tmp_path / "f.jsonl", rows))
    pairs = named_pairs(data.csr(), data.user_ids, data.item_ids)
    assert pairs == {("ann", "1"), ("bob", "2")}
    assert data.times is not None
    assert sorted(data.times.tolist()) == [5.0, 7.0]
    assert data.skipped == {
        "the event is shown": 1,
        "the user is not known": 1,
        "disliked afterwards": 1,
        "the event is disliked": 1,
    }


def test_a_like_after_a_dislike_counts(tmp_path) -> None:
    rows = [event("ann", 1, "disliked"), event("ann", 1, "liked")]
    assert len(ir.read(write_feedback(tmp_path / "f.jsonl", rows))) == 1


def test_a_folder_of_feedback_is_read_with_the_files_that_were_put_aside(tmp_path) -> None:
    write_feedback(tmp_path / "feedback-20260101T000000-ab.jsonl", [event("ann", 1, "liked")])
    write_feedback(tmp_path / "feedback.jsonl", [event("bob", 1, "liked")])
    assert ir.load(tmp_path).n_users == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{oops", "line 2: expected a JSON object"),
        ("[1]", "line 2: expected a JSON object"),
        ('{"user_id": "a"}', "line 2: the item id is missing"),
        ('{"user_id": "a", "item_id": "b", "event": "eaten"}', "'event' must be one of liked"),
    ],
)
def test_a_bad_line_of_feedback_is_named_or_skipped(tmp_path, line, problem) -> None:
    path = write_feedback(tmp_path / "f.jsonl", [event("ann", 1, "liked")])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ItemfoldError, match=problem):
        ir.read(path)
    assert sum(ir.read(path, skip_bad_rows=True).skipped.values()) == 1


def test_feedback_without_a_like_has_no_rows(tmp_path) -> None:
    path = write_feedback(tmp_path / "f.jsonl", [event("ann", 1, "shown")])
    with pytest.raises(NoRowsError, match="has no liked or clicked event"):
        ir.read(path)


def test_later_interactions_of_known_users_and_items_are_a_test_part() -> None:
    first = read([(1, 10), (1, 20), (2, 20), (3, 30)])
    later = read([(1, 10), (1, 30), (2, 40), (9, 10), (3, 10)])
    held, notes = later_part(first.csr(), first.user_ids, first.item_ids, later)
    assert held.ids.tolist() == [1, 3]
    targets = {
        (int(held.ids[u]), int(first.item_ids.ids[i]))
        for u, i in np.argwhere(held.target.toarray())
    }
    assert targets == {(1, 30), (3, 10)}
    assert [note.rpartition(" ")[2] for note in notes] == ["1.", "1.", "1."]
    with pytest.raises(ItemfoldError, match="that are not in training, got none"):
        later_part(first.csr(), first.user_ids, first.item_ids, read([(1, 10)]))
