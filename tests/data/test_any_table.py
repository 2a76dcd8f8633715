"""Small files in the forms of public ones, from `describe` to `recommend` without an option, or
with the one that the message names."""

import datetime as dt
import gzip
import json
import re
import shlex
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command import call

import itemfold as ir

USERS, ITEMS, START = 24, 16, 1_300_000_000
Row = tuple[int, int, int, int]  # user, item, rating, time


def make_rows() -> list[Row]:
    """Each user has rated about half of the items, in an order of their own."""
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    for user in range(1, USERS + 1):
        for item in rng.permutation(ITEMS)[: rng.integers(6, 11)].tolist():
            rows.append((user, item + 100, int(rng.integers(1, 6)), START + len(rows) * 3600))
    return rows


ROWS = make_rows()


def lines(rows: Iterable[Iterable[Any]], sep: str) -> str:
    return "".join(sep.join(map(str, row)) + "\n" for row in rows)


def write_text(folder: Path, name: str, text: str, encoding: str = "utf-8") -> Path:
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def objects(user: str, item: str, rating: str, time: str) -> list[dict[str, Any]]:
    return [
        {"review_id": f"r{n}", user: f"u{u}", item: f"i{i}", rating: r, "text": "so, so", time: t}
        for n, (u, i, r, t) in enumerate(ROWS)
    ]


def iso(seconds: int) -> str:
    return str(np.datetime64(seconds, "s")).replace("T", " ")


def moment(seconds: int, form: str) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime(form)


# --- one writer for each form; the name is that of the public file -------------------------------


def movielens_100k(folder: Path) -> Path:
    return write_text(folder, "u.data", lines(ROWS, "\t"))


def movielens_1m(folder: Path) -> Path:
    return write_text(folder, "ratings.dat", lines(ROWS, "::"))


def movielens_latest(folder: Path) -> Path:
    return write_text(folder, "ratings.csv", "userId,movieId,rating,timestamp\n" + lines(ROWS, ","))


def recbole(folder: Path) -> Path:
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    return write_text(folder, "anime.inter", header + lines(ROWS, "\t"))


def lastfm_360k(folder: Path) -> Path:
    rows = ((f"{u:040x}", f"mbid-{i}", f'the "{i}', 7 * r + u) for u, i, r, _ in ROWS)
    return write_text(folder, "usersha1-artmbid-artname-plays.tsv", lines(rows, "\t"))


def lastfm_1k(folder: Path) -> Path:
    rows = ((f"user_{u:06}", f"{iso(t)}Z".replace(" ", "T"), f"art{i}", "A") for u, i, _, t in ROWS)
    return write_text(folder, "userid-timestamp-artid-artname.tsv", lines(rows, "\t"))


def book_crossing(folder: Path) -> Path:
    rows = (f'"{u}";"{i}é";"{2 * r}"\n' for u, i, r, _ in ROWS)
    text = '"User-ID";"ISBN";"Book-Rating"\n' + "".join(rows)
    return write_text(folder, "BX-Book-Ratings.csv", text, "latin-1")


def steam(folder: Path) -> Path:
    rows = ((u, f"Game {i}", "play", r * 10.5, 0) for u, i, r, _ in ROWS)
    return write_text(folder, "steam-200k.csv", lines(rows, ","))


def steam_table(folder: Path) -> Path:
    rows = ((u, i, float(r)) for u, i, r, _ in ROWS)
    return write_text(folder, "game_play.dat", "User_ID\tGame_ID\tHours\n" + lines(rows, "\t"))


def goodreads(folder: Path) -> Path:
    rows = "".join(json.dumps(o) + "\n" for o in objects("user_id", "book_id", "rating", "n_votes"))
    path = folder / "goodreads_interactions.json.gz"
    path.write_bytes(gzip.compress(rows.encode()))
    return path


def yelp(folder: Path) -> Path:
    rows = objects("user_id", "business_id", "stars", "date")
    text = "".join(json.dumps({**row, "date": iso(row["date"])}) + "\n" for row in rows)
    return write_text(folder, "yelp_academic_dataset_review.json", text)


def amazon(folder: Path) -> Path:
    rows = objects("reviewerID", "asin", "overall", "unixReviewTime")
    return write_text(folder, "reviews.json", json.dumps(rows, indent=1))


def instacart(folder: Path) -> Path:
    path = folder / "order_products__prior.csv.gz"
    text = "order_id,product_id,add_to_cart_order,reordered\n"
    text += lines(((u, i, n % 7, r % 2) for n, (u, i, r, _) in enumerate(ROWS)), ",")
    path.write_bytes(gzip.compress(text.encode()))
    return path


