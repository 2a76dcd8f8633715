"""A prepared folder holds what `read` returns for the files, also after interruptions."""

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.columns.values import column_problem, to_number
from itemfold.data.interactions import Interactions
from itemfold.data.preparing import conversion, expressions, finish
from itemfold.data.preparing import prepare as module
from itemfold.data.preparing.work import Work

pytest.importorskip("duckdb")
ARRAYS = ("users", "items", "ratings", "times", "weights")
FACTS = ("duplicates", "weighting", "skipped", "held_out", "titles", "genres")


def assert_same(found: Interactions, expected: Interactions) -> None:
    """All but the name, the source and the places in sentences are the same, bit for bit."""
    for name in ARRAYS:
        one, two = getattr(found, name), getattr(expected, name)
        assert (one is None) == (two is None), name
        if one is not None:
            assert one.dtype == two.dtype, name
            np.testing.assert_array_equal(one, two, err_msg=name)
    for name in ("user_ids", "item_ids"):
        one, two = getattr(found, name).ids, getattr(expected, name).ids
        assert one.dtype == two.dtype, (name, one, two)
        assert one.tolist() == two.tolist()
    for name in FACTS:
        assert getattr(found, name) == getattr(expected, name), name
    assert set(found.left_out) == set(expected.left_out)
    assert found.fingerprint == expected.fingerprint == replace(found).fingerprint


def plays(n: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user_id": rng.zipf(1.4, n) % 50,
            "item_id": [f"track {x}" for x in rng.zipf(1.6, n) % 40],
            "rating": rng.integers(1, 11, n) / 2,
            "timestamp": rng.integers(10**9, 2 * 10**9, n),
            "plays": rng.random(n) + 0.1,
        }
    )


