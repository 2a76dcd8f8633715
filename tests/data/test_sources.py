"""Readers, id mapping, duplicates, thresholds, k-core and fingerprint, against naive loops."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.sources import read
from itemfold.errors import ItemfoldError

ROWS = [("u1", "a", 4.0, 100), ("u1", "b", 2.0, 200), ("u2", "a", 5.0, 50), ("u3", "c", 3.0, 70)]
HEADER = ("user_id", "item_id", "rating", "timestamp")

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
pairs = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=80)


def write(path: Path, rows: list, header=HEADER, sep: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=sep)
        writer.writerows([header, *rows])
    return path


def external(data: Interactions) -> set:
    users, items = data.user_ids.external(data.users), data.item_ids.external(data.items)
    return set(zip(users.tolist(), items.tolist(), strict=True))


def facts(data: Interactions) -> dict:
    keys = zip(
        data.user_ids.external(data.users).tolist(),
        data.item_ids.external(data.items).tolist(),
        strict=True,
    )
    return dict(
        zip(keys, zip(data.ratings.tolist(), data.times.tolist(), strict=True), strict=True)
    )


def error_of(source, **options) -> str:
    with pytest.raises(ItemfoldError) as caught:
        read(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---------------------------------------------------------------- formats


def test_every_format_gives_the_same_interactions(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=HEADER)
    frame.to_parquet(tmp_path / "x.parquet")
    typed = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    sources = [
        write(tmp_path / "x.csv", ROWS),
        write(tmp_path / "semicolon.csv", ROWS, sep=";"),
        write(tmp_path / "x.tsv", ROWS, sep="\t"),
        write(tmp_path / "x.inter", ROWS, header=typed, sep="\t"),
        tmp_path / "x.parquet",
        str(tmp_path / "x.csv"),
        frame,
        pl.DataFrame(ROWS, schema=list(HEADER), orient="row"),
        pl.LazyFrame(ROWS, schema=list(HEADER), orient="row"),
    ]
    expected = {(u, i): (r, t) for u, i, r, t in ROWS}
    prints = set()
    for source in sources:
        data = read(source)
        assert facts(data) == expected
        prints.add(data.fingerprint)
    assert len(prints) == 1


def test_pandas_reads_what_polars_reads(tmp_path: Path, monkeypatch) -> None:
    path = write(tmp_path / "x.csv", [("007", "x", 1, 5), ("7", "NA", "2.5", " 6 ")])
    pd.DataFrame(ROWS, columns=HEADER).to_parquet(tmp_path / "x.parquet")
    before = [facts(read(path)), facts(read(tmp_path / "x.parquet"))]
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    assert [facts(read(path)), facts(read(tmp_path / "x.parquet"))] == before
    path.write_text("user,item\n1,2\n3;4\n")
    assert "line 3" in error_of(path)


def test_lightgcn_folder_marks_the_test_file(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"0 1 2 3\r\n5 2 2 \r\n\r\n7\r\n2 9")
    (tmp_path / "test.txt").write_text("0 4 1\n8 11\n5\n")
    data = read(tmp_path)
    indices = zip(data.users.tolist(), data.items.tolist(), strict=True)
    held = dict(zip(indices, data.held_out.tolist(), strict=True))
    names = lambda u, i: (data.user_ids.ids[u], data.item_ids.ids[i])  # noqa: E731
    assert {names(*p) for p, h in held.items() if not h} == {(0, 1), (0, 2), (0, 3), (5, 2), (2, 9)}
    assert {names(*p) for p, h in held.items() if h} == {(0, 4), (8, 11)}
    assert data.duplicates == 2  # 5 2 twice; 0 1 is in both files and stays a training pair
    for role in ("user", "item", "rating", "time"):
        assert f"'{role}' needs a file with columns" in error_of(tmp_path, **{role: "who"})


def test_movielens_folder_has_titles_and_genres(tmp_path: Path) -> None:
    write(
        tmp_path / "ratings.csv",
        [(1, 10, 4, 9), (2, 30, 3, 9)],
        ("userId", "movieId", "rating", "timestamp"),
    )
    movies = [
        (10, 'Heat, "The" (1995)', "Action|Crime"),
        (20, "Unseen", "Drama"),
        (30, "X", "(no genres listed)"),
    ]
    write(tmp_path / "movies.csv", movies, ("movieId", "title", "genres"))
    data = read(tmp_path)
    assert data.item_ids.ids.tolist() == [10, 30]
    assert data.titles.tolist() == ['Heat, "The" (1995)', "X"]
    assert data.genres.tolist() == ["Action|Crime", ""]
    assert read(tmp_path, min_rating=3.5).titles.tolist() == ['Heat, "The" (1995)']
    from_file = read(tmp_path / "ratings.csv", titles=tmp_path / "movies.csv")
    assert from_file.titles.tolist() == data.titles.tolist()
    assert read(tmp_path / "ratings.csv", titles={"30": "Y"}).titles.tolist() == ["", "Y"]


@quick
@given(pairs)
def test_csv_round_trip(tmp_path: Path, rows: list) -> None:
    data = read(write(tmp_path / "x.csv", rows, ("user", "item")))
    assert external(data) == set(rows)
    assert data.duplicates == len(rows) - len(set(rows))
    assert len(data) == len(set(rows))


ids = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=6)


@quick
@given(st.sets(st.tuples(ids, ids), min_size=1, max_size=20))
def test_any_text_survives_as_an_id(tmp_path: Path, rows: set) -> None:
    for name, sep in (("x.csv", ","), ("x.tsv", "\t")):
        data = read(write(tmp_path / name, sorted(rows), ("user", "item"), sep=sep))
        assert {(str(u), str(i)) for u, i in external(data)} == rows


@quick
@given(pairs)
def test_adjacency_files_against_a_naive_parser(tmp_path: Path, rows: list) -> None:
    lines = {u: [i for v, i in rows if v == u] for u, _ in rows}
    text = "\n".join(" ".join(map(str, [u, *items])) for u, items in lines.items())
    (tmp_path / "train.txt").write_text(text)
    assert external(read(tmp_path)) == set(rows)


def test_sparse_matrix_keeps_shape_and_values() -> None:
    matrix = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0))
    data = read(sp.csr_array(matrix))
    assert data.csr().shape == (30, 20)
    back = sp.coo_array((data.ratings, (data.users, data.items)), shape=(30, 20))
    np.testing.assert_allclose(back.toarray(), matrix.toarray(), rtol=1e-6)
    assert read(sp.csr_array(matrix != 0)).ratings is None


def test_column_names_can_be_given_and_dates_are_seconds(tmp_path: Path) -> None:
    rows = [("x", "p", "2024-01-31"), ("y", "q", "1970-01-02 00:00:01")]
    path = write(tmp_path / "x.csv", rows, ("who", "what", "day"))
    data = read(path, user="who", item="what", time="day")
    numbered = pd.DataFrame([("x", "p"), ("y", "q")])
    assert external(read(numbered, user=0, item=1)) == external(data)
    assert data.times.tolist() == [1706659200, 86401]
    frame = pd.DataFrame({"who": ["x"], "what": ["p"], "day": pd.to_datetime(["1970-01-02"])})
    assert read(frame, user="who", item="what", time="day").times.tolist() == [86400]
    assert data.source == {"data": str(path), "user": "who", "item": "what", "time": "day"}


# ---------------------------------------------------------------- ids, duplicates, filters


def test_leading_zeros_are_not_lost_and_numbers_sort_as_numbers(tmp_path: Path) -> None:
    rows = [("10", "007"), ("9", "7")]
    data = read(write(tmp_path / "x.csv", rows, ("user", "item")))
    assert data.user_ids.ids.tolist() == [9, 10]
    assert data.item_ids.ids.tolist() == ["007", "7"]


def test_ids_are_found_by_text_and_unknown_is_minus_one() -> None:
    numbers, words = IdMap(np.array([5, 3, 9])), IdMap(np.array(["b", "5"]))
    assert numbers.index(["3", 9, "x", -1]).tolist() == [1, 2, -1, -1]
    assert words.index([5, "b", ""]).tolist() == [1, 0, -1]
    assert numbers.take(np.array([2, 0])).ids.tolist() == [9, 5]
    assert numbers.index([]).shape == (0,)


def test_the_ids_of_a_frame_are_found_again_for_any_type() -> None:
    columns = {
        "whole floats": np.array([2.0, 3.0]),
        "broken floats": np.array([2.0, 2.5]),
        "float32": np.array([2, 3], dtype=np.float32),
        "large floats": np.array([1e16, 1e30]),
        "integers": np.array([2, 3], dtype=np.int16),
        "beyond int64": np.array([2**63 + 5, 2**64 - 1], dtype=np.uint64),
        "bytes": np.array([b"caf\xc3\xa9", b"b"], dtype=object),
        "text": np.array(["2", "3"]),
    }
    for kind, column in columns.items():
        found = read(pd.DataFrame({"user": [1, 1], "item": column})).item_ids
        rows = found.index(column).tolist()
        assert sorted(rows) == [0, 1], kind
        assert found.index(list(column)).tolist() == rows, kind
        assert found.index(column.tolist()).tolist() == rows, kind
        assert found.index([np.array(column[0]), column[1:]]).tolist() == rows, kind
        assert found.index(found.ids).tolist() == [0, 1], kind
    numbers = IdMap(np.array([2, 3]))
    assert numbers.index([3.0, np.float64(2), 2.5, np.inf, np.nan]).tolist() == [1, 0, -1, -1, -1]
    huge = read(pd.DataFrame({"user": [1, 1], "item": columns["beyond int64"]})).item_ids
    assert huge.ids.tolist() == [str(2**64 - 1), str(2**63 + 5)]  # to the last digit


def test_binary_ids_are_utf8_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["é".encode(), b"b"], "item": [1, 2]})
    frame.write_parquet(tmp_path / "x.parquet")
    for source in (frame, frame.to_pandas(), tmp_path / "x.parquet"):
        assert external(read(source)) == {("é", 1), ("b", 2)}
    latin = pl.DataFrame({"user": [b"b", "é".encode("latin-1")], "item": [1, 2]})
    assert "row 2: the user id must be UTF-8 text, got b'\\xe9'" in error_of(latin)
    assert "row 2: the user id is missing" in error_of(
        latin.with_columns(user=pl.Series([b"b", b""]))
    )


def test_titles_given_by_a_relative_path_are_found_from_another_folder(
    tmp_path: Path, monkeypatch
) -> None:
    write(tmp_path / "x.csv", ROWS)
    write(tmp_path / "names.csv", [("a", "Heat")], ("item", "title"))
    monkeypatch.chdir(tmp_path)
    data = read("x.csv", titles="names.csv")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = dict(data.source)
    assert read(again.pop("data"), **again).titles.tolist() == ["Heat", "", ""]


def test_titles_are_read_from_the_same_formats_as_data(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 9]})
    rows = pl.DataFrame(
        {"item_id": [8.0, 7.0], "title": ["Heat; Dust", None], "genre": ["War", ""]}
    )
    rows.write_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text('item_id;title;genre\n8;"Heat; Dust";War\n7;;\n')
    (tmp_path / "t.tsv").write_text("item_id\ttitle\tgenre\n8\tHeat; Dust\tWar\n7\t\t\n")
    for name in ("t.parquet", "t.csv", "t.tsv"):
        data = read(frame, titles=tmp_path / name)
        assert data.titles.tolist() == ["", "Heat; Dust", ""], name
        assert data.genres.tolist() == ["", "War", ""]
        assert data.notes == ()


def test_titles_that_match_no_item_are_reported(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 9]})
    write(tmp_path / "t.csv", [("a", "Heat")], ("item", "title"))
    for titles, place in ((tmp_path / "t.csv", "t.csv"), ({"a": "Heat"}, "'titles'")):
        data = read(frame, titles=titles)
        assert data.titles is None
        assert "none of the 3 items has a title in" in data.notes[0]
        assert data.notes[0].endswith(f"{place}, with ids such as 'a' instead of 7.")


def test_duplicates_keep_best_rating_and_latest_time() -> None:
    frame = pd.DataFrame(
        [(1, 1, 5.0, 10), (1, 1, 2.0, 30), (1, 2, 1.0, 5), (1, 1, 3.0, 20)],
        columns=["user", "item", "rating", "time"],
    )
    data = read(frame)
    assert data.duplicates == 2
    assert facts(data) == {(1, 1): (5.0, 30), (1, 2): (1.0, 5)}


@quick
@given(pairs, st.randoms())
def test_fingerprint_ignores_order_and_sees_every_pair(rows: list, random) -> None:
    rows = list(dict.fromkeys(rows))
    frame = lambda r: pd.DataFrame(r, columns=["user", "item"])  # noqa: E731
    shuffled = random.sample(rows, len(rows))
    fingerprint = read(frame(rows)).fingerprint
    assert read(frame(shuffled)).fingerprint == fingerprint
    assert read(frame(rows).astype(str)).fingerprint == fingerprint
    if len(rows) > 1:
        assert read(frame(rows[1:])).fingerprint != fingerprint
    swapped = read(frame([(i + 100, u) for u, i in rows])).fingerprint
    assert swapped != fingerprint


def test_fingerprint_distinguishes_train_from_test(tmp_path: Path) -> None:
    prints = set()
    for train, test in (("0 1 2\n", "0 3\n"), ("0 1 3\n", "0 2\n"), ("0 1 2 3\n", "1 3\n")):
        (tmp_path / "train.txt").write_text(train)
        (tmp_path / "test.txt").write_text(test)
        prints.add(read(tmp_path).fingerprint)
    assert len(prints) == 3


def naive_core(rows: set, k: int) -> set:
    while True:
        users, items = Counter(u for u, _ in rows), Counter(i for _, i in rows)
        poor = {(u, i) for u, i in rows if users[u] < k or items[i] < k}
        if not poor:
            return rows
        rows = rows - {min(poor)}  # one at a time: the k-core does not depend on the order


@quick
@given(pairs, st.integers(1, 4))
def test_k_core_is_the_largest(rows: list, k: int) -> None:
    data = read(pd.DataFrame(rows, columns=["user", "item"]))
    expected = naive_core(set(rows), k)
    if not expected:
        with pytest.raises(ItemfoldError, match=f"no {k}-core"):
            data.k_core(k)
        return
    core = data.k_core(k)
    assert external(core) == expected
    assert core.csr().sum(axis=0).min() >= k
    assert core.csr().sum(axis=1).min() >= k


def test_threshold_keeps_high_ratings() -> None:
    data = read(pd.DataFrame(ROWS, columns=HEADER), min_rating=3)
    assert external(data) == {("u1", "a"), ("u2", "a"), ("u3", "c")}
    assert data.item_ids.ids.tolist() == ["a", "c"]
    assert "at most 5" in error_of(pd.DataFrame(ROWS, columns=HEADER), min_rating=6)
    assert "has none" in error_of(sp.eye_array(3), min_rating=1)
    assert "positive integer, got 0" in error_of(sp.eye_array(3), k_core=0)
    assert "'k_core' must be a positive integer, got 2.5" in error_of(sp.eye_array(3), k_core=2.5)
    rated = 2 * sp.eye_array(3)
    assert "'min_rating' must be a number, got '4'" in error_of(rated, min_rating="4")
    assert len(read(rated, min_rating=np.float32(2), k_core=np.int64(1))) == 3


def test_ratings_with_a_decimal_comma_are_numbers_and_thousands_are_not(tmp_path: Path) -> None:
    path = tmp_path / "plays.csv"
    path.write_text("user;item;rating\nann;x;4,5\nann;y;3\nbob;x; 10,25 \n")
    assert read(path).ratings.tolist() == [4.5, 3.0, 10.25]
    path.write_text("user;item;rating\nann;x;1,234\n")
    assert "the rating must be a number, got '1,234'" in error_of(path, rating="rating")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.csv", "a,b\n1,2\n", ["no user column", "columns found: a, b", "user=… or --user-col"]),
        ("x.csv", "a,b\n1,2\n", ["if line 1 is data and not column names, add --no-header"]),
        ("x.csv", "1,2.5\n1,3.5\n", ["no user column", "line 1 was read as data", "--header"]),
        ("x.csv", "user,item,user\n1,2,3\n", ["user column", "several columns are called 'user'"]),
        ("x.csv", "user,item,rating\n1,2,3\n1,3\n", ["line 3", "3 fields", "found 2"]),
        ("x.csv", "user_id,b\n1,2\n", ["no item column", "user_id, b"]),
        ("x.csv", "", ["empty"]),
        ("x.csv", "\n\n", ["empty"]),
        ("x.csv", "user,item,rating\n", ["no rows"]),
        ("x.csv", "user\n1\n", ["line 1", "one column"]),
        ("x.csv", "user,item\n1,2\n,3\n", ["line 3", "user id is missing"]),
        ("x.csv", "user,item,rating\n1,2,3\n1;3;4\n", ["line 3", "3 fields", "','", "found 1"]),
        ("x.csv", "user,item\n1,2\n1,3,4\n", ["line 3", "expected 2 fields", "found 3"]),
        ("x.tsv", "user\titem\n1\t2\n1,3\n", ["line 3", "a tab", "found 1"]),
        ("x.csv", b"user,item\n1,\x00\n", ["NUL"]),
        ("x.csv", b"user,item\r1,2\r1,3\r", ["carriage return alone", "line feeds"]),
        ("x.parquet", "PAR1 and then nothing", ["truncated", "PAR1"]),
        ("x.parquet", "hello", ["not a parquet file"]),
        ("x.parquet", "PAR1 rubbish PAR1", ["damaged"]),
        ("x.parquet", "", ["not a parquet file"]),
        ("x.json", "{}", ["no user column", "columns found: none"]),
        ("x.json", "[1, 2]", ["an object for each row", "found other JSON"]),
        ("x.json", '[{"user": 1}', ["an object for each row", "Expecting"]),
        ("x.jsonl", '{"who": "ann", "item_id": "x"}\n', ["no user column", "who, item_id"]),
        ("x.jsonl", '{"user": 1, "item": 2}\n{"user"\n', ["line 2", "an object for each row"]),
        ("feedback.jsonl", '{"who": "ann", "item_id": "x"}\n', ["not known (1)", "'user_id'"]),
        ("x.pkl", b"\x80\x04K\x01.", ["is a pickle", ".csv or .parquet"]),
    ],
)  # fmt: skip
def test_bad_file_gets_one_sentence(tmp_path: Path, name: str, content, expected: list) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = error_of(path)
    assert str(path) in message
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("content", "role", "expected"),
    [
        ("user,item,rating\n1,2,3\n1,3,good\n", "rating", ["line 3", "a number", "'good'"]),
        ("user,item,rating\n1,2,3\n\n1,3,inf\n", "rating", ["line 4", "rating", "not finite"]),
        ("user,item,rating\n1,2,3\n1,3,\n", "rating", ["line 3", "rating", "missing"]),
        ("user,item,time\n1,2,3\n1,3,soon\n", "time", ["line 3", "2024-01-31", "'soon'"]),
    ],
)  # fmt: skip
def test_an_unreadable_column_fails_only_where_it_is_needed(
    tmp_path: Path, content: str, role: str, expected: list
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    data = read(path)
    assert external(data) == {(1, 2), (1, 3)}
    assert (data.ratings, data.times) == (None, None)
    error = error_of(path, **{role: role})
    assert data.notes == (f"The {role} column was left out: {error}.",)
    if role == "rating":
        assert error_of(path, min_rating=1) == error
        with pytest.raises(ItemfoldError, match=r"line \d"):
            data.at_least(1)
    for part in (str(path), *expected):
        assert part in error
    path.write_text("user,item,rating,time\n1,2,3,4\n")
    assert read(path).notes == ()


def test_truncated_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame(ROWS, columns=HEADER).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert "truncated" in error_of(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "empty"),
        ("0 1 2\n1 -4\n", "line 2: expected non-negative integer ids"),
        ("0 1 2\n1 x7\n", "got 'x7'"),
        ("0 1\n1 2.5\n", "got '2.5'"),
        ("0,1,2\n", "line 1: expected non-negative integer ids separated by spaces, got '0,1,2'"),
        ("0 1\n1 2\n0 5\n", "line 3: user 0 already has line 1"),
        ("0 99999999999999999999\n", "line 1"),
        ("0\n1\n", "no user has an item"),
    ],
)  # fmt: skip
def test_bad_adjacency_file(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "train.txt").write_text(content)
    message = error_of(tmp_path)
    assert str(tmp_path / "train.txt") in message
    assert expected in message


def test_odd_but_valid_values() -> None:
    large = pd.DataFrame({"user": np.array([2**63 + 5], dtype=np.uint64), "item": [1]})
    assert external(read(large)) == {(str(2**63 + 5), 1)}
    zoned = pd.DataFrame({"user": [1], "item": [2], "date": ["2020-01-01T10:00:00+02:00"]})
    assert read(zoned).times.tolist() == [1577865600]
    stamps = pd.DataFrame({"user": [1], "item": [2], "date": pd.to_datetime(zoned["date"])})
    assert read(stamps).times.tolist() == [1577865600]
    whole = pl.DataFrame({"user": [1.0, 2.0], "item": ["x", "y"], "time": [10**30, 1]})
    assert "row 1: the time is missing or not finite" in error_of(whole, time="time")


def test_other_bad_sources(tmp_path: Path) -> None:
    assert "no such file" in error_of(tmp_path / "nothing.csv")
    assert "expected train.txt, MovieLens's ratings, parquet files or feedback" in error_of(
        tmp_path
    )
    assert "got list" in error_of([1, 2])
    assert "no rows" in error_of(pd.DataFrame(columns=["user", "item"]))
    assert "two dimensions" in error_of(sp.coo_array(np.ones(3)))
    assert "no entries" in error_of(sp.csr_array((3, 3)))
    assert "real numbers, got complex" in error_of(sp.csr_array([[1j, 0], [0, 1]]))
    assert "got Series" in error_of(pd.Series([1, 2]))
    for odd in ([1, 2], (1, 2), frozenset([1])):
        frame = pd.DataFrame({"user": [odd], "item": [1]})
        assert "row 1: user ids must be numbers or strings" in error_of(frame)
    masked = pd.DataFrame({"user": pd.array(["a", pd.NA], dtype="string"), "item": [1, 2]})
    assert "row 2: the user id is missing" in error_of(masked)
    missing = pd.DataFrame({"user": ["a", None], "item": [1, 2]})
    assert "row 2: the user id is missing" in error_of(missing)
    frame = pd.DataFrame(ROWS, columns=HEADER)
    assert "no column 'stars'; columns found: user_id" in error_of(frame, rating="stars")
    assert "two different columns" in error_of(frame, user="item_id")
    assert "several columns are called 'rating'" in error_of(
        frame.assign(r=1).rename(columns={"r": "rating"})
    )
    assert "existing file" in error_of(frame, titles=tmp_path / "none.csv")
    for titles in (["Heat"], pd.Series({"a": "Heat"}), 5):
        rule = "'titles' must be a file, a frame, or a mapping from item id to title"
        assert error_of(frame, titles=titles) == f"{rule}, got {type(titles).__name__}"


@pytest.mark.data
def test_yelp2018_is_the_published_one(data_root: Path) -> None:
    data = read(data_root / "yelp2018")
    assert (data.n_users, data.n_items) == (31_668, 38_048)
    assert (int((~data.held_out).sum()), int(data.held_out.sum())) == (1_237_259, 324_147)


@pytest.mark.parametrize("name", ["Plays.CSV", "Plays.csv.gz", "Plays.TSV.GZ", "Plays.inter.gz"])
def test_capitals_and_compression_change_nothing(name, tmp_path):
    sep = "," if ".csv" in name.lower() else "\t"
    rows = [("user", "item", "rating"), ("ü", "b", "4"), ("ü", "c", "2"), ("d", "b", "5")]
    text = "".join(sep.join(row) + "\n" for row in rows)
    (tmp_path / "plain.csv").write_text(text.replace(sep, ","))
    write = gzip.open if name.lower().endswith(".gz") else open
    with write(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write(text)
    data, plain = read(tmp_path / name), read(tmp_path / "plain.csv")
    assert data.fingerprint == plain.fingerprint
    assert data.ratings.tolist() == plain.ratings.tolist()
    assert data.name == "Plays"


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"user,item\n" * 5000, mtime=0)[:40]],
    ids=["other", "truncated"],
)
def test_a_damaged_archive_gets_one_sentence(content, tmp_path):
    (tmp_path / "plays.csv.gz").write_bytes(content)
    with pytest.raises(ItemfoldError, match=r"plays\.csv\.gz: "):
        read(tmp_path / "plays.csv.gz")
