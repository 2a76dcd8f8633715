"""Tables of titles: their columns are recognised like those of interactions, or named."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from command import call

import itemfold as ir
from itemfold.errors import ItemfoldError

FRAME = pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 9]})
EXPECTED = ["Heat", "Alien", ""]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("item_info.dat", "Game_ID\tGame Name\n7\tHeat\n8\tAlien\n"),
        ("x.item", "item_id:token\tmovie_title:token_seq\tclass:token\n7\tHeat\ta\n8\tAlien\tb\n"),
        ("anime.csv", "anime_id,name,genre,type\n7,Heat,a|b,TV\n8,Alien,c,TV\n"),
        ("books.csv", "book_id;original_publication_year;title\n7;1990;Heat\n8;1980;Alien\n"),
        ("products.csv", "product_id,product_name,aisle,dep name\n7,Heat,1,d\n8,Alien,1,d\n"),
        ("movies.dat", "7::Heat::Crime|Drama\n8::Alien::Horror|Drama\n"),
        ("u.item", "7|Heat|01-Jan-1995||http://a|0|1\n8|Alien|01-Jan-1979||http://b|1|0\n"),
        ("id.csv", "id,title\n7,Heat\n8,Alien\n"),
        ("lines.json", '{"business_id": 7, "name": "Heat"}\n{"business_id": 8, "name": "Alien"}\n'),
        ("array.json", json.dumps([{"id": "7", "title": "Heat"}, {"id": "8", "title": "Alien"}])),
    ],
)  # fmt: skip
def test_titles_are_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert ir.read(FRAME, titles=tmp_path / name).titles.tolist() == EXPECTED
    (tmp_path / "packed.gz").write_bytes(gzip.compress(text.encode()))
    assert ir.read(FRAME, titles=tmp_path / "packed.gz").titles.tolist() == EXPECTED


def test_genres_of_movielens_and_letters_of_latin1(tmp_path: Path) -> None:
    text = "7::Cité (1995)::Crime|Drama\n8::Alien::Horror\n"
    (tmp_path / "movies.dat").write_bytes(text.encode("latin-1"))
    data = ir.read(FRAME, titles=tmp_path / "movies.dat")
    assert data.titles.tolist() == ["Cité (1995)", "Alien", ""]
    assert data.genres.tolist() == ["Crime|Drama", "Horror", ""]


def test_columns_of_titles_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("key,album name,track name,note\n7,A,Heat,h\n8,B,Alien,g\n")
    with pytest.raises(ItemfoldError) as error:
        ir.read(FRAME, titles=path)
    message = str(error.value)
    assert "it could be album name or track name" in message
    assert "name it with --title-id-col" in message
    found = ir.read(FRAME, titles=path, title="track name", title_id="key")
    assert found.titles.tolist() == EXPECTED
    with pytest.raises(
        ItemfoldError, match="no column 'colour', as named with --title-col; columns"
    ):
        ir.read(FRAME, titles=path, title="colour", title_id="key")
    path.write_text("what,colour\n7,red\n")
    with pytest.raises(ItemfoldError) as error:
        ir.read(FRAME, titles=path)
    for part in ("what, colour", "item_id", "title, name", "--title-col", "--title-id-col"):
        assert part in str(error.value)
    with pytest.raises(
        ItemfoldError, match="'title' needs a file of titles; name it with 'titles'"
    ):
        ir.read(FRAME, titles={7: "Heat"}, title="name")


def test_the_options_reach_the_lists_and_the_run(tmp_path: Path) -> None:
    rows = "".join(f"{u}\t{i}\t{u + i}\n" for u in range(1, 9) for i in range(1, 8) if (u * i) % 3)
    (tmp_path / "plays.dat").write_text(f"User_ID\tGame_ID\tHours\n{rows}")
    titles = "".join(f"{i};Game {i};x\n" for i in range(1, 8))
    (tmp_path / "games").write_text(f"number;caption;shop\n{titles}")
    run = tmp_path / "run"
    options = ["--titles", tmp_path / "games", "--title-col", "caption", "--title-id-col", "number"]
    done = call("train", tmp_path / "plays.dat", *options, "--model", "popularity", "--out", run)
    assert "Hours looks like a weight: try --weight-col Hours" in done.stderr
    assert "Game 1" in call("recommend", run, "--history", "2,3", "-k", 5).stdout
    final = call("train", "--final", run, "--out", tmp_path / "final")
    assert "Game 1" in call("recommend", tmp_path / "final", "--history", "2,3", "-k", 5).stdout
    assert final.exit_code == 0
    call("evaluate", run, "--data", tmp_path / "plays.dat")


def test_titles_beside_the_data_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.inter").write_text("user_id:token\titem_id:token\n1\t7\n2\t8\n")
    (tmp_path / "a.item").write_text("item_id:token\ttitle:token_seq\n7\tHeat\n8\tAlien\n")
    for source in (tmp_path / "a.inter", tmp_path):
        assert ir.read(source).titles.tolist() == ["Heat", "Alien"]
    assert ir.read(tmp_path / "a.inter", titles={7: "So What"}).titles.tolist() == ["So What", ""]
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating\n1,7,3\n2,8,4\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n7,Heat,Crime\n8,Alien,Horror\n")
    assert ir.read(tmp_path / "ratings.csv").titles.tolist() == ["Heat", "Alien"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("data", "titles", "title", "note"),
    [
        ("steam/game_play.dat", "steam/item_info.dat", "Fallout 4", "Hours looks like a weight"),
        ("ml-100k/ml-100k.inter", None, "Toy Story", "17 % below 3: try --min-rating 3"),
        ("checkins/checkins.csv", None, None, "126,683 rows repeat a user and an item"),
    ],
)
def test_real_files_are_trained_on_as_they_are(
    data_root: Path, tmp_path: Path, data: str, titles: str | None, title: str | None, note: str
) -> None:
    line = ["train", data_root / data, "--model", "popularity", "--out", tmp_path / "r"]
    done = call(*line, *(["--titles", data_root / titles] if titles else []))
    assert note in done.stderr
    run = ir.Run.load(tmp_path / "r")
    assert (title in run.titles.tolist()) if title else run.titles is None
    item = run.item_ids.ids.tolist()[0]
    assert call("recommend", tmp_path / "r", "--history", item, "-k", 3).stdout


def test_a_pattern_that_matches_one_file_has_the_titles_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.inter").write_text("user_id:token\titem_id:token\n1\t7\n2\t7\n2\t8\n")
    (tmp_path / "a.item").write_text("item_id:token\tmovie_title:token_seq\n7\tBabe\n8\tFargo\n")
    data = ir.load(str(tmp_path / "*.inter"))
    assert data.titles is not None
    assert data.titles.tolist() == ["Babe", "Fargo"]
    (tmp_path / "b.inter").write_text("user_id:token\titem_id:token\n3\t8\n")
    assert (
        ir.load(str(tmp_path / "*.inter")).titles is None
    )  # of which file they are is not certain
