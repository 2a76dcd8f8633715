"""One contract for all feedback stores: files, SQLite and Postgres."""

import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.feedback import file_store, postgres_store
from itemfold.data.feedback.file_store import FileStore
from itemfold.data.feedback.sqlite_store import SqliteStore
from itemfold.data.feedback.store import FeedbackStore, StoreError, StoreFullError, open_store

DAY = 86_400.0


def event(user: Any, item: Any, kind: str = "liked", at: float = 1.0) -> dict[str, Any]:
    return {
        "timestamp": at,
        "user_id": user,
        "item_id": item,
        "event": kind,
        "run": "r",
        "run_fingerprint": "f",
    }


@pytest.fixture(scope="session")
def database(postgres_programs: Path) -> Iterator[str]:
    """The URL of a Postgres server of our own; it does not run as root."""
    root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: the path of a socket
    user: dict[str, Any] = {"user": "nobody"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(root, "nobody")

    def run(program: str, *options: str) -> None:
        command = [postgres_programs / program, *options]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, timeout=240, cwd=root, **user
        )

    run("initdb", "-D", f"{root}/data", "-U", "shop", "-A", "trust", "--no-sync", "-E", "UTF8")
    options = f"-c listen_addresses= -k {root} -c fsync=off -c max_connections=20"
    run("pg_ctl", "-D", f"{root}/data", "-o", options, "-l", f"{root}/log", "-w", "start")
    try:
        yield f"postgresql://shop@/postgres?host={root}"
    finally:
        run("pg_ctl", "-D", f"{root}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(root)


@pytest.fixture(params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch) -> str:
    """An empty store of each kind, as `--feedback` names it."""
    if request.param != "postgres":
        return str(tmp_path / {"files": "feedback", "sqlite": "feedback.sqlite"}[request.param])
    import psycopg

    url = request.getfixturevalue("database")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS itemfold_feedback")
    monkeypatch.setenv("DATABASE_URL", url)
    return "postgres"


@pytest.fixture
def store(place: str) -> Iterator[FeedbackStore]:
    found = open_store(place)
    found.create()
    yield found
    found.close()


def events(store: FeedbackStore) -> list[tuple[str, str, str]]:
    """User, item and event of each entry, as text."""
    rows = [json.loads(e) if isinstance(e, bytes) else e for _, e in store.entries()]
    return [(str(row["user_id"]), str(row["item_id"]), row["event"]) for row in rows]


def test_events_come_back_in_order(store):
    store.append([event("ann", 1), event("bob", "x", "shown")])
    store.append([event(None, "ü😀", at=2.0)])
    assert events(store) == [
        ("ann", "1", "liked"),
        ("bob", "x", "shown"),
        ("None", "ü😀", "liked"),
    ]


def test_creating_a_store_again_keeps_its_events(place, store):
    store.append([event("ann", 1)])
    again = open_store(place)
    again.create()
    assert events(again) == [("ann", "1", "liked")]
    again.close()


def test_all_events_of_several_writers_arrive(place, store):
    def write(user: int) -> None:
        own = open_store(place)
        own.create()
        for item in range(20):
            own.append([event(user, item), event(user, item, "shown")])
        own.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    wanted = {(str(u), str(i), e) for u in range(4) for i in range(20) for e in ("liked", "shown")}
    found = events(store)
    assert len(found) == len(wanted)
    assert set(found) == wanted


def test_a_forgotten_user_is_gone_and_others_stay(store):
    store.append([event("ann", 1), event(5, 2), event("5", 3), event(None, 4), event("55", 5)])
    assert store.forget("5") == 2
    assert [item for _, item, _ in events(store)] == ["1", "4", "5"]
    assert store.forget("5") == 0


def test_old_events_are_deleted(store):
    store.append([event("ann", n, at=n * DAY) for n in range(6)])
    assert store.expire(4 * DAY) == 4
    assert [item for _, item, _ in events(store)] == ["4", "5"]
    assert store.expire(4 * DAY) == 0
    store.append([event("bob", 9, at=9 * DAY)])
    assert store.expire(100 * DAY) == 3
    assert events(store) == []


@pytest.mark.parametrize("how", ["read", "update"])
def test_likes_and_clicks_are_read_from_every_store(place, store, how):
    names = [("eve", 3), ("eve", 5), ("eve", 8)]
    store.append([event(user, item, at=1e9) for user, item in names])
    store.append([event("eve", 9, "shown", at=1e9), event("eve", 8, "disliked", at=2e9)])
    if how == "read":
        data = ir.read(place)
        assert data.item_ids.ids.tolist() == [3, 5]
        assert data.name == Path(place).stem
        assert data.skipped == {
            "the event is shown": 1,
            "the event is disliked": 1,
            "disliked afterwards": 1,
        }
        return
    data = ir.load("synthetic:users=60,items=80,interactions=900")
    run = ir.train(ir.keep_all(data), ir.models.Popularity())
    newer = ir.update(run, place)
    row = newer.user_ids.index(["eve"])[0]
    found = newer.item_ids.external(newer.train[[row]].indices)
    assert sorted(map(str, found)) == ["3", "5"]


def test_a_full_store_raises_and_takes_nothing(place):
    store = open_store(place, max_bytes=100_000)
    store.create()
    rows = [event("u" * 400, "i" * 400) for _ in range(50)]
    accepted = 0
    with pytest.raises(StoreFullError):  # noqa: PT012 (which batch is rejected depends on the store)
        for _ in range(20):
            store.append(rows)
            accepted += 50
            if hasattr(store, "_measured"):  # measured at most once a minute otherwise
                store._measured = -1e9
    assert 0 < accepted < 1000
    assert len(events(store)) == accepted
    assert store.forget("u" * 400) == accepted
    if hasattr(store, "_measured"):
        store._measured = -1e9
    store.append([event("ann", 1)])  # the space of deleted events is free again
    assert events(store) == [("ann", "1", "liked")]
    store.close()


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_files_are_private_whatever_the_mask_is(tmp_path, kind):
    before = os.umask(0)
    try:
        store = open_store(tmp_path / ("feedback" if kind == "files" else "events.db"))
        store.create()
        store.append([event("ann", 1), event("bob", 2)])
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*.*")}
        store.forget("ann")
        modes |= {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*.*")}
    finally:
        os.umask(before)
    assert modes == {0o600}
    store.close()


def test_files_of_earlier_versions_become_private(tmp_path):
    old = tmp_path / "feedback.jsonl"
    old.write_text(json.dumps(event("ann", 1)) + "\n")
    old.chmod(0o644)
    FileStore(tmp_path).create()
    assert stat.S_IMODE(old.stat().st_mode) == 0o600


def test_nothing_of_a_forgotten_user_is_left_in_a_sqlite_file(tmp_path):
    store = SqliteStore(tmp_path / "events.sqlite")
    store.create()
    for n in range(50):
        store.append([event("secret-user", n), event("ann", n)])
    store.forget("secret-user")
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"secret-user" not in content
    assert b"ann" in content
    store.close()


def test_a_file_never_grows_beyond_the_limit_of_rotation(tmp_path, monkeypatch):
    monkeypatch.setattr(file_store, "ROTATE_BYTES", 3000)
    store = FileStore(tmp_path)
    store.create()
    for n in range(30):
        store.append([event("ann", 10 * n + i) for i in range(5)])
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) > 3
    assert max(sizes) <= 3000
    assert [int(item) for _, item, _ in events(store)] == [
        10 * n + i for n in range(30) for i in range(5)
    ]


def test_a_full_disk_leaves_no_half_line(tmp_path):
    store, row = FileStore(tmp_path), event(5, 12)
    store.create()
    store.append([row])
    size = (tmp_path / "feedback.jsonl").stat().st_size
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
    try:
        with pytest.raises(StoreFullError, match="too large"):
            store.append([row, row])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    store.append([row])
    assert [item for _, item, _ in events(store)] == ["12", "12"]


def naive_expired(rows: list[dict[str, Any] | None], before: float) -> int:
    """Lines up to the last old one that comes before the first new one."""
    times = [None if row is None else row["timestamp"] for row in rows]
    new = next((n for n, at in enumerate(times) if at is not None and at >= before), len(times))
    old = [n for n, at in enumerate(times[:new]) if at is not None]
    return old[-1] + 1 if old else 0


@settings(max_examples=40)
@given(
    times=st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=12), before=st.integers(0, 9)
)
def test_expiry_cuts_the_first_lines_of_a_file(times, before):
    rows = [None if at is None else event("ann", n, at=at) for n, at in enumerate(times)]
    lines = [b"damaged\n" if row is None else json.dumps(row).encode() + b"\n" for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "feedback.jsonl")
        path.write_bytes(b"".join(lines))
        deleted = FileStore(Path(folder)).expire(before)
        left = path.read_bytes() if path.exists() else b""
    assert deleted == naive_expired(rows, before)
    assert left == b"".join(lines[deleted:])


