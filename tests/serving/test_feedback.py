"""Feedback over HTTP: it is bounded, has a writer of its own, and nothing accepted is lost."""

import asyncio
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Service, open_client
from starlette.exceptions import HTTPException

import itemfold as ir
from itemfold.client import Client
from itemfold.data.feedback import file_store
from itemfold.data.feedback.file_store import FileStore
from itemfold.data.feedback.store import open_store
from itemfold.serving.http.api import feedback_writer
from itemfold.serving.http.api.feedback_writer import FeedbackWriter
from itemfold.serving.http.api.schemas import MAX_ID, MAX_K
from itemfold.serving.http.monitoring.telemetry import Telemetry

LIKED = {"event": "liked", "items": [12], "user": 5}


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition; a slow machine only waits longer."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def metrics(client, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        tuple(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name in (name, f"{name}_total")
    }


@contextmanager
def held(folder: Path):
    """Hold the lock that writers of a folder need, as a hanging disk would hold them."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def test_feedback_is_appended_and_put_aside_when_it_is_large(recommender, tmp_path, monkeypatch):
    folder = tmp_path / "feedback"
    with open_client(recommender, feedback=folder) as client:
        body = {"event": "liked", "items": [12, "57"], "user": 5}
        assert client.post("/feedback", json=body).json() == {"stored": 2}
        shown = client.post("/feedback", json={"event": "shown", "items": [12]})
        assert shown.json() == {"stored": 1}
        lines = (folder / "feedback.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(r["user_id"], r["item_id"], r["event"]) for r in rows] == [
            (5, 12, "liked"),
            (5, "57", "liked"),
            (None, 12, "shown"),
        ]
        about = client.get("/about").json()
        assert {row["run_fingerprint"] for row in rows} == {about["run_fingerprint"]}
        assert about["feedback"] is True
        monkeypatch.setattr(file_store, "ROTATE_BYTES", 10)
        client.post("/feedback", json=body)
        kept = sorted(folder.iterdir())
        assert [len(file.read_text().splitlines()) for file in kept] == [3, 2]
        assert metrics(client, "itemfold_feedback") == {("liked", "run"): 4, ("shown", "run"): 1}
        assert metrics(client, "itemfold_feedback_waiting") == {(): 0}
        unknown = client.post("/feedback", json={"event": "bought", "items": [12]}).json()
        assert unknown["error"].startswith("'event' must be 'shown', 'clicked', 'liked' or")


def test_without_a_folder_feedback_is_rejected(recommender):
    with open_client(recommender) as client:
        answer = client.post("/feedback", json=LIKED)
        assert answer.status_code == 404
        assert answer.json()["error"].startswith("feedback is not collected")
        assert client.get("/about").json()["feedback"] is False


def test_feedback_reaches_a_sqlite_file_and_is_read_from_it(recommender, tmp_path):
    path = tmp_path / "events.sqlite"
    with open_client(recommender, feedback=path) as client:
        for item in (12, 57):
            body = {"event": "clicked", "items": [item], "user": "eve"}
            assert client.post("/feedback", json=body).json() == {"stored": 1}
    data = ir.read(path)
    assert data.user_ids.ids.tolist() == ["eve"]
    assert data.item_ids.ids.tolist() == [12, 57]


# --- limits --------------------------------------------------------------------------------------


def test_an_event_is_small_whatever_a_client_sends(recommender, tmp_path):
    with open_client(recommender, feedback=tmp_path) as client:
        long, items = "😀" * MAX_ID, list(range(MAX_K))
        for body in (
            {"event": "shown", "items": items, "user": "u" * 10**6},
            {"event": "shown", "items": items, "user": "u" * (MAX_ID + 1)},
            {"event": "shown", "items": ["i" * (MAX_ID + 1)]},
            {"event": "shown", "items": items, "run": "r" * 10**5},
        ):
            answer = client.post("/feedback", json=body)
            assert answer.status_code == 422
            assert len(answer.content) < 500
        assert not list(tmp_path.iterdir())
        whole = {"event": "shown", "items": items, "user": long}
        assert client.post("/feedback", json=whole).json() == {"stored": MAX_K}
        (file,) = tmp_path.iterdir()
        assert file.stat().st_size < MAX_K * (4 * 2 * MAX_ID + 200)


@pytest.mark.parametrize("bad", ["", "  ", "a\0b"])
def test_ids_that_could_not_be_read_back_are_rejected(recommender, tmp_path, bad):
    with open_client(recommender, feedback=tmp_path) as client:
        for body in ({**LIKED, "user": bad}, {**LIKED, "items": [12, bad]}):
            assert client.post("/feedback", json=body).status_code == 422
        spaces = {**LIKED, "user": " eve ", "items": [" 12 "]}
        assert client.post("/feedback", json=spaces).json() == {"stored": 1}
    data = ir.read(tmp_path)
    assert (data.user_ids.ids.tolist(), data.item_ids.ids.tolist()) == (["eve"], [12])


def test_a_full_disk_is_507_and_the_service_goes_on(recommender, tmp_path):
    resource = pytest.importorskip("resource")
    with open_client(recommender, feedback=tmp_path) as client:
        assert client.post("/feedback", json=LIKED).status_code == 200
        size = (tmp_path / "feedback.jsonl").stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        try:
            full = client.post("/feedback", json=LIKED)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert full.status_code == 507
        assert full.json()["error"].startswith("the storage of feedback is full")
        assert metrics(client, "itemfold_feedback_refused") == {("full",): 1}
        assert client.post("/feedback", json=LIKED).status_code == 200
        document = client.get("/openapi.json").json()
        assert "507" in document["paths"]["/v1/feedback"]["post"]["responses"]
        assert "507" not in document["paths"]["/v1/recommend"]["post"]["responses"]
    assert len((tmp_path / "feedback.jsonl").read_text().splitlines()) == 2


def test_feedback_above_its_size_is_507(recommender, tmp_path):
    (tmp_path / "feedback-1.jsonl").write_bytes(b" " * (2**20 - 100) + b"\n")
    with open_client(recommender, feedback=tmp_path, feedback_mb=1) as client:
        assert client.post("/feedback", json=LIKED).status_code == 507
        assert client.post("/recommend", json={"history": [12]}).status_code == 200


def test_old_feedback_is_deleted_when_the_service_starts(recommender, tmp_path):
    file, day = tmp_path / "feedback.jsonl", 86_400
    now = time.time()
    lines = [{"timestamp": now - age * day, "user_id": age, "item_id": 1} for age in (9, 8, 2)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with open_client(recommender, feedback=tmp_path, feedback_days=7):
        until(lambda: len(file.read_text().splitlines()) == 1)
    assert json.loads(file.read_text())["user_id"] == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"feedback_days": 0}, "'feedback_days' must be a positive number, got 0"),
        ({"feedback_days": 3}, "'feedback_days' needs 'feedback'"),
        ({"feedback_mb": 0}, "'feedback_mb' must be a positive integer, got 0"),
    ],
)
def test_invalid_settings_raise(settings, sentence):
    from itemfold.serving.http import ServiceSettings

    with pytest.raises(ir.ItemfoldError, match=sentence):
        ServiceSettings(**settings)


# --- the writer ----------------------------------------------------------------------------------


def test_slow_storage_stops_feedback_alone(recommender, tmp_path, monkeypatch):
    append, entered = FileStore.append, threading.Event()

    def announced(store: FileStore, rows: list) -> None:
        entered.set()
        append(store, rows)

    monkeypatch.setattr(FileStore, "append", announced)
    monkeypatch.setattr(feedback_writer, "MAX_WAITING", 3)
    monkeypatch.setattr(feedback_writer, "WAIT_SECONDS", 600)
    with open_client(recommender, feedback=tmp_path) as client, ThreadPoolExecutor(1) as pool:
        with held(tmp_path):
            stuck = pool.submit(client.post, "/feedback", json=LIKED)
            assert entered.wait(60)
            for _ in range(5):
                assert client.post("/recommend", json={"history": [12]}).status_code == 200
            monkeypatch.setattr(feedback_writer, "WAIT_SECONDS", 0.05)
            late = client.post("/feedback", json={**LIKED, "items": [1, 2]})
            full = client.post("/feedback", json={**LIKED, "items": [3]})
            for answer in (late, full):
                assert answer.status_code == 503
                assert int(answer.headers["Retry-After"]) > 0
            assert late.json()["error"].startswith("the feedback was not stored within 0.05 s")
            assert full.json()["error"].startswith("too much feedback is waiting")
            assert metrics(client, "itemfold_feedback_waiting") == {(): 3}
            refused = metrics(client, "itemfold_feedback_refused")
            assert refused == {("slow",): 2, ("queue",): 1}
            assert not stuck.done()
        assert stuck.result(60).status_code == 200
        until(lambda: metrics(client, "itemfold_feedback_waiting")[()] == 0)
        monkeypatch.setattr(feedback_writer, "WAIT_SECONDS", 600)
        assert client.post("/feedback", json={**LIKED, "items": [4]}).status_code == 200
    # a request that got a 503 before its turn is withdrawn
    stored = [json.loads(line)["item_id"] for line in (tmp_path / "feedback.jsonl").open()]
    assert stored == [12, 4]


class SlowStore:
    """A store that takes a while, or raises what is set."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.rows: list[dict] = []
        self.problem, self.is_closed, self.go = problem, False, threading.Event()

    def append(self, rows) -> None:
        self.go.wait(60)
        if self.problem is not None:
            raise self.problem
        self.rows += rows

    def close(self) -> None:
        self.is_closed = True


