"""What was assumed about a file is said before training, in at most five lines."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from command import call
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.data.assumptions import MOST, assumptions, like_threshold, reading_assumptions
from itemfold.data.describe import describe
from itemfold.errors import ItemfoldError

DAY = 86_400


def rated(*values: float) -> ir.Interactions:
    rows = {"user": range(len(values)), "item": range(len(values)), "rating": values}
    return ir.read(pl.DataFrame({name: list(column) for name, column in rows.items()}))


@pytest.mark.parametrize(
    ("values", "threshold", "share"),
    [
        ((1, 2, 3, 4, 5), 3, 40),
        ((0.5, 1, 2.5, 3, 3.5, 5), 3, 50),
        ((1, 5, 6, 10), 6, 50),
        ((-1, 3, 6, 10), 6, 50),  # -1 is no rating
        ((-9.5, -1, 2, 8), 2, 50),  # Jester
        ((20, 40, 60, 100), 60, 50),
        ((0, 1), 1, 50),
    ],
)
def test_the_rating_that_is_suggested(values, threshold: float, share: int) -> None:
    data = rated(*values)
    assert like_threshold(data) == threshold
    naive = 100 * sum(value < threshold for value in values) / len(values)
    assert naive == share
    line = f"also the {share} % below {threshold:g}: try --min-rating {threshold:g}."
    assert reading_assumptions(data)[1].endswith(line)
    assert len(data.at_least(threshold)) == sum(value >= threshold for value in values)


def write_plays(path: Path, header: str, more: str = "") -> Path:
    rng = np.random.default_rng(1)
    rows = [(u, i) for u in range(20) for i in rng.permutation(12)[:7].tolist()]
    rows = [rows[n] for n in rng.permutation(len(rows))]
    start = 1_600_000_000_000
    text = "".join(
        f"u{u},i{i},{n % 5 + 1},{start + n * DAY * 1000},{n / 2 + 1}\n"
        for n, (u, i) in enumerate(rows)
    )
    path.write_text(f"{header}\n{text}{more}")
    return path


def test_a_column_that_was_left_out_is_not_among_the_options(tmp_path: Path) -> None:
    path = tmp_path / "plays.csv"
    path.write_text("user,item,rating\nann,x,4\nbob,y,\nbob,x,3\n")
    data = ir.read(path)
    assert "the rating is missing" in data.notes[0]
    assert reading_assumptions(data)[0] == "columns: --user-col user --item-col item"


def test_why_there_are_no_times(tmp_path: Path) -> None:
    path = tmp_path / "plays.csv"
    days = [(n % 9, n % 7, f"2024-01-{n:02}", f"2024-02-{n:02}") for n in range(1, 29)]
    pl.DataFrame(days, ["user", "item", "created_at", "updated_at"], orient="row").write_csv(path)
    said = assumptions(data := ir.read(path), ir.split_interactions(data))
    why = "created_at or updated_at could be the times, name one with --time-col"
    assert f"A random 20% of each user's items is held out: {why}." in said
    assert f"{why}, so splits by time are not possible" in describe(data).warnings
    assert ir.read(path, time="updated_at").times is not None
    write_plays(path, "customer,product,stars,time,hours", "u1,i99,1,NULL,2\n")
    said = assumptions(data := ir.read(path), ir.split_interactions(data))
    assert any("is held out: the time column was left out." in line for line in said)
    assert any("leave such rows out with skip_bad_rows=True" in line for line in said)
    assert ir.read(path, skip_bad_rows=True).times is not None


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("is_click", "0 1", "; is_click may say which rows are likes: try --rating-col is_click"),
        ("Bought", "yes no", "; Bought may say which rows are likes: try --rating-col Bought"),
        ("behavior", "pv buy", ", whatever behavior says."),
        ("event type", "view addtocart view", ", whatever event type says."),
        ("is_click", "0 1 2", "."),
        ("mobile", "0 1", "."),
        ("place", "lake view", "."),
    ],
)
def test_columns_that_say_what_users_did_are_named(column: str, values: str, said: str) -> None:
    rows = [(n % 4, n % 5, value) for n, value in enumerate(values.split() * 9)]
    data = ir.read(pl.DataFrame(rows, ["user", "item", column], orient="row"))
    line = f"Every row counts as a like{said}"
    assert reading_assumptions(data)[1].startswith(line)
    assert said != "." or reading_assumptions(data)[1] == line


def test_an_id_that_looks_like_a_missing_value_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "plays.csv"
    path.write_text("user,item\n" + "".join(f"u{n % 5},i{n}\nu{n},NULL\n" for n in range(20)))
    said = assumptions(data := ir.read(path), ir.split_interactions(data))
    why = "'NULL' counts as an item, with 20 interactions; remove such rows if it means missing."
    assert why in said
    assert why.rstrip(".") in describe(data).warnings


def notes(stderr: str) -> list[str]:
    return [line.removeprefix("itemfold: ") for line in stderr.splitlines()]


def test_train_says_what_it_assumed_before_it_trains(tmp_path: Path) -> None:
    repeats = "u1,i99,1,1600000000000,2\n" * 3 + "u1,,1,1600000000000,2\n"
    path = write_plays(tmp_path / "plays.csv", "customer,product,stars,bought_at,hours", repeats)
    line = ["train", path, "--model", "popularity", "--skip-bad-rows", "--out", tmp_path / "r"]
    said = notes(call(*line).stderr)
    assert said[0] == (
        "columns: --user-col customer --item-col product --rating-col stars --time-col bought_at"
    )
    assert said[1] == (
        "Every rating counts as a like, also the 40 % below 3: try --min-rating 3; hours looks "
        "like a weight: try --weight-col hours."
    )
    assert said[2].startswith("2 rows repeat a user and an item and were merged")
    assert said[3].startswith("Split by time: train before 2020-")
    assert "the item id is missing (1)" in said[4]
    assert "Times are in milliseconds" in said[4]
    assert len(said) == 5 == MOST
    again = call(*line[:-1], tmp_path / "r2", "--min-rating", 3, "--weight-col", "hours").stderr
    assert "Ratings of at least 3 count as likes." in again
    assert "looks like a weight" not in again


def test_what_was_asked_for_is_not_said_again(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "user,item\n" + "".join(f"{u},{u * i % 7}\n" for u in range(9) for i in range(4))
    )
    line = ["train", path, "--model", "popularity", "--out", tmp_path / "r"]
    said = notes(call(*line, "--user-col", "user", "--item-col", "item").stderr)
    assert said[0] == "Every row counts as a like."
    assert "A random 20% of each user's items is held out: there are no times." in said
    named = call(
        "train", "synthetic:users=60,items=40,interactions=500", *line[2:-1], tmp_path / "s"
    )
    assert named.stderr == ""


def test_a_given_test_part_is_reported(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 1 2 3\n1 2 3\n2 1 3\n")
    (tmp_path / "test.txt").write_text("0 4\n1 4 2\n")
    data = ir.read(tmp_path)
    said = assumptions(data, ir.split_interactions(data))
    assert said[1] == "The test part is that of the data, 2 interactions."
    assert "also training rows, left out: 1." in said[2]


def test_describe_says_the_same(tmp_path: Path) -> None:
    path = write_plays(tmp_path / "plays.csv", "customer,product,stars,bought_at,hours")
    narrow = CliRunner().invoke(app, ["describe", str(path)], env={"COLUMNS": "40"})
    lines = narrow.stdout.splitlines()
    at = lines.index("Read as")
    options = "--user-col customer --item-col product --rating-col stars --time-col bought_at"
    assert lines[at + 1] == f"- columns: {options}"  # in one line, to be copied
    assert "try --min-rating 3; hours looks like a weight" in lines[at + 2]


# --- mistakes ------------------------------------------------------------------------------------


def test_nothing_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("0 1 2\n1 2 3\n")
    for command in ("train", "describe"):
        done = call(command, "", code=2)
        assert done.stderr == "itemfold: 'data' must be a name or a path, got an empty text\n"
    with pytest.raises(ItemfoldError, match="'source' must be the path of a file or a folder"):
        ir.read(" ")


def test_a_size_is_given_once() -> None:
    with pytest.raises(ItemfoldError, match="'users' must be given once, got it twice"):
        ir.load("synthetic:users=60,users=70")


def test_negative_entries_of_a_matrix_are_no_likes() -> None:
    matrix = sp.csr_array([[1, -1, 0], [0, 2, 1]])
    with pytest.raises(ItemfoldError) as error:
        ir.read(matrix)
    assert "entries must be positive, got -1" in str(error.value)
    assert "'min_rating'" in str(error.value)
    assert len(ir.read(matrix, min_rating=1)) == 3