def prepared(path: Any, out: Path, **arguments: Any) -> Interactions:
    ir.prepare(path, out, threads=1, **arguments)
    return ir.load(out)


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "csv.gz"])
def test_every_kind_of_file_gives_what_read_gives(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"plays.{kind}"
    frame = plays()
    if kind == "parquet":
        frame.write_parquet(path)
    else:
        text = frame.write_csv(separator="\t" if kind == "tsv" else ",")
        packed = gzip.compress(text.encode()) if kind.endswith("gz") else text.encode()
        path.write_bytes(packed)
    found = prepared(path, tmp_path / "out")
    assert_same(found, ir.read(path))
    # and by a loop that knows nothing of the package
    best: dict[tuple[int, str], tuple[float, float]] = {}
    for user, item, rating, moment, _ in frame.iter_rows():
        old = best.get((user, item), (0.0, 0.0))
        best[user, item] = max(old[0], rating), max(old[1], moment)
    keys = sorted(best)
    assert found.user_ids.external(found.users).tolist() == [user for user, _ in keys]
    assert found.item_ids.external(found.items).tolist() == [item for _, item in keys]
    assert found.ratings.tolist() == [best[key][0] for key in keys]
    assert found.times.tolist() == [best[key][1] for key in keys]
    indptr = np.load(tmp_path / "out" / "indptr.npy")
    np.testing.assert_array_equal(np.repeat(np.arange(found.n_users), np.diff(indptr)), found.users)


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_rating": 4},
        {"weight": "plays"},
        {"weight": "plays", "duplicates": "sum"},
        {"weight": "plays", "duplicates": "sum", "half_life": "1y", "weight_transform": "none"},
        {"half_life": "1y"},
        {"duplicates": "sum", "min_rating": 3.5},
        {"user": "item_id", "item": "user_id", "rating": "plays"},
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_settings_do_what_they_do_for_read(
    tmp_path: Path, arguments: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_PER_ROW", 10**8)  # some dozens of buckets
    path = tmp_path / f"plays.{kind}"
    plays().write_parquet(path) if kind == "parquet" else plays().write_csv(path)
    assert_same(prepared(path, tmp_path / "out", **arguments), ir.read(path, **arguments))


# --- values of all sorts -------------------------------------------------------------------------

WORDS = st.text(alphabet="ab7 -\u00a0\u3000é,\"'", max_size=4)
NUMBERS = st.integers(-5, 5) | st.sampled_from([0, 10**17, 10**18, 9007199254740993])
IDS = (
    WORDS,
    NUMBERS.map(str),
    st.sampled_from(["007", "7", "-0", "1e5", "12 "]),
    st.sampled_from([str(2**63 - 1), str(10**18), "5"]),
)
AMOUNTS = (
    st.integers(-9, 9).map(str),
    st.floats(-1e6, 1e6).map(repr),
    st.sampled_from(
        ["1", " 2.5", "nan", "1_0", "+3", "x", "", "1e400", ".5", "5.", "1e5", "4,5", "1,234", "٣"]
    ),
)
ODD_MOMENTS = ("2024-01-31T10:00:00Z", "2024-02-30", "20240131", "1.5", "2024-W05-3", "", "soon")
MOMENTS = (
    st.integers(0, 2 * 10**9).map(str),
    st.datetimes().map(str),
    st.dates().map(str),
    st.sampled_from([*ODD_MOMENTS, "2024-01-31 10:00:00.123456", "2024-01-31T10:00:00+02:00"]),
)


def selected(values: list[str], expression: str, problem: str) -> list[tuple[Any, bool]]:
    """Values by an expression of a column x, and whether they are a problem as a column y."""
    import duckdb

    listed = pl.DataFrame({"n": range(len(values)), "x": values})
    with duckdb.connect(config={"threads": 1}) as connection:
        expressions.add_functions(connection)
        connection.register("listed", listed.to_arrow())
        inner = f"SELECT n, {expression} AS y FROM listed"
        return connection.execute(f"SELECT y, {problem} FROM ({inner}) ORDER BY n").fetchall()


@pytest.mark.parametrize("role", ["rating", "time", "weight"])
@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.one_of(WORDS, *AMOUNTS, *MOMENTS), min_size=1, max_size=50))
def test_numbers_in_sql_are_those_of_python(role: str, values: list[str]) -> None:
    expression = expressions.number_value("x", "VARCHAR", role)
    found = selected(values, expression, expressions.number_problem("y", role))
    for value, (number, is_bad) in zip(values, found, strict=True):
        assert is_bad == bool(column_problem(value, role)), value
        assert is_bad or number == to_number(value, role), value


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.one_of(WORDS, st.text(max_size=5)), min_size=1, max_size=50))
def test_ids_in_sql_are_those_of_python(values: list[str]) -> None:
    expression = expressions.id_value("x", "VARCHAR", "text")
    found = selected(values, expression, expressions.id_problem("y", "text"))
    for value, (text, is_bad) in zip(values, found, strict=True):
        assert is_bad == bool(column_problem(value, "user")), value
        assert is_bad or text == value.strip()


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[str]]:
    columns = {"user_id": IDS, "item_id": IDS, "rating": AMOUNTS, "timestamp": MOMENTS}
    kinds = {name: draw(st.sampled_from(kinds)) for name, kinds in columns.items()}
    n = draw(st.integers(1, 8))
    return {name: draw(st.lists(kind, min_size=n, max_size=n)) for name, kind in kinds.items()}


def outcome(call: Callable[[], Interactions]) -> tuple[Interactions | None, str]:
    try:
        return call(), ""
    except ir.ItemfoldError as error:
        return None, str(error)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.booleans(), st.sampled_from(["csv", "parquet"]), st.booleans())
def test_any_text_is_read_as_read_does(
    table: dict[str, list[str]], skip: bool, kind: str, asked: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / f"plays.{kind}"
        frame = pl.DataFrame(table)
        if kind == "parquet":
            frame.write_parquet(path)
        else:
            frame.write_csv(path, quote_style="non_numeric")
        arguments: dict[str, Any] = {"skip_bad_rows": skip}
        if asked:
            arguments |= {"rating": "rating", "time": "timestamp"}
        expected, problem = outcome(lambda: ir.read(path, **arguments))
        found, other = outcome(lambda: prepared(path, folder / "out", **arguments))
        if expected is None:
            assert found is None
            assert other.split(" (")[0] in problem or "no row can be used" in other
            assert sorted(os.listdir(folder)) == [path.name]
        else:
            assert found is not None, other
            assert_same(found, expected)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1, 2, 3], dtype=pl.UInt64),
        pl.Series([1, 2**63 + 5, 3], dtype=pl.UInt64),
        pl.Series([1.0, -2.0, 3.0]),
        pl.Series([1.5, 1e20, 3.0]),
        pl.Series([1.5, 0.1, 3.0], dtype=pl.Float32),
        pl.Series([True, False, True]),
        pl.Series([b"a", "é".encode(), b"c"]),
        pl.Series(["b", " b", "a"]),
        pl.Series(["10", "9", "8"]),
        pl.Series(["b", "c", "b"], dtype=pl.Categorical),
        pl.Series([1, 2, 3], dtype=pl.Decimal(38, 0)),
        pl.Series([1, 2, 3], dtype=pl.Int8),
    ],
    ids=lambda column: f"{column.dtype}",
)
def test_ids_of_every_type_are_those_of_read(tmp_path: Path, column: pl.Series) -> None:
    path = tmp_path / "plays.parquet"
    pl.DataFrame({"user_id": column, "item_id": ["x", "y", "x"]}).write_parquet(path)
    assert_same(prepared(path, tmp_path / "out"), ir.read(path))


