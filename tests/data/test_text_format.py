"""Separators, headers, encodings and compressions are recognised by the content of a file."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.readers.text_format import SEPARATORS, recognised, sniff
from itemfold.errors import ItemfoldError

TABLE = "user,item,rating\nann,x,4\nann,y,2\nböb,x,5\n"
PAIRS = {("ann", "x"), ("ann", "y"), ("böb", "x")}


def pairs(data: ir.Interactions) -> set[tuple[Any, Any]]:
    users, items = data.user_ids.external(data.users), data.item_ids.external(data.items)
    return set(zip(users.tolist(), items.tolist(), strict=True))


def error_of(source: Any, **options: Any) -> str:
    with pytest.raises(ItemfoldError) as caught:
        ir.read(source, **options)
    return str(caught.value)


def zipped(data: bytes, *names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, data)
    return file.getvalue()


def zstandard(data: bytes) -> bytes:
    pa = pytest.importorskip("pyarrow")
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda data: zipped(data, "plays.csv", "__MACOSX/._plays.csv"),
    ".zst": zstandard,
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_text_is_read_whatever_it_is_called(suffix: str, tmp_path: Path) -> None:
    packed = PACKERS[suffix](TABLE.encode())
    for name in (f"plays.csv{suffix}", f"plays{suffix}", "plays"):
        (tmp_path / name).write_bytes(packed)
        data = ir.read(tmp_path / name)
        assert pairs(data) == PAIRS
        assert data.name == "plays"
    (tmp_path / f"cut.csv{suffix}").write_bytes(packed[: len(packed) // 2])
    assert "cut.csv" in error_of(tmp_path / f"cut.csv{suffix}")
    (tmp_path / f"other.csv{suffix}").write_text(TABLE)
    assert f"is not a {suffix} file" in error_of(tmp_path / f"other.csv{suffix}")


def test_an_archive_with_several_files_lists_them(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(TABLE.encode(), "ratings.csv", "movies.csv"))
    message = error_of(tmp_path / "a.zip")
    assert "found 2 (ratings.csv, movies.csv)" in message
    assert "extract" in message
    (tmp_path / "a.xlsx").write_bytes(zipped(b"", "[Content_Types].xml", "xl/workbook.xml"))
    assert "is an Excel workbook; save the sheet as .csv" in error_of(tmp_path / "a.xlsx")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("sep", [",", "\t", "::", " "])
def test_encodings(encoding: str, sep: str, tmp_path: Path) -> None:
    path = tmp_path / "plays.txt"
    path.write_bytes(TABLE.replace(",", sep).encode(encoding))
    data = ir.read(path)
    assert pairs(data) == PAIRS
    assert sorted(data.ratings.tolist()) == [2, 4, 5]
    assert ("Latin-1" in " ".join(data.notes)) == (encoding == "latin-1")


def test_a_letter_that_is_not_utf8_may_come_late(tmp_path: Path) -> None:
    rows = "".join(f"u{n % 900},i{n % 70}\n" for n in range(60_000))
    path = tmp_path / "plays.csv"
    path.write_bytes(f"user,item\n{rows}böb,x\n".encode("latin-1"))
    data = ir.read(path)
    assert "böb" in data.user_ids.ids.tolist()
    assert data.notes == ("The file is not UTF-8 and was read as Latin-1.",)


@pytest.mark.parametrize(
    ("name", "line"),
    [("lists.txt", "u{0} i{1} i{2}\n"), ("x.json", '{{"user": "u{0}", "item": "i{1}"}}\n')],
)
def test_the_same_for_lists_and_json(name: str, line: str, tmp_path: Path) -> None:
    text = "".join(line.format(n, n % 50, n % 30 + 60) for n in range(20_000))
    last = line.format("é", 1, 2) + ("böb i1\n" if name == "lists.txt" else "")
    (tmp_path / name).write_bytes((text + last).encode("latin-1"))
    data = ir.read(tmp_path / name)
    assert "ué" in data.user_ids.ids.tolist()
    assert "The file is not UTF-8 and was read as Latin-1." in data.notes


WORDS = st.text("abcxyz019é", min_size=1, max_size=5)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(WORDS, WORDS, st.integers(1, 5)), min_size=1, max_size=30),
    st.sampled_from(SEPARATORS),
    st.booleans(),
)
def test_any_separator_is_recognised(tmp_path: Path, rows: list, sep: str, header: bool) -> None:
    """Against the naive reader: split every line at the separator that it was written with."""
    listed = [("user_id", "item_id", "rating"), *rows] if header else rows
    text = "".join(sep.join(map(str, row)) + "\n" for row in listed)
    assert recognised(text).sep == sep
    path = tmp_path / "table"
    path.write_text(text)
    found = {(str(u), str(i)) for u, i in pairs(ir.read(path, header=header))}
    naive = [line.split(sep) for line in text.splitlines()][int(header) :]
    assert found == {(fields[0], fields[1]) for fields in naive}


@pytest.mark.parametrize(
    ("text", "sep", "header"),
    [
        ("user;item;price\nann;x;4,5\n", ";", True),
        ("1,31,2.5\n1,29,3\n", ",", False),
        ("ann\theat\t4.5\n", "\t", False),
        ("ann,heat\nann,alien\nbob,heat\n", ",", False),  # a name comes again
        ("who,what\nann,heat\nbob,alien\n", ",", True),  # no name comes again
        ("who,stars\nann,5\nbob,4\n", ",", True),  # a number below a word
        ("u1,i1,2020-01-01 10:00:00\nu2,i2,2020-01-02 11:00:00\n", ",", False),
        ("ann;x;4,5\nbob;y;3,5\n", ";", False),
        ("# a comment\n% another\nuser item\n1 2\n", " ", True),
        ("userId,1,2,3\n7,5,,3\n", ",", True),
        ("sep=;\nwho;stars\nann;4,5\n", ";", True),  # as Excel writes it
        ("\ufeffsep=\t\r\nann\tx\t5\r\n", "\t", False),
        (",1,2,3\nann,5,,3\n", ",", True),  # pandas leaves the name of the index empty
        ("id,title\n1,Toy Story\n2,Heat\n", ",", True),
        ('"a"\t"b"\n"1"\t"2"\n', "\t", True),
    ],
)
def test_formats(text: str, sep: str, header: bool, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    form, _ = sniff(path)
    assert (form.sep, form.header) == (sep, header)


def test_the_line_of_the_separator_is_no_row(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path = tmp_path / f"{encoding}.csv"
        path.write_bytes("sep=;\r\nuser;item;rating\r\nann;x;4,5\r\nbob;y;3\r\n".encode(encoding))
        data = ir.read(path)
        assert pairs(data) == {("ann", "x"), ("bob", "y")}
        assert data.ratings is not None
        assert data.ratings.tolist() == [4.5, 3.0]
        assert pairs(ir.load(ir.prepare(path, tmp_path / encoding).folder)) == pairs(data)
    path.write_text("sep=;\nuser;item\nann;x\nbob\n")
    assert "line 4" in error_of(path)


def test_an_error_lists_the_first_columns_of_many(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(",".join(f"fact{n}" for n in range(300)) + "\n" + "1," * 299)
    message = error_of(tmp_path / "x.csv")
    assert "fact0, fact1, " in message
    assert "… (300 in all)" in message
    assert len(message) < 400


def test_quotes_are_letters_where_they_are_not_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text('user\titem\tname\n1\t7\t"Heroes" (live\n2\t8\t12" mix\n3\t9\t"\n')
    assert pairs(ir.read(path)) == {(1, 7), (2, 8), (3, 9)}
    path = tmp_path / "x.csv"
    path.write_text('user,item,name\n1,7,a 12" mix\n2,8,b\n')
    assert pairs(ir.read(path)) == {(1, 7), (2, 8)}


def test_header_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("who,what\nann,x\nbob,y\n")
    assert "columns found: who, what" in error_of(path)
    assert "add --no-header" in error_of(path)
    assert pairs(ir.read(path, header=False)) == {("who", "what"), ("ann", "x"), ("bob", "y")}
    assert pairs(ir.read(path, user="who", item="what")) == {("ann", "x"), ("bob", "y")}
    path.write_text("7,8\n1,2\n3,4\n")
    assert pairs(ir.read(path)) == {(7, 8), (1, 2), (3, 4)}
    assert pairs(ir.read(path, user="2", item=1)) == {(8, 7), (2, 1), (4, 3)}
    assert pairs(ir.read(path, user="7", item="8")) == {(1, 2), (3, 4)}  # names of the first line
    assert "no user column" in error_of(path, header=True)
    assert "'header' must be true or false, got 'no'" in error_of(path, header="no")
    data = ir.read(path, header=False)
    again = dict(data.source)
    assert ir.read(again.pop("data"), **again).fingerprint == data.fingerprint


def test_columns_without_names_are_told_apart_by_their_values(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("u1,2024-01-31,i1,3\nu2,2024-02-01,i2,5\n")
    data = ir.read(path)
    assert (
        data.layout.options == "--no-header --user-col 1 --item-col 3 --rating-col 4 --time-col 2"
    )
    path.write_text("1,1.5,2.5\n2,2.5,1.25\n")  # no second column of ids
    message = error_of(path)
    assert "line 1 was read as data" in message
    assert "columns are called 1 to 3" in message


def test_dates_that_are_written_as_one_number_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("user,item,date\n1,2,20200705\n1,3,20200806\n")
    data = ir.read(path)
    assert data.times.tolist() == [20200705, 20200806]
    assert data.notes == ("Times such as 20200705 are not seconds; only their order is used.",)
    path.write_text("1,2,20200705\n1,3,20200806\n2,3,20200807\n")  # no weights
    assert ir.read(path).times.tolist() == [20200705, 20200806, 20200807]


# --- JSON ----------------------------------------------------------------------------------------


def test_json_is_read_as_lines_as_an_array_and_as_columns(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["ann", "ann", "böb"], "item": [1, 2, 1], "stars": [4, 2, 5]})
    rows = frame.to_dicts()
    texts = {
        "lines.json": "\n".join(map(json.dumps, rows)),
        "spaced.jsonl": "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n",
        "array.json": json.dumps(rows, indent=2),
        "columns.json": json.dumps(frame.to_dict(as_series=False)),
        "frame.json": frame.to_pandas().to_json(),
        "one_line": json.dumps(rows),
    }
    expected = ir.read(frame)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        data = ir.read(tmp_path / name)
        assert data.fingerprint == expected.fingerprint, name
        assert data.ratings.tolist() == expected.ratings.tolist()


def test_bad_rows_of_json_are_named_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"user": 1, "item": 2}\n\n{"item": 3}\n{"user": 4, "item": 5}\n')
    message = error_of(path)
    assert "line 3: the user id is missing" in message
    assert "--skip-bad-rows" in message
    data = ir.read(path, skip_bad_rows=True)
    assert pairs(data) == {(1, 2), (4, 5)}
    assert data.skipped == {"the user id is missing": 1}


# --- lists and matrices --------------------------------------------------------------------------


def test_lines_of_a_user_and_its_items(tmp_path: Path) -> None:
    path = tmp_path / "baskets.txt"
    path.write_text("ann x y z\nbob x\neve y w\n")
    data = ir.read(path)
    assert pairs(data) == {*(("ann", i) for i in "xyz"), ("bob", "x"), ("eve", "y"), ("eve", "w")}
    assert "a user and its items" in data.notes[0]
    path.write_text("1,10,11\n2,11,12\n3,12,10\n")  # lists of equal length
    assert pairs(ir.read(path)) == {(1, 10), (1, 11), (2, 11), (2, 12), (3, 12), (3, 10)}
    assert "'user' needs a file with columns" in error_of(path, user="who")
    path.write_text("milk,bread\nmilk\nbeer,milk,jam\n")  # the first ids repeat
    data = ir.read(path)
    assert pairs(data) == {
        (1, "milk"), (1, "bread"), (2, "milk"), (3, "beer"), (3, "milk"), (3, "jam")
    }  # fmt: skip
    assert "a basket of items" in data.notes[0]


@pytest.mark.parametrize("first", ["pot plants\n", "item 1,item 2,brown rice\n"])
def test_names_in_baskets_may_have_spaces(first: str, tmp_path: Path) -> None:
    text = (
        first + "pot plants,brown rice\nbrown rice,item 1,item 2\npot plants\nitem 2,item 1\n" * 9
    )
    (tmp_path / "groceries.csv").write_text(text)
    data = ir.read(tmp_path / "groceries.csv")
    assert data.item_ids.ids.tolist() == ["brown rice", "item 1", "item 2", "pot plants"]
    assert data.n_users == 37


def test_other_texts_are_no_lists(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text("GET / 200\nPOST /x 404 1\nPUT /about 201\nHEAD\n")
    message = error_of(path)
    assert "only 0 of 7 ids come more than once; expected a table" in message
    path.write_bytes(bytes(range(256)) * 8)
    assert "access.log: is not a text file" in error_of(path)


def test_one_part_of_a_split_is_not_read_alone(tmp_path: Path) -> None:
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("0 1 2\n1 2\n2 3 4 5\n")
    assert "pass the folder, so that test.txt is read, too" in error_of(tmp_path / "train.txt")
    (tmp_path / "test.txt").unlink()
    assert len(ir.read(tmp_path / "train.txt")) == 6


def test_a_matrix_has_users_or_items_as_rows(tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    rows = [["ann", 5, "", 3, "", 1, ""], ["bob", "", 4, 0, "", "nan", 2]]
    expected = {("ann", "a"): 5, ("ann", "c"): 3, ("ann", "e"): 1, ("bob", "b"): 4, ("bob", "f"): 2}
    with path.open("w") as file:
        csv.writer(file).writerows([["user", *"abcdef"], *rows])
    data = ir.read(path)
    assert pairs(data) == set(expected)
    assert sorted(data.ratings.tolist()) == sorted(expected.values())
    assert "a matrix of users × items" in data.notes[0]
    with path.open("w") as file:
        csv.writer(file).writerows([["movie", *"abcdef"], *rows])
    assert pairs(ir.read(path)) == {(user, item) for item, user in expected}
    with path.open("w") as file:  # facts about users are no ratings
        csv.writer(file).writerows(
            [["user", "age", "income", "height", "weight", "children", "pets"],
             ["ann", 30, 4000, 170, 60, 0, 1], ["bob", 40, 5000, 180, 80, 2, 0]]
        )  # fmt: skip
    assert "no item column" in error_of(path)


# --- several files -------------------------------------------------------------------------------


def test_files_of_a_folder_or_a_pattern_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("user,item\nann,1\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"user,item\nbob,x\n"))
    (tmp_path / "README.txt").write_text("about the data")
    for source in (tmp_path, tmp_path / "*.csv*"):
        data = ir.read(source)
        assert pairs(data) == {("ann", "1"), ("bob", "x")}
        assert "2 files were read as one table." in data.notes
    (tmp_path / "titles.csv").write_text("item,title\n1,Heat\n")
    message = error_of(tmp_path)
    assert "1.csv, 2.csv.gz, titles.csv are not one table (titles.csv: no user column" in message
    assert "--titles" in message
    (tmp_path / "2.csv.gz").unlink()  # one table of interactions, and one of titles
    data = ir.read(tmp_path)
    assert data.titles.tolist() == ["Heat"]
    assert data.notes == ("The interactions are those of 1.csv, the titles those of titles.csv.",)
    (tmp_path / "titles.csv").write_text("visitor,item\nann,1\n")
    assert "titles.csv: it has other columns than 1.csv" in error_of(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ("train.csv", "valid.csv", "test.csv"),
        ("ml.train.inter", "ml.dev.inter", "ml.test.inter"),
        ("ml-1m.train.rating", "ml-1m.valid.rating", "ml-1m.test.rating"),
    ],
)
def test_tables_of_a_split_are_its_parts(names: tuple[str, str, str], tmp_path: Path) -> None:
    contents = ("ann,x\nann,y\nbob,x\n", "ann,z\n", "ann,w\nbob,y\n")
    for name, rows in zip(names, contents, strict=True):
        text = f"user_id,item_id\n{rows}"
        (tmp_path / name).write_text(text if name.endswith("csv") else text.replace(",", "\t"))
    (tmp_path / "items.csv").write_text("item_id,price\nx,3\n")
    data = ir.read(tmp_path)
    assert pairs(data.where(data.held_out)) == {("ann", "w"), ("bob", "y")}
    assert pairs(data.where(~data.held_out)) == {*PAIRS_OF_TRAIN, ("ann", "z")}
    text = " ".join(data.notes)
    assert f"Rows of {names[1]} that join the training data: 1;" in text
    assert "not read: items.csv" in text
    alone = ir.read(tmp_path / names[0])
    assert pairs(alone) == PAIRS_OF_TRAIN
    assert f"{names[2]} beside it is not read; pass the folder to use it." in alone.notes


PAIRS_OF_TRAIN = {("ann", "x"), ("ann", "y"), ("bob", "x")}


def test_patterns_may_have_folders(tmp_path: Path) -> None:
    for day in ("mon", "tue"):
        (tmp_path / "plays" / day).mkdir(parents=True)
        (tmp_path / "plays" / day / "a.csv").write_text(f"user,item\nann,{day}\n")
    for pattern in ("plays/*/a.csv", "plays/**/*.csv"):
        data = ir.read(tmp_path / pattern)
        assert pairs(data) == {("ann", "mon"), ("ann", "tue")}
        assert data.name == "plays"


def test_a_validation_file_is_used_and_reported(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 1 2\n1 2\n")
    (tmp_path / "valid.txt").write_text("0 5\n")
    (tmp_path / "test.txt").write_text("0 3 1\n1 4\n")
    data = ir.read(tmp_path)
    assert pairs(data.where(~data.held_out)) == {(0, 1), (0, 2), (0, 5), (1, 2)}
    assert pairs(data.where(data.held_out)) == {(0, 3), (1, 4)}
    text = " ".join(data.notes)
    assert "Rows of valid.txt that join the training data: 1;" in text
    assert (
        "Rows of the test file that repeat others or are also training rows, left out: 1." in text
    )


# --- addresses -----------------------------------------------------------------------------------


def test_addresses_are_read_through_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for name in ("a.csv", "b.csv"):
        store.pipe(f"/plays/{name}", TABLE.replace("ann", name[0]).encode())
    try:
        one = ir.load("memory://plays/a.csv")
        assert pairs(one) == {("a", "x"), ("a", "y"), ("böb", "x")}
        assert (one.name, one.source["data"]) == ("a", "memory://plays/a.csv")
        for address in ("memory://plays", "memory://plays/*.csv"):
            assert pairs(ir.load(address)) == pairs(one) | {("b", "x"), ("b", "y")}
        assert "memory://plays/none.csv: no such file" in error_of("memory://plays/none.csv")
        assert "no such file" in error_of("memory://plays/*.tsv")
    finally:
        store.rm("/plays", recursive=True)
    assert "cannot be read" in error_of("nosuch://plays/a.csv")

    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    message = error_of("s3://bucket/plays.csv")
    assert message == ("s3://bucket/plays.csv: s3:// needs the package s3fs: pip install s3fs")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    assert "need the package fsspec: pip install fsspec s3fs" in error_of("s3://bucket/x.csv")
