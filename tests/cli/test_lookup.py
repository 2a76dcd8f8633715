"""Items by title: `itemfold items`, and titles in the options of `recommend`."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command import call

import itemfold as ir

FILMS = {
    1: "Toy Story (1995)",
    2: "Toy Story 2 (1999)",
    3: "Matrix, The (1999)",
    4: "Amélie (2001)",
    5: "Titanic (1953)",
    6: "Titanic (1997)",
    7: "Heat (1995)",
    8: "8",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films") / "r"
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((40, 12)) < 0.5)
    plays = pl.DataFrame({"user_id": users, "item_id": items + 1})
    titles = {item: FILMS.get(item, f"Film {item}") for item in range(1, 13)}
    ir.fit(plays, ir.models.EASE(l2=5.0), titles=titles, out=folder, progress=False)
    return folder


def found(run: Path, *query: str) -> list[dict[str, object]]:
    return json.loads(call("items", run, *query, "--json").stdout)


def test_items_are_found_by_the_beginnings_of_words_without_case_and_accents(run: Path) -> None:
    assert {row["item"] for row in found(run, "toy st")} == {1, 2}
    assert [row["title"] for row in found(run, "AMELIE")] == ["Amélie (2001)"]
    text = call("items", run, "titanic").stdout
    assert "Titanic (1953)" in text
    assert "Titanic (1997)" in text


def test_without_a_query_the_most_popular_items_are_listed(run: Path) -> None:
    counts = np.bincount(ir.Run.load(run).interactions.indices)
    rows = found(run, "-k", "5")
    assert [row["interactions"] for row in rows] == sorted(counts.tolist(), reverse=True)[:5]
    assert "-k 10 lists twice as many" in call("items", run, "-k", "5").stderr


def test_an_item_that_is_not_there_is_an_error(run: Path) -> None:
    assert "contains 'solaris'" in call("items", run, "solaris", code=2).stderr


def items_of(*args: object) -> list[object]:
    return [pick["item"] for pick in json.loads(call("recommend", *args, "--json").stdout)["items"]]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Toy Story (1995)", "1"),
        ("toy story", "1"),  # a whole title but for the year
        ("Matrix, The (1999)", "3"),  # a comma inside
        ("matrix, the", "3"),
        ("heat,7", "7"),
        ("amel", "4"),
        ('"Matrix, The (1999)", Heat', "3,7"),
        ("8", "8"),
        ("Toy Story 2", "2"),
    ],
)
def test_a_history_may_have_titles(run: Path, text: str, ids: str) -> None:
    assert items_of(run, "--history", text) == items_of(run, "--history", ids)


def test_what_a_part_of_a_title_was_taken_for_is_said(run: Path) -> None:
    assert (
        "itemfold: 'amel' is 4 'Amélie (2001)'"
        in call("recommend", run, "--history", "amel").stderr
    )


@pytest.mark.parametrize("option", ["--history", "--dislike", "--only", "--without"])
def test_titles_that_fit_several_items_are_listed(run: Path, option: str) -> None:
    rest = [] if option == "--history" else ["--history", "1"]
    error = call("recommend", run, option, "titanic", *rest, code=2).stderr
    assert f"'{option}' must name one item, and 'titanic' is in several titles" in error
    assert "5 'Titanic (1953)', 6 'Titanic (1997)'" in error


def test_ids_that_are_names_are_their_own_titles(tmp_path: Path) -> None:
    names = ["The Elder Scrolls V Skyrim", "Dota 2", "Portal", "Portal 2", "Team Fortress 2"]
    plays = pl.DataFrame([(u, i) for u in range(9) for i in names if len(i) % 3 != u % 3],
                         schema=["user", "item"], orient="row")  # fmt: skip
    ir.fit(plays, ir.models.EASE(l2=5.0), out=tmp_path / "r", progress=False)
    expected = items_of(tmp_path / "r", "--history", names[0])
    assert items_of(tmp_path / "r", "--history", "skyrim") == expected
    assert names[0] not in expected
    error = call("recommend", tmp_path / "r", "--history", "2", code=2).stderr
    assert "got '2'" in error  # a number is an id
    error = call("recommend", tmp_path / "r", "--history", "port", code=2).stderr
    assert "Portal, Portal 2" in error


def test_codes_are_no_titles(tmp_path: Path) -> None:
    plays = pl.DataFrame(
        {"user": [1, 1, 2, 2, 3, 3], "item": ["sku12", "b", "sku12", "c", "b", "c"]}
    )
    ir.fit(plays, ir.models.EASE(l2=5.0), out=tmp_path / "r", progress=False)
    error = call("recommend", tmp_path / "r", "--history", "sku1", code=2).stderr
    assert "must name an item of the training data, got 'sku1'" in error


def test_a_history_of_unknown_items_is_an_error_and_not_the_most_popular_items(run: Path) -> None:
    error = call("recommend", run, "--history", "solaris,99", code=2).stderr
    assert "'--history' must name an item of the training data, got 'solaris', '99'" in error
    assert "`itemfold items" in error
    some = call("recommend", run, "--history", "solaris,1").stdout
    assert "unknown to this model and skipped: solaris" in some


def test_reasons_are_shown_only_where_they_are_asked_for(run: Path) -> None:
    history = ",".join(map(str, range(1, 9)))
    assert "because of" not in call("recommend", run, "--history", history).stdout
    assert "because of" in call("recommend", run, "--history", history, "--explain").stdout
    plain = json.loads(call("recommend", run, "--history", history, "--json").stdout)
    assert all(pick["reasons"] == [] for pick in plain["items"])
    told = json.loads(call("recommend", run, "--history", history, "--json", "--explain").stdout)
    for pick in told["items"]:
        assert len(pick["reasons"]) == 5  # of eight
        shares = [reason["share"] for reason in pick["reasons"]]
        assert sum(shares) + pick["others"] + pick["own"] == pytest.approx(pick["score"], abs=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_text_files_of_lists_have_titles(run: Path, suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"recs.{suffix}"
    call("recommend", run, "--all", "-k", "2", "--out", out)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="," if suffix == "csv" else "\t"))
    assert list(rows[0]) == ["user_id", "item_id", "title", "rank", "score"]
    for row in rows:
        item = int(row["item_id"])
        assert row["title"] == FILMS.get(item, f"Film {item}")