@pytest.mark.parametrize("unit", ["ms", "us", "ns", "date", "zone"])
def test_times_of_every_type_are_those_of_read(tmp_path: Path, unit: str) -> None:
    moments = pl.Series([1_600_000_000_123_456_789, 1_700_000_000_987_654_321, 5]).cast(
        pl.Datetime("ns")
    )
    if unit == "date":
        moments = moments.cast(pl.Date)
    elif unit == "zone":
        moments = moments.cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin")
    else:
        moments = moments.cast(pl.Datetime(unit))  # type: ignore[arg-type]
    amounts = pl.Series([1, 2, 3], dtype=pl.Decimal(10, 1)) / 3
    path = tmp_path / "plays.parquet"
    columns = {"user_id": [1, 2, 3], "item_id": [1, 1, 2], "timestamp": moments, "rating": amounts}
    pl.DataFrame(columns).write_parquet(path)
    assert_same(prepared(path, tmp_path / "out"), ir.read(path))


def test_bad_rows_are_reported_by_line_or_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "plays.csv"
    rows = ["user_id,item_id,rating", "ann,x,1", ",x,2", "bob,y", "bob,y,good", "eve,z,3,4", ",z,1"]
    path.write_text("\n".join(rows) + "\n")
    expected, problem = outcome(lambda: ir.read(path, rating="rating"))
    found, other = outcome(lambda: prepared(path, tmp_path / "out", rating="rating"))
    assert expected is found is None
    assert other == problem
    assert "line 3: the user id is missing (2 such rows); line 4: expected 3 fields" in other
    skipping = {"rating": "rating", "skip_bad_rows": True}
    assert_same(prepared(path, tmp_path / "out", **skipping), ir.read(path, **skipping))


def test_bad_rows_of_parquet_are_reported_by_row(tmp_path: Path) -> None:
    path = tmp_path / "plays.parquet"
    columns = {"user_id": [1, None, 3], "item_id": ["x", "y", " "], "rating": [1.0, 2.0, None]}
    pl.DataFrame(columns).write_parquet(path)
    _, problem = outcome(lambda: ir.read(path))
    _, other = outcome(lambda: prepared(path, tmp_path / "out"))
    assert other == problem
    assert_same(
        prepared(path, tmp_path / "out", skip_bad_rows=True), ir.read(path, skip_bad_rows=True)
    )


# --- several files -------------------------------------------------------------------------------


def test_folders_patterns_and_lists_are_one_table(tmp_path: Path) -> None:
    parts = [plays(200, seed) for seed in range(3)]
    folder = tmp_path / "plays"
    folder.mkdir()
    for n, part in enumerate(parts):
        part.write_parquet(folder / f"part-{n}.parquet")
    expected = ir.read(folder)
    ways = (folder, f"{folder}/*.parquet", sorted(folder.iterdir()))
    for n, files in enumerate(ways):
        assert_same(prepared(files, tmp_path / f"out{n}", duplicates="merge"), expected)
    in_order = {"weight": "plays", "duplicates": "sum"}
    assert_same(prepared(folder, tmp_path / "summed", **in_order), ir.read(folder, **in_order))


def test_a_folder_inside_that_of_the_files_is_not_among_them(tmp_path: Path) -> None:
    plays().write_parquet(tmp_path / "plays.parquet")
    first = ir.prepare(tmp_path, tmp_path / "out")
    assert ir.prepare(tmp_path, tmp_path / "out") == first
    assert first.fingerprint == ir.read(tmp_path / "plays.parquet").fingerprint