def wide_matrix(folder: Path) -> Path:
    rated = {(u, i): r for u, i, r, _ in ROWS}
    items = sorted({i for _, i, _, _ in ROWS})
    rows = ([u, *(rated.get((u, i), "") for i in items)] for u in range(1, USERS + 1))
    return write_text(folder, "matrix.csv", lines([["user", *items], *rows], ","))


def baskets(folder: Path) -> Path:
    bought = {u: [f"sku{i}" for v, i, _, _ in ROWS if v == u] for u, _, _, _ in ROWS}
    return write_text(folder, "baskets.txt", lines(([f"u{u}", *b] for u, b in bought.items()), " "))


def kuairec(folder: Path) -> Path:
    header = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio\n"
    rows = ((u, i, 9000 + r, 7000, iso(t), 20200705, float(t), r / 4) for u, i, r, t in ROWS)
    return write_text(folder, "small_matrix.csv", header + lines(rows, ","))


def retail(folder: Path) -> Path:
    header = "InvoiceNo|StockCode|Description|Quantity|InvoiceDate|UnitPrice|CustomerID\n"
    rows = ((9, f"S{i}", "A SET", r, iso(t), 2.55, f"c{u}") for u, i, r, t in ROWS)
    return write_text(folder, "online_retail.txt", header + lines(rows, "|"))


def shop(folder: Path) -> Path:
    rows = ((f"c{u}", f"p{i}", iso(t)[:10]) for u, i, _, t in ROWS)
    return write_text(folder, "sales", "customer,product,date\n" + lines(rows, ","))


def spotify(folder: Path) -> Path:
    rows = ((f"l{u}", f"spotify:track:{i}", f"Song {i}") for u, i, _, _ in ROWS)
    text = "playlist_id,track_uri,track_name\n" + lines(rows, ",")
    return write_text(folder, "playlists.csv", text, "utf-8-sig")


def excel(folder: Path) -> Path:
    rows = ((f"ü{u}", i, r) for u, i, r, _ in ROWS)
    text = lines([("Client", "Article", "Score"), *rows], "\t")
    return write_text(folder, "export.txt", text, "utf-16")


def kaggle_zip(folder: Path) -> Path:
    text = "user_id,anime_id,rating\n" + lines((row[:3] for row in ROWS), ",")
    with zipfile.ZipFile(folder / "rating.zip", "w") as archive:
        archive.writestr("rating.csv", text)
    return folder / "rating.zip"


def parquet(folder: Path) -> Path:
    names = ["visitor_id", "article_id", "score", "click_timestamp"]
    pl.DataFrame(ROWS, schema=names, orient="row").write_parquet(folder / "clicks")
    return folder / "clicks"


def in_parts(folder: Path) -> Path:
    for n in range(3):
        part = lines((row[:2] for row in ROWS[n::3]), ",")
        write_text(folder, f"part-{n}.csv", "session_id,item_id\n" + part)
    return folder


def pattern(folder: Path) -> Path:
    in_parts(folder)
    return folder / "part-*.csv"


def konect(folder: Path) -> Path:
    rows = (f"{u} {i}  {r} {t}\n" for u, i, r, t in ROWS)
    return write_text(folder, "out.ratings", "% bip weighted\n% 1 2 3\n" + "".join(rows))


def frame_json(folder: Path) -> Path:
    columns: dict[str, dict[str, str]] = {"member": {}, "film": {}}
    for n, (u, i, _, _) in enumerate(ROWS):
        columns["member"][str(n)], columns["film"][str(n)] = f"m{u}", f"f{i}"
    return write_text(folder, "frame.json", json.dumps(columns))


def german_excel(folder: Path) -> Path:
    days = ((f"K{u}", f"Ä{i}", f"{r},5", moment(t, "%d.%m.%Y %H:%M")) for u, i, r, t in ROWS)
    text = "Kundennummer;Artikel;Bewertung;Datum\r\n" + lines(days, ";").replace("\n", "\r\n")
    return write_text(folder, "Bewertungen.csv", text, "utf-8-sig")


def spanish(folder: Path) -> Path:
    rows = ((f"u{u}", f"p{i}", r, moment(t, "%d/%m/%Y")) for u, i, r, t in ROWS)
    return write_text(folder, "a.csv", "usuario,película,puntuación,fecha\n" + lines(rows, ","))


def american(folder: Path) -> Path:
    rows = ((u, i, moment(t, "%m/%d/%Y %I:%M:%S %p")) for u, i, _, t in ROWS)
    return write_text(
        folder, "orders.csv", "customer_id,product_id,order_date\n" + lines(rows, ",")
    )


def opinions(folder: Path) -> Path:
    rows = ((u, i, "like" if r > 2 else "dislike") for u, i, r, _ in ROWS)
    return write_text(folder, "likes.csv", "user,item,reaction\n" + lines(rows, ","))