def test_closing_writes_everything_that_waits():
    async def run() -> None:
        tasks = [asyncio.create_task(writer.write([{"item_id": n}])) for n in range(50)]
        await asyncio.sleep(0)
        threading.Timer(0.1, store.go.set).start()
        await asyncio.to_thread(writer.close)
        await asyncio.gather(*tasks)
        with pytest.raises(HTTPException) as refused:
            await writer.write([{"item_id": 51}])
        assert refused.value.status_code == 503

    store = SlowStore()
    writer = FeedbackWriter(store, Telemetry(), days=None)
    asyncio.run(run())
    assert [row["item_id"] for row in store.rows] == list(range(50))
    assert store.is_closed


@pytest.mark.parametrize("problem", [OSError(5, "I/O"), RuntimeError("bug"), ir.ItemfoldError("x")])
def test_the_writer_outlives_any_problem_of_a_store(problem):
    async def run() -> None:
        with pytest.raises(HTTPException) as refused:
            await writer.write([{"item_id": 1}])
        assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "5"})
        store.problem = None
        await writer.write([{"item_id": 2}])
        await asyncio.to_thread(writer.close)

    store = SlowStore(problem)
    store.go.set()
    writer = FeedbackWriter(store, Telemetry(), days=None)
    asyncio.run(run())
    assert store.rows == [{"item_id": 2}]


def test_accepted_feedback_survives_a_shutdown_under_load(folder, tmp_path):
    """Four clients send until the service is gone; every answer of 200 is in the folder."""
    accepted: list[int] = []

    def send(start: int) -> None:
        client = Client(service.address, timeout=60)
        for n in range(start, start + 10_000):
            try:
                client.send_feedback("shown", [n])
            except ir.ItemfoldError:
                return
            accepted.append(n)

    feedback = tmp_path / "feedback"
    options = ("--feedback", feedback, "--no-access-log")
    with Service(folder, *options, workers=2) as service, ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, 10_000 * n) for n in range(4)]
        until(lambda: len(accepted) > 50)
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(60)
        for one in sending:
            one.result()
    found = [json.loads(entry) for _, entry in open_store(feedback).entries()]
    assert set(accepted) <= {row["item_id"] for row in found}
    assert len(accepted) > 50