def test_a_partition_is_a_column(tmp_path: Path) -> None:
    for day in ("2026-01-30", "2026-01-31"):
        folder = tmp_path / "plays" / f"date={day}"
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text(f"user_id,item_id\nann,x\nann,{day}\n")
    found = prepared(f"{tmp_path}/plays/**/*.csv", tmp_path / "out")
    assert found.item_ids.ids.tolist() == ["2026-01-30", "2026-01-31", "x"]
    days = [np.datetime64(day).astype("datetime64[s]").astype(float) for day in ("2026-01-30",)]
    assert found.times.tolist() == [days[0], days[0] + 86400, days[0] + 86400]


def test_folders_are_those_of_hive_and_spark(tmp_path: Path) -> None:
    """Letters that a path cannot have are escaped, and what is not data begins with _ or a dot."""
    day = tmp_path / "plays" / "user_id=a%2Fb" / "at=2026-01-30 10%3A00%3A00"
    for folder in (day, day / "_temporary", day / ".trash"):
        folder.mkdir(parents=True)
        pl.DataFrame({"item_id": [folder.name]}).write_parquet(folder / "0.parquet")
    pl.DataFrame({"version": [1]}).write_parquet(tmp_path / "plays" / "_metadata.parquet")
    found = prepared(tmp_path / "plays", tmp_path / "out", time="at")
    assert found.user_ids.ids.tolist() == ["a/b"]
    assert found.item_ids.ids.tolist() == [day.name]
    assert found.times.tolist() == [float(np.datetime64("2026-01-30T10:00:00").astype(int))]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_without_a_value_is_reported_for_each_of_its_rows(
    tmp_path: Path, kind: str
) -> None:
    rows = pl.DataFrame({"item_id": ["x", "y"], "rating": [1, 2]})
    for value in ("ann", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / "plays" / f"user_id={value}"
        folder.mkdir(parents=True)
        path = folder / f"a.{kind}"
        rows.write_csv(path) if kind == "csv" else rows.write_parquet(path)
    message = r"PARTITION__/a\.\w+, (line 2|row 1): the user id is missing \(2 such rows\)"
    with pytest.raises(ir.ItemfoldError, match=message):
        ir.prepare(tmp_path / "plays", tmp_path / "out")
    found = prepared(tmp_path / "plays", tmp_path / "out", skip_bad_rows=True)
    assert found.user_ids.ids.tolist() == ["ann"]
    assert found.skipped == {"the user id is missing": 2}


@pytest.mark.parametrize("setting", [{"min_rating": 3}, {"half_life": "1d"}])
def test_a_setting_that_needs_a_column_is_rejected_without_it(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    (tmp_path / "none.csv").write_text("user_id,item_id\na,x\nb,y\n")
    (tmp_path / "bad.csv").write_text("user_id,item_id,rating,timestamp\na,x,good,noon\nb,y,3,1\n")
    for name, message in (("none", "needs (ratings|timestamps)"), ("bad", "line 2: .*(good|noon)")):
        path = tmp_path / f"{name}.csv"
        for function in (ir.read, lambda p, **s: ir.prepare(p, tmp_path / "out", **s)):
            with pytest.raises(ir.ItemfoldError, match=message):
                function(path, **setting)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ("nothing.parquet", "no such file"),
        ("*.tsv", "no file matches"),
        ("day=1", "columns from folders called name=value need parquet"),
        (["a.parquet", "b.csv"], "all be parquet or all be text"),
        (["a.parquet", "c.parquet"], "the item column is text in this file or in a.parquet"),
        (["a.parquet", "d.parquet"], "has no rating column, other files have"),
        ("broken.parquet", "truncated"),
        ([], "at least one file"),
    ],
)
def test_incompatible_files_are_reported(
    tmp_path: Path, files: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plays().write_parquet("a.parquet")
    Path("b.csv").write_text("user_id,item_id\n1,2\n")
    plays().with_columns(item_id=pl.col("user_id")).write_parquet("c.parquet")
    plays().drop("rating").write_parquet("d.parquet")
    Path("broken.parquet").write_bytes(Path("a.parquet").read_bytes()[:200])
    Path("day=1/day=2").mkdir(parents=True)
    Path("day=1/day=2/plays.json").write_text('[{"user": 1, "item": 2}]')
    with pytest.raises(ir.ItemfoldError, match=sentence):
        ir.prepare(files, "out")
    assert not Path("out").exists()


JSON_ROWS = (
    '{"user": {"id": 1}, "item": "x", "rating": 4, "at": "2024-01-31"}\n'
    '{"user": {"id": 2}, "item": "y", "rating": "4.5", "at": 1706700000}\n\n'
    '{"user": {"id": 1}, "item": "x", "rating": 5, "at": "2024-02-01T10:00:00Z"}\n'
)
COPIED = {
    "plays.jsonl": JSON_ROWS,
    "ids.jsonl": '{"user": "7", "item": 12.0}\n{"user": 8, "item": true}\n',
    "api.json": '{"ok": true, "plays": [{"user": 1, "item": 2}, {"user": 3, "item": 2}]}',
    "by_user.json": '{"ann": {"x": 4, "y": 2}, "bob": {"x": 1}}',
    "lists.txt": "1 5 9\n2 9\n3 5 7 8 9\n",
    "baskets.csv": "milk,bread\nmilk,eggs,bread\nbread\nmilk,ham,eggs\n",
    "matrix.csv": "name,a,b,c,d,e,f\nann,1,,2,,5,\nbob,,,,3,,1\n",
    "ones.csv": "name,a,b,c,d,e,f\nann,1,,1,,1,\nbob,,,,1,,1\n",
    "spaces.dat": "1 2 4 1700000000\n2 2 5 1700000009\n3 1 4 1700000009\n1 1 3 1700000010\n",
    "floats.csv": "user,item\n1.0,12.0\n2.0,13.0\n",
    "american.csv": "user,item,date\n1,2,1/31/2024 1:05 PM\n2,2,2/1/2024 12:00 AM\n",
    "opinions.csv": "user,item,reaction\n1,2,like\n2,2,dislike\n",
    "ends.csv": "user,item\n1,2,\n2,3,\n",
}


@pytest.mark.parametrize("name", COPIED)
def test_other_forms_of_text_give_what_read_gives(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "BATCH", 2)  # several batches
    path = tmp_path / name
    path.write_text(COPIED[name])
    found, expected = prepared(path, tmp_path / "out"), ir.read(path)
    assert_same(found, expected)
    assert found.remarks == expected.remarks


def test_windows_text_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_bytes("user,item\nann,“x” – €\nbob,naïve\n".encode("cp1252"))
    found = prepared(path, tmp_path / "out")
    assert found.item_ids.ids.tolist() == ["naïve", "“x” – €"]
    assert_same(found, ir.read(path))


def test_bad_rows_of_json_are_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    path.write_text('{"user": 1, "item": 2}\n{"user": null, "item": 3}\n{"user": 4, "item": 2}\n')
    with pytest.raises(ir.ItemfoldError, match=r"plays\.jsonl, row 2: the user id is missing"):
        ir.prepare(path, tmp_path / "out")
    found = prepared(path, tmp_path / "skipped", skip_bad_rows=True)
    assert_same(found, ir.read(path, skip_bad_rows=True))


def test_json_and_tables_are_prepared_together(tmp_path: Path) -> None:
    for name in ("plays.jsonl", "lists.txt", "ends.csv"):
        (tmp_path / name).write_text(COPIED[name])
    (tmp_path / "plays.jsonl").write_text('{"user": 9, "item": 2}\n')
    files = [tmp_path / name for name in ("plays.jsonl", "ends.csv", "lists.txt")]
    found = prepared(files, tmp_path / "out", skip_bad_rows=False)
    pairs = {(9, 2), (1, 2), (2, 3), (1, 5), (1, 9), (2, 9), (3, 5), (3, 7), (3, 8), (3, 9)}
    users, items = found.user_ids.external(found.users), found.item_ids.external(found.items)
    assert set(zip(users.tolist(), items.tolist(), strict=True)) == pairs


def test_the_texts_of_a_folder_are_those_that_read_takes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.dat", "README.txt", "notes.md", "_c.csv"):
        (tmp_path / "in" / name).write_text(f"user,item\n{name},1\n")
    found = prepared(tmp_path / "in", tmp_path / "out")
    assert_same(found, ir.read(tmp_path / "in"))
    assert found.user_ids.ids.tolist() == ["a.txt", "b.dat"]


# --- interruptions -------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for `kill -9`: nothing may clean up after it."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_preparation_continues_after_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_PER_ROW", 5 * 10**7)
    monkeypatch.setattr(module, "PART_FILES", 1)
    for n in range(2):
        plays(150, n).write_parquet(tmp_path / f"plays-{n}.parquet")
    files, run = f"{tmp_path}/plays-*.parquet", []
    arguments: dict[str, Any] = {"min_rating": 3, "duplicates": "sum", "threads": 1}
    ir.prepare(files, tmp_path / "whole", **arguments)
    save = Work._save

    def save_and_die(self: Work) -> None:
        save(self)
        if self.state["steps"]:
            raise Killed

    once = Work.once

    def die_before_saving(self: Work, phase: str, step: int, *rest: Any) -> Any:
        run.append(phase)
        return once(self, phase, step, *rest)

    out, kills = tmp_path / "out", 0
    monkeypatch.setattr(Work, "once", die_before_saving)
    while True:
        for dying in (Killed, None):  # first within a step, before it is recorded, then after it
            with monkeypatch.context() as patch:
                if dying:
                    patch.setattr(
                        Work, "_save", lambda self: save(self) if not self.began else _die()
                    )
                else:
                    patch.setattr(Work, "_save", save_and_die)
                try:
                    ir.prepare(files, out, **arguments)
                except Killed:
                    kills += 1
        if (out / "prepared.json").exists():
            break
        with pytest.raises(ir.ItemfoldError, match="is not finished; run the same"):
            ir.load(out)
    assert kills > 20
    whole = contents(tmp_path / "whole")
    assert contents(out) == whole
    assert_same(ir.load(out), ir.load(tmp_path / "whole"))


def _die(*_: Any) -> None:
    raise Killed


def test_a_kill_while_files_are_moved_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plays.parquet"
    plays().write_parquet(path)
    ir.prepare(path, tmp_path / "whole", min_rating=4.5)  # so high that ids are renumbered
    move, out, moved = finish.move, tmp_path / "out", 0
    while not (out / "prepared.json").exists():
        left = [1]

        def move_one(*files: Path, left: list[int] = left) -> None:
            if not left:
                raise Killed
            left.pop()
            move(*files)

        monkeypatch.setattr(finish, "move", move_one)
        try:
            ir.prepare(path, out, min_rating=4.5)
        except Killed:
            moved += 1
    assert moved == 6
    assert contents(out) == contents(tmp_path / "whole")


def test_kill_9_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    for n in range(8):
        plays(2000, n).write_parquet(tmp_path / f"plays-{n}.parquet")
    files = [str(path) for path in sorted(tmp_path.glob("*.parquet"))]
    ir.prepare(files, tmp_path / "whole")
    out = tmp_path / "out"
    slow = (
        "import sys, time; from itemfold.data.preparing.work import Work; save = Work._save\n"
        "def slowly(self): save(self); time.sleep(0.2)\n"
        "Work._save = slowly\n"
        "import itemfold as ir; ir.prepare(sys.argv[2:], sys.argv[1])"
    )
    process = subprocess.Popen([sys.executable, "-c", slow, str(out), *files])
    state = out / "work" / "state.json"
    while not (state.exists() and json.loads(state.read_text())["steps"]):
        time.sleep(0.01)
    with pytest.raises(ir.ItemfoldError, match="another process is using"):
        ir.prepare(files, out)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "prepared.json").exists()
    ir.prepare(files, out)
    assert contents(out) == contents(tmp_path / "whole")


