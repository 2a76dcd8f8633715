"""Names, verification by contents, and downloads that are complete or leave nothing."""

import hashlib
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from itemfold.data.datasets import DATASETS, load
from itemfold.data.named import download
from itemfold.data.named.download import Remote
from itemfold.data.named.find_dataset import Dataset, data_variable
from itemfold.data.sources import read
from itemfold.errors import ItemfoldError, ItemfoldWarning

TRAIN, TEST = b"0 1 2\r\n1 0 2\r\n2 1\r\n", b"0 0\n2 2 0\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch) -> Path:
    """Isolate the tests from the real cache and from ITEMFOLD_DATA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ITEMFOLD_DATA", raising=False)
    return tmp_path / "cache" / "itemfold"


@pytest.fixture
def home(tmp_path: Path):
    """A local server: /whole/… serves files, /broken/… stops halfway, all else is 404."""
    served = tmp_path / "served"
    served.mkdir()
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            kind, _, name = self.path[1:].partition("/")
            if kind not in ("whole", "broken") or not (served / name).is_file():
                self.send_error(404)
                return
            body = (served / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if kind == "whole" else body[: len(body) // 2])

        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    (served / "train.txt").write_bytes(TRAIN)
    (served / "test.txt").write_bytes(TEST)
    yield f"http://127.0.0.1:{server.server_port}", served, requests
    server.shutdown()
    server.server_close()
    thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content.replace(b"\r", b""), usedforsecurity=False).hexdigest()


@pytest.fixture
def tiny(home, monkeypatch):
    """A named data set at the local server; returns a function that changes its entry."""
    url, served, _ = home
    files = (
        Remote("train.txt", (f"{url}/whole/train.txt",), md5(TRAIN)),
        Remote("test.txt", (f"{url}/whole/test.txt",), md5(TEST)),
    )
    entry = Dataset(
        "tiny", url, "none", files, users=3, items=3, interactions=8, held_out=3,
        fingerprints=(read(served).fingerprint,),
    )  # fmt: skip

    def set_entry(**changes) -> Dataset:
        monkeypatch.setitem(DATASETS, "tiny", replace(entry, **changes))
        return DATASETS["tiny"]

    set_entry()
    return set_entry


def left(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir()) if cache.exists() else []


def error_of(*args, **options) -> str:
    with pytest.raises(ItemfoldError) as caught:
        load(*args, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ---------------------------------------------------------------- downloads


def test_download_then_cache(home, tiny, own_cache: Path) -> None:
    data = load("tiny")
    assert (len(data), int(data.held_out.sum())) == (8, 3)
    assert data.source == {"data": "tiny"}
    assert left(own_cache) == ["tiny"]
    assert sorted(p.name for p in (own_cache / "tiny").iterdir()) == ["test.txt", "train.txt"]
    home[2].clear()
    assert load("tiny").fingerprint == data.fingerprint
    assert home[2] == []  # the second call sends no request


def test_interrupted_download_leaves_nothing(home, tiny, own_cache: Path) -> None:
    files = DATASETS["tiny"].files
    tiny(files=(files[0], replace(files[1], urls=(f"{home[0]}/broken/test.txt",))))
    message = error_of("tiny")
    assert "was lost after" in message
    assert "put train.txt and test.txt" in message
    assert str(own_cache / "tiny") in message
    assert left(own_cache) == []


def test_ctrl_c_leaves_nothing(tiny, own_cache: Path, monkeypatch) -> None:
    def stop(url: str, target: Path, progress) -> None:
        target.write_bytes(b"0 1")
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "_stream", stop)
    with pytest.raises(KeyboardInterrupt):
        load("tiny")
    assert left(own_cache) == []


def test_wrong_checksum_leaves_nothing(home, tiny, own_cache: Path) -> None:
    (home[1] / "train.txt").write_bytes(TRAIN.replace(b"2 1\r", b"2 0\r"))
    message = error_of("tiny")
    assert "md5" in message
    assert md5(TRAIN) in message
    assert left(own_cache) == []


def test_wrong_contents_leave_nothing(home, tiny, own_cache: Path) -> None:
    tiny(users=4)
    message = error_of("tiny")
    assert "the download is not 'tiny': expected 4 users, found 3" in message
    assert left(own_cache) == []
    (home[1] / "train.txt").write_bytes(b"<html>not found</html>")
    tiny(files=tuple(replace(f, md5=None) for f in DATASETS["tiny"].files))
    assert "expected non-negative integer ids" in error_of("tiny")
    assert left(own_cache) == []


def test_the_second_url_is_tried(home, tiny) -> None:
    files = tuple(replace(f, urls=(f"{home[0]}/gone/x", *f.urls)) for f in DATASETS["tiny"].files)
    tiny(files=files)
    assert len(load("tiny")) == 8


def test_without_a_network_the_error_names_the_fix(tiny, own_cache: Path) -> None:
    files = DATASETS["tiny"].files
    tiny(files=tuple(replace(f, urls=("http://127.0.0.1:9/x",)) for f in files))
    message = error_of("tiny")
    assert "could not be downloaded" in message
    assert "or set ITEMFOLD_DATA to a folder that holds tiny/" in message
    assert left(own_cache) == []


def test_zip_members_are_extracted(home, tiny, own_cache: Path) -> None:
    with zipfile.ZipFile(home[1] / "x.zip", "w") as archive:
        archive.writestr("x/ratings.csv", "userId,movieId,rating\n1,2,3\n1,3,5\n")
        archive.writestr("x/movies.csv", "movieId,title\n2,Two\n3,Three\n")
        archive.writestr("../evil.txt", "no")
    remote = Remote("x.zip", (f"{home[0]}/whole/x.zip",), members=("ratings.csv", "movies.csv"))
    tiny(files=(remote,), users=1, items=2, interactions=2, held_out=0, fingerprints=())
    assert load("tiny").titles.tolist() == ["Two", "Three"]
    assert sorted(p.name for p in (own_cache / "tiny").iterdir()) == ["movies.csv", "ratings.csv"]
    assert not (own_cache / "evil.txt").exists()
    (home[1] / "x.zip").write_bytes(b"not a zip")
    assert "could not be downloaded" in error_of_fresh_download(own_cache)


def error_of_fresh_download(cache: Path) -> str:
    for path in (cache / "tiny").iterdir():
        path.unlink()
    return error_of("tiny")


# ---------------------------------------------------------------- local copies and names


def test_local_copy_is_recognised_by_contents(tiny, tmp_path: Path, monkeypatch) -> None:
    copy = tmp_path / "root" / "tiny"
    copy.mkdir(parents=True)
    (copy / "train.txt").write_text("2 1\n1 2 0\n0 2 1\n")  # another order, other bytes
    (copy / "test.txt").write_bytes(TEST)
    by_argument = load("tiny", data_root=tmp_path / "root")
    assert by_argument.source == {"data": "tiny", "data_root": str(tmp_path / "root")}
    monkeypatch.setenv("ITEMFOLD_DATA", str(tmp_path / "root"))
    assert load("tiny").fingerprint == by_argument.fingerprint
    (copy / "train.txt").write_text("2 0\n1 2 1\n0 2 1\n")
    (copy / "test.txt").write_text("0 0\n2 2 1\n")  # the same counts, other edges
    message = error_of("tiny")
    assert "fingerprint" in message
    assert "pass its path" in message


def test_names_paths_and_sizes(tmp_path: Path) -> None:
    message = error_of("ml-lates-small")
    assert "unknown data 'ml-lates-small'" in message
    assert "ml-latest-small" in message
    assert "no such file" in error_of("nowhere/x.csv")
    assert "'data_root' must be an existing folder" in error_of("ml-1m", data_root=tmp_path / "x")
    (tmp_path / "x.csv").write_text("user,item,rating\na,b,1\na,c,5\n")
    assert len(load(tmp_path / "x.csv", min_rating=2)) == 1
    data = load("synthetic:users=60,items=50,interactions=600,seed=3", k_core=2)
    assert data.n_users == 60
    assert data.name == "synthetic"
    again = load(data.source.pop("data"), **data.source)
    assert again.fingerprint == data.fingerprint
    assert "unknown setting 'user'" in error_of("synthetic:user=3")
    assert "'users' must be an integer, got 'many'" in error_of("synthetic:users=many")
    assert "'min_rating' needs ratings" in error_of("synthetic", min_rating=3)
    assert "'user' has no effect on" in error_of("synthetic", user="who")


def test_every_entry_has_a_source_and_a_licence() -> None:
    assert list(DATASETS) == [
        "synthetic", "ml-latest-small", "ml-1m", "yelp2018", "amazon-book", "amazon-cds",
        "electronic", "food", "yelp2018-strong", "ml-20m", "netflix", "msd",
    ]  # fmt: skip
    for name, entry in DATASETS.items():
        assert entry.about
        assert entry.licence
        if name != "synthetic":
            assert entry.home.startswith(("https://", "http://millionsongdataset.com"))
            assert entry.users > 0
            assert entry.items > 0
            assert all(u.startswith("https://") for f in entry.files for u in f.urls)
            assert entry.fingerprints or entry.recipe or all(f.md5 for f in entry.files)
            assert entry.interactions > entry.users or entry.recipe


def test_data_in_another_format_is_not_downloaded(tmp_path) -> None:
    found = error_of("food", data_root=tmp_path)
    assert "'food' was not found and is not downloaded: write a line 'USER ITEM ITEM …'" in found
    assert "https://github.com/Tiny-Snow/IR-Benchmark" in found
    assert not list(tmp_path.iterdir())


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "users", "items", "pairs"),
    [
        ("ml-latest-small", 609, 8452, 81_763),
        ("ml-1m", 6022, 3043, 895_699),
        ("yelp2018", 31_668, 38_048, 1_561_406),
        ("amazon-cds", 43_169, 35_648, 777_426),
        ("electronic", 13_455, 8360, 234_521),
        ("food", 5875, 9852, 233_038),
        ("yelp2018-strong", 31_668, 38_048, 1_561_406),
    ],
)
def test_real_data_is_verified(monkeypatch, request, name, users, items, pairs) -> None:
    monkeypatch.undo()  # the real ITEMFOLD_DATA
    data = load(name, data_root=request.getfixturevalue("data_root"))
    assert (data.n_users, data.n_items, len(data)) == (users, items, pairs)
    if name == "ml-latest-small":
        assert "Toy Story (1995)" in data.titles.tolist()
        half = load(name, data_root=request.getfixturevalue("data_root"), min_rating=2.5)
        assert (half.n_users, half.n_items, len(half)) == (610, 8852, 87_313)


def test_the_old_name_of_the_data_variable_is_read_with_a_note(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("ITEMFOLD_DATA", raising=False)
    monkeypatch.setenv("ITEMREC_DATA", str(tmp_path))
    with pytest.warns(ItemfoldWarning, match="ITEMREC_DATA is now ITEMFOLD_DATA"):
        assert data_variable() == str(tmp_path)
    monkeypatch.setenv("ITEMFOLD_DATA", "elsewhere")
    assert data_variable() == "elsewhere"