def test_a_place_that_is_not_a_store_raises_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all, but some text that is long enough to be one" * 20)
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    for place, sentence in (
        (tmp_path / "none.sqlite", "none.sqlite: no such file or folder"),
        (other, "other.db: file is not a database"),
        (empty, "has no feedback: there is no table itemfold_feedback"),
    ):
        with pytest.raises(ir.ItemfoldError, match=sentence):
            ir.read(place)
    with pytest.raises(ir.ItemfoldError, match="'postgres' needs DATABASE_URL, which is not set"):
        open_store("postgres")
    monkeypatch.setenv("DATABASE_URL", "mysql://u:hidden@h/d")
    with pytest.raises(ir.ItemfoldError, match="names another kind of database") as caught:
        open_store("postgres")
    assert "hidden" not in str(caught.value)
    with pytest.raises(ir.ItemfoldError, match="set DATABASE_URL to it") as caught:
        open_store("postgresql://u:hidden@h/d")
    assert "hidden" not in str(caught.value)
    with pytest.raises(ir.ItemfoldError, match="'feedback' must be in an existing folder"):
        open_store(tmp_path / "no" / "events.db").create()
    with pytest.raises(ir.ItemfoldError, match="'feedback' must be a folder or a SQLite file"):
        open_store(tmp_path / "events.jsonl").create()