def test_other_settings_and_changed_files_are_rejected(tmp_path: Path) -> None:
    path, out = tmp_path / "plays.parquet", tmp_path / "out"
    plays().write_parquet(path)
    first = ir.prepare(path, out)
    assert ir.prepare(path, out) == first  # nothing to do
    with pytest.raises(ir.ItemfoldError, match="'min_rating' was not given and is 3"):
        ir.prepare(path, out, min_rating=3)
    other = tmp_path / "other.parquet"
    plays().write_parquet(other)
    with pytest.raises(ir.ItemfoldError, match="the input files differ"):
        ir.prepare(other, out)
    plays(seed=1).write_parquet(path)
    with pytest.raises(ir.ItemfoldError, match=r"plays.parquet has changed since"):
        ir.prepare(path, out)
    with pytest.raises(ir.ItemfoldError, match="'out' must be a new or an empty folder"):
        ir.prepare(path, tmp_path)


# --- the folder as data --------------------------------------------------------------------------


def test_arrays_are_mapped_and_damage_is_noticed(tmp_path: Path) -> None:
    plays().write_parquet(tmp_path / "plays.parquet")
    out = tmp_path / "out"
    data = prepared(tmp_path / "plays.parquet", out)
    for name in ("users", "items", "ratings", "times"):
        base = getattr(data, name).base
        assert isinstance(base, np.memmap), name
    assert len(data.k_core(2)) == len(ir.read(tmp_path / "plays.parquet", k_core=2))
    path = out / "indices.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ir.ItemfoldError, match=r"indices.npy is damaged or was changed"):
        ir.load(out)
    path.unlink()
    with pytest.raises(ir.ItemfoldError, match=r"is incomplete: indices.npy is missing"):
        ir.load(out)