def windows(folder: Path) -> Path:
    rows = ((f"Zoë {u}", f"“{i}” – €", r) for u, i, r, _ in ROWS)
    return write_text(folder, "old.csv", "user,product,rating\n" + lines(rows, ","), "cp1252")


def open_ends(folder: Path) -> Path:
    rows = ((*row, "") for row in ROWS)
    return write_text(folder, "x.csv", "user,item,rating,timestamp\n" + lines(rows, ","))


def float_ids(folder: Path) -> Path:
    rows = ((f"{u}.0", f"{i}.0") for u, i, _, _ in ROWS)
    return write_text(folder, "pandas.csv", "user,item\n" + lines(rows, ","))


def nested_json(folder: Path) -> Path:
    rows = [
        {"user": {"id": u, "name": "ann"}, "item": {"id": i, "title": "x"}, "rating": r}
        for u, i, r, _ in ROWS
    ]
    text = json.dumps({"page": 1, "data": {"count": len(rows), "events": rows}})
    return write_text(folder, "api.json", text)


def json_by_user(folder: Path) -> Path:
    lists = {f"u{n}": [i for u, i, _, _ in ROWS if u == n] for n in range(1, USERS + 1)}
    return write_text(folder, "likes.json", json.dumps(lists))


NUMBERED = "--no-header --user-col 1 --item-col 2"
SESSIONS = "--user-col session_id --item-col item_id"
FORMS: dict[Callable[[Path], Path], str] = {  # the options of the note on columns
    movielens_100k: f"{NUMBERED} --rating-col 3 --time-col 4",
    movielens_1m: f"{NUMBERED} --rating-col 3 --time-col 4",
    movielens_latest: "--user-col userId --item-col movieId --rating-col rating "
    "--time-col timestamp",
    recbole: "--user-col user_id --item-col item_id --rating-col rating --time-col timestamp",
    lastfm_360k: NUMBERED,
    lastfm_1k: "--no-header --user-col 1 --item-col 3 --time-col 2",
    book_crossing: "--user-col User-ID --item-col ISBN --rating-col Book-Rating",
    steam: NUMBERED,
    steam_table: "--user-col User_ID --item-col Game_ID",
    goodreads: "--user-col user_id --item-col book_id --rating-col rating",
    yelp: "--user-col user_id --item-col business_id --rating-col stars --time-col date",
    amazon: "--user-col reviewerID --item-col asin --rating-col overall --time-col unixReviewTime",
    instacart: "--user-col order_id --item-col product_id",
    wide_matrix: "",
    baskets: "",
    kuairec: "--user-col user_id --item-col video_id --time-col timestamp",
    retail: "--user-col CustomerID --item-col StockCode --time-col InvoiceDate",
    shop: "--user-col customer --item-col product --time-col date",
    spotify: "--user-col playlist_id --item-col track_uri",
    excel: "--user-col Client --item-col Article --rating-col Score",
    kaggle_zip: "--user-col user_id --item-col anime_id --rating-col rating",
    parquet: "--user-col visitor_id --item-col article_id --rating-col score "
    "--time-col click_timestamp",
    in_parts: SESSIONS,
    pattern: SESSIONS,
    konect: f"{NUMBERED} --rating-col 3 --time-col 4",
    frame_json: "--user-col member --item-col film",
    german_excel: "--user-col Kundennummer --item-col Artikel --rating-col Bewertung "
    "--time-col Datum",
    spanish: "--user-col usuario --item-col 'película' --rating-col 'puntuación' --time-col fecha",
    american: "--user-col customer_id --item-col product_id --time-col order_date",
    opinions: "--user-col user --item-col item --rating-col reaction",
    windows: "--user-col user --item-col product --rating-col rating",
    open_ends: "--user-col user --item-col item --rating-col rating --time-col timestamp",
    float_ids: "--user-col user --item-col item",
    nested_json: "--user-col user.id --item-col item.id --rating-col rating",
    json_by_user: "--user-col user --item-col item",
}