def test_without_its_driver_postgres_is_named(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://u@h/d")
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    with pytest.raises(ir.ItemfoldError, match=r"pip install 'psycopg\[binary\]'"):
        open_store("postgres")


@pytest.mark.postgres
def test_a_database_that_cannot_be_reached_is_named_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", f"postgresql://shop:hidden@/none?host={tmp_path}")
    with pytest.raises(StoreError, match="the database of DATABASE_URL: ") as caught:
        open_store("postgres").create()
    assert "hidden" not in str(caught.value)


@pytest.mark.postgres
def test_a_lost_connection_is_opened_again(database, monkeypatch):
    import psycopg

    monkeypatch.setenv("DATABASE_URL", database.replace("postgresql:", "postgresql+psycopg:"))
    store = open_store("postgres")
    store.create()
    store.forget("lost")
    store.append([event("lost", 1)])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'itemfold'"
        )
        end = time.monotonic() + 60
        while time.monotonic() < end:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'itemfold'"
            if connection.execute(asked).fetchone() == (0,):
                break
            time.sleep(0.05)
    store.append([event("lost", 2)])
    assert store.forget("lost") == 2
    store.close()


@pytest.mark.postgres
def test_a_locked_table_is_an_error_after_a_while(database, monkeypatch):
    import psycopg

    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setattr(postgres_store, "WRITE_SECONDS", 1)
    store = open_store("postgres")
    store.create()
    with psycopg.connect(database) as connection:
        connection.execute("LOCK TABLE itemfold_feedback IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="timeout"):
            store.append([event("ann", 1)])
        connection.rollback()
    store.append([event("locked", 1)])
    assert store.forget("locked") == 1
    store.close()