def test_settings_of_rows_come_too_late_for_a_folder(tmp_path: Path) -> None:
    plays().write_parquet(tmp_path / "plays.parquet")
    prepared(tmp_path / "plays.parquet", tmp_path / "out")
    for name, value in {"user": "x", "weight": "plays", "half_life": "1d"}.items():
        with pytest.raises(ir.ItemfoldError, match=f"'{name}' has no effect on a prepared folder"):
            ir.load(tmp_path / "out", **{name: value})
    titles = ir.load(tmp_path / "out", titles={"track 1": "So What"}, min_rating=4)
    assert titles.ratings.min() == 4
    assert "So What" in titles.titles


@pytest.mark.parametrize(("memory", "fits"), [("4GB", True), ("1.5GiB", True), ("lots", False)])
def test_memory_is_a_size(memory: str, fits: bool) -> None:
    if fits:
        assert module.memory_bytes(memory) in (4 * 10**9, 3 * 2**29)
    else:
        with pytest.raises(ir.ItemfoldError, match="'memory' must be a size such as 4GB"):
            module.memory_bytes(memory)
    with pytest.raises(ir.ItemfoldError, match="'memory' must be at least 500MB, got '1MB'"):
        module.memory_bytes("1MB")


def test_threads_are_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ir.ItemfoldError, match="'threads' must be a positive integer, got 0"):
        ir.prepare("plays.csv", tmp_path / "out", threads=0)