@pytest.mark.parametrize("make", FORMS, ids=lambda make: make.__name__)
def test_from_describe_to_recommend_without_an_option(make, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = make(tmp_path / "data")
    options = FORMS[make]
    found = json.loads(call("describe", path, "--json").stdout)
    assert (found["users"], found["items"], found["interactions"]) == (USERS, ITEMS, len(ROWS))
    assert (found["ratings"] is not None) == ("--rating-col" in options or make is wide_matrix)
    assert (found["first"] is not None) == ("--time-col" in options)
    trained = call("train", path, "--model", "popularity", "--out", tmp_path / "run")
    assert (
        (f"columns: {options}\n" in trained.stderr) if options else "columns:" not in trained.stderr
    )
    run = ir.Run.load(tmp_path / "run")
    pairs = {(_number(u), _number(i)) for u, i in _pairs(ir.load(path))}
    assert pairs == {(u, i) for u, i, _, _ in ROWS}
    item = str(run.item_ids.ids.tolist()[0])
    lists = call("recommend", tmp_path / "run", "--history", item, "-k", 3, "--json")
    known = set(map(str, run.item_ids.ids.tolist()))
    items = [str(row["item"]) for row in json.loads(lists.stdout)["items"]]
    assert len(items) == 3
    assert set(items) <= known - {item}
    if options:  # the printed options read the same data
        again = call("describe", path, *shlex.split(options), "--json")
        assert json.loads(again.stdout)["fingerprint"] == found["fingerprint"]


def _pairs(data: ir.Interactions) -> list[tuple[Any, Any]]:
    users, items = data.user_ids.external(data.users), data.item_ids.external(data.items)
    return list(zip(users.tolist(), items.tolist(), strict=True))


def _number(text: object) -> int:
    """The number that the files of these tests write in an id."""
    digits = re.sub(r"\D", "", str(text)) if len(str(text)) < 40 else str(int(str(text), 16))
    return int(digits)


@pytest.mark.parametrize(
    ("name", "titles", "line", "others"),
    [
        ("u.data", "u.item", "{0}|Film {0} é (1990)|01-Jan-1990||http://a/{0}|0|1", ("u.user",)),
        ("ratings.dat", "movies.dat", "{0}::Film {0} é (1990)::Action|War", ("users.dat",)),
        ("ratings.csv", "movies.csv", "{0},Film {0} é (1990),Action|War", ("links.csv",)),
    ],
)
def test_titles_beside_the_ratings_of_movielens_are_found(
    name: str, titles: str, line: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    make = {"u.data": movielens_100k, "ratings.dat": movielens_1m, "ratings.csv": movielens_latest}
    path = make[name](tmp_path)
    head = "movieId,title,genres\n" if name.endswith("csv") else ""
    text = "".join(line.format(item) + "\n" for item in sorted({i for _, i, _, _ in ROWS}))
    write_text(tmp_path, titles, head + text, "utf-8" if head else "latin-1")
    for other in others:
        write_text(tmp_path, other, "1|24|M|technician\n2|53|F|other\n")
    for place in (path, tmp_path):  # the file, and its folder
        data = ir.read(place)
        assert len(data) == len(ROWS)
        assert data.titles is not None
        names = zip(data.item_ids.ids.tolist(), data.titles.tolist(), strict=True)
        assert all(title == f"Film {item} é (1990)" for item, title in names)
        assert (data.genres is not None) == (name != "u.data")


def test_letters_of_windows_are_those_that_were_written(tmp_path: Path) -> None:
    data = ir.read(windows(tmp_path))
    assert set(data.item_ids.ids.tolist()) == {f"“{i}” – €" for _, i, _, _ in ROWS}
    assert "read as Windows-1252" in " ".join(data.notes)


@pytest.mark.parametrize("make", [german_excel, spanish, american])
def test_dates_of_every_country_are_the_same_moments(make, tmp_path: Path) -> None:
    data = ir.read(make(tmp_path))
    lost = {german_excel: 60, spanish: 86400, american: 1}[make]  # what the form does not write
    latest = {(u, i): t // lost * lost for u, i, _, t in ROWS}
    pairs = [(_number(u), _number(i)) for u, i in _pairs(data)]
    assert dict(zip(pairs, data.times.tolist(), strict=True)) == latest


def test_a_dislike_is_a_rating_of_zero(tmp_path: Path) -> None:
    path = opinions(tmp_path)
    data = ir.read(path, min_rating=1)
    assert {(_number(u), _number(i)) for u, i in _pairs(data)} == {
        (u, i) for u, i, r, _ in ROWS if r > 2
    }
    trained = call("train", path, "--model", "popularity", "--out", tmp_path / "run")
    assert "below 1: try --min-rating 1" in trained.stderr


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("page.csv", "<!DOCTYPE html>\n<html><body>a,b</body></html>", "as web pages and XML do"),
        ("one.csv", "item\n1\n2\n", "found one column, 'item'; expected a user and an item"),
        ("films.csv", "movieId,title\n1,Heat\n", "a table of titles belongs to --titles"),
        ("x.csv", "user,item,user\n1,2,3\n", "several columns are called 'user'; rename one"),
        ("x.json", '{"a": {"b": 1}}', "no user column; columns found: a"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = write_text(tmp_path, name, text)
    shown = call("describe", path, code=2).stderr
    assert f"{path}" in shown
    assert sentence in shown
    assert "--no-header" not in shown