def test_a_missing_duckdb_is_reported_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    with pytest.raises(ir.ItemfoldError, match=r"'prepare' needs duckdb: pip install duckdb"):
        ir.prepare("plays.csv", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("u.data", lambda rows: forms("", rows, "\t").encode()),
        ("ratings.dat", lambda rows: forms("", rows, "::").encode()),
        ("comment.csv", lambda rows: forms("% plays\nuser,item,rating,time", rows, ",").encode()),
        ("books.csv", lambda rows: forms("User-ID;ISBN;Üb;t", rows, ";").encode("latin-1")),
        ("export.txt", lambda rows: forms("Client|Article|Score|Date", rows, "|").encode("utf-16")),
        ("u.gz", lambda rows: gzip.compress(forms("", rows, "\t").encode())),
        ("u.zst", lambda rows: zstandard(forms("", rows, "\t").encode())),
    ],
)
def test_any_form_of_text_is_prepared_as_read_does(name: str, encode: Any, tmp_path: Path) -> None:
    rows = [(u, i, (u + i) % 5 + 1, 1_300_000_000 + u * i) for u in range(9) for i in range(u, 12)]
    (tmp_path / name).write_bytes(encode(rows))
    found = ir.prepare(tmp_path / name, tmp_path / "out", memory="1GB", threads=1)
    expected, data = ir.read(tmp_path / name), ir.load(tmp_path / "out")
    assert found.fingerprint == expected.fingerprint
    assert found.interactions == len(rows)
    for column in ("ratings", "times"):
        one, two = getattr(expected, column), getattr(data, column)
        assert (one is None) == (two is None)
        if one is not None:
            np.testing.assert_array_equal(one, two)


def forms(header: str, rows: list[tuple[int, ...]], sep: str) -> str:
    text = "".join(sep.join(map(str, row)) + "\n" for row in rows)
    return f"{header}\n{text}" if header else text


def zstandard(data: bytes) -> bytes:
    return bytes(pytest.importorskip("pyarrow").compress(data, codec="zstd", asbytes=True))
