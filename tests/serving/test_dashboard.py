"""The numbers of the dashboard, each against an independent way to get them."""

import json
import math
import os
import time
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from browser import AXE
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from served import Service, open_client

from itemfold.data.feedback.store import open_store
from itemfold.serving.http import ServedRuns, ServiceSettings, create_app
from itemfold.serving.http.dashboard.feedback_stats import (
    Version,
    difference,
    tally,
    wilson,
)
from itemfold.serving.http.dashboard.request_stats import RequestStats, histogram_quantile

KEY = "a-key-that-is-long-enough"


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """The answer to a request, which is a POST if it has a body."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, content, headers), timeout=60) as answer:
        return json.load(answer)


@given(st.integers(1, 5000), st.data(), st.sampled_from([0.8, 0.95, 0.999]))
def test_wilson_is_scipys(trials, data, confidence):
    successes = data.draw(st.integers(0, trials))
    found = wilson(successes, trials, confidence)
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= found.low <= found.value <= found.high <= 1


# Newcombe (1998), Statistics in Medicine 17, table II, method 10
@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_differences_have_newcombes_published_intervals(first, second, low, high):
    found = difference(first, second)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)
    back = difference(second, first)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))


EVENT = st.sampled_from(["shown", "shown", "clicked", "liked", "disliked"])
ROW = st.tuples(EVENT, st.sampled_from([1, 2, None]), st.integers(1, 3), st.sampled_from("ab"))


@settings(max_examples=200)
@given(st.lists(ROW, max_size=40))
def test_clicks_are_matched_with_earlier_showings(events):
    rows = [
        {"event": event, "user_id": user, "item_id": item, "run": run, "run_fingerprint": "f"}
        for event, user, item, run in events
    ]
    found = tally(rows)
    for run in {row["run"] for row in rows}:
        mine = [row for row in rows if row["run"] == run]
        used: set[int] = set()  # a naive matching, one click after another
        for place, row in enumerate(mine):
            if row["event"] not in ("clicked", "liked"):
                continue
            for earlier in range(place):
                seen = mine[earlier]
                same = (seen["user_id"], seen["item_id"]) == (row["user_id"], row["item_id"])
                if seen["event"] == "shown" and same and earlier not in used:
                    used.add(earlier)
                    break
        feedback = found[Version(run, "f")]
        shown = [row["item_id"] for row in mine if row["event"] == "shown"]
        assert feedback.clicked == len(used) <= feedback.events["shown"] == len(shown)
        assert {int(item): n for item, n in feedback.items.items()} == {
            item: shown.count(item) for item in shown
        }
        assert (feedback.click_through is None) == (not shown)


@pytest.mark.parametrize("place", ["feedback", "feedback.sqlite"])
def test_recent_events_are_the_newest_of_a_store(tmp_path, place):
    store = open_store(tmp_path / place)
    store.create()
    rows = [
        {"timestamp": time, "user_id": 1, "item_id": time, "event": "shown", "run": "a"}
        for time in range(100, 400)
    ]
    for start in range(0, 300, 50):
        store.append(rows[start : start + 50])

    def found(since: float, limit: int = 10**6) -> list[int]:
        return [int(row["item_id"]) for row in store.recent(since, limit)]

    assert found(0) == list(range(100, 400))
    assert found(250) == list(range(250, 400))
    newest = found(0, 50)
    assert newest == list(range(400 - len(newest), 400))
    assert 50 <= len(newest) < 130  # files are cut by bytes
    store.close()


def test_recent_events_of_files_leave_out_damaged_lines_and_old_files(tmp_path):
    def line(number: int) -> str:
        row = {"timestamp": number, "user_id": 1, "item_id": number, "event": "shown"}
        return json.dumps(row) + "\n"

    (tmp_path / "feedback-20260101T000000-aa.jsonl").write_text("".join(map(line, range(100, 200))))
    (tmp_path / "feedback-20260102T000000-aa.jsonl").write_text("".join(map(line, range(200, 300))))
    broken = '{"event": "shown"\n[]\n{"event": "shown"}\n'
    (tmp_path / "feedback.jsonl").write_text(broken + "".join(map(line, range(300, 400))))
    store = open_store(tmp_path)
    assert [row["item_id"] for row in store.recent(0, 10**6)] == list(range(100, 400))
    os.utime(tmp_path / "feedback-20260102T000000-aa.jsonl", (50, 50))  # older than 60
    assert [row["item_id"] for row in store.recent(60, 10**6)] == list(range(300, 400))


@given(st.lists(st.floats(0.0002, 12), min_size=1, max_size=300), st.sampled_from([0.5, 0.95]))
def test_quantiles_are_in_the_bucket_of_the_true_one(times, quantile):
    ends = (0.0005, 0.001, 0.01, 0.1, 1.0, 10.0, math.inf)
    buckets = {end: sum(t <= end for t in times) for end in ends}
    found = histogram_quantile(quantile, buckets)
    true = np.quantile(times, quantile, method="inverted_cdf")
    upper = next(end for end in ends if true <= end)
    lower = max((end for end in ends if end < true), default=0.0)
    assert lower <= found <= (10.0 if math.isinf(upper) else upper)


def test_quantiles_of_a_uniform_bucket_and_of_nothing():
    buckets = {1.0: 0, 2.0: 100, math.inf: 100}
    assert histogram_quantile(0.25, buckets) == pytest.approx(1.25)
    assert histogram_quantile(0.99, {1.0: 0, math.inf: 5}) == 1.0  # the last known bound
    assert histogram_quantile(0.5, {1.0: 0, math.inf: 0}) is None
    assert histogram_quantile(0.5, {}) is None


def test_the_dashboard_counts_what_the_service_answered(recommender):
    with open_client(recommender) as client:
        for k in range(1, 8):
            client.post("/v1/recommend", json={"history": [12], "k": k})
        client.post("/v1/recommend", json={"history": 12})
        client.get("/page/main.js")
        client.get("/")
        client.get("/nothing")
        found = client.get("/v1/stats").json()
    paths = {row["path"]: row for row in found["requests"]}
    assert paths["/recommend"]["requests"] == 8
    assert paths["page"]["requests"] == 2
    assert (found["statuses"]["200"], found["statuses"]["422"], found["statuses"]["404"]) == (
        9,
        1,
        1,
    )
    times = [paths["/recommend"][name] for name in ("p50_ms", "p95_ms", "p99_ms")]
    assert 0 < times[0] <= times[1] <= times[2]
    assert not found["feedback"]
    assert found["memory_bytes"] > 10**6
    assert found["in_flight"] == 1
    (run,) = found["runs"]
    assert (run["run"], run["serving"], run["traffic"]) == ("run", True, 1.0)
    assert run["click_through"] is None


def test_gauges_of_other_labels_are_summed():
    text = b"""# TYPE itemfold_answers counter
itemfold_answers_total{path="/recommend",status="200",key="a"} 3.0
itemfold_answers_total{path="/recommend",status="200",key="b"} 4.0
itemfold_answers_total{path="/items",status="503",key="b"} 2.0
"""
    found = RequestStats.parse(text)
    assert found.paths == {"/recommend": 7, "/items": 2}
    assert found.statuses == {"200": 7, "503": 2}
    assert found.milliseconds("/items", 0.5) is None


def client_of(recommender, other, feedback, **settings) -> TestClient:
    runs = ServedRuns({"a": recommender, "b": other}, {"a": 30, "b": 10})
    app = create_app(runs, ServiceSettings(feedback=feedback, **settings))
    return TestClient(app, base_url="http://localhost")


def test_click_through_decides_between_the_runs_of_a_split(recommender, other, tmp_path):
    items = recommender.run.item_ids.ids.tolist()
    with client_of(recommender, other, tmp_path) as client:

        def send(event: str, run: str, user: int, chosen: list[int]) -> None:
            body = {"event": event, "items": chosen, "user": user, "run": run}
            assert client.post("/v1/feedback", json=body).status_code == 200

        for user in range(40):
            for run, clicks in (("a", 4), ("b", 1)):
                send("shown", run, user, items[:10])
                send("clicked", run, user, items[:clicks])
        send("liked", "b", 99, items[:5])  # never shown: not click-through
        found = client.get("/v1/stats").json()
    a, b = found["runs"]
    assert (a["run"], a["traffic"], b["run"], b["traffic"]) == ("a", 0.75, "b", 0.25)
    assert a["events"] == {"shown": 400, "clicked": 160, "liked": 0, "disliked": 0}
    assert (b["clicked"], b["events"]["liked"]) == (40, 5)
    for report, clicked in ((a, 160), (b, 40)):
        interval = binomtest(clicked, 400).proportion_ci(0.95, method="wilson")
        rate = report["click_through"]
        assert rate["value"] == pytest.approx(clicked / 400)
        assert (rate["low"], rate["high"]) == pytest.approx((interval.low, interval.high))
        assert report["items_shown"] == 10
        assert report["coverage"] == pytest.approx(10 / len(items))
        assert report["top_fraction"] == 1.0
    (verdict,) = found["comparisons"]
    assert (verdict["run"], verdict["baseline"], verdict["verdict"]) == ("b", "a", "worse")
    assert verdict["difference"]["value"] == pytest.approx(-0.3)


def test_earlier_versions_and_other_days_are_apart(recommender, other, tmp_path):
    def rows(event: str, fingerprint: str, days_ago: float, count: int) -> str:
        row = {"user_id": 1, "event": event, "run": "a", "run_fingerprint": fingerprint}
        when = time.time() - 86_400 * days_ago
        lines = [{**row, "timestamp": when, "item_id": item} for item in range(count)]
        return "".join(json.dumps(line) + "\n" for line in lines)

    text = rows("shown", "old", 20, 50) + rows("shown", "old", 3, 30) + rows("shown", "old", 0.5, 9)
    (tmp_path / "feedback.jsonl").write_text(text)
    with client_of(recommender, other, tmp_path) as client:
        shown = {}
        for days in (1, 7, 30):
            found = client.get("/v1/stats", params={"days": days}).json()
            assert [(run["run"], run["serving"]) for run in found["runs"]] == [
                ("a", True),
                ("b", True),
                ("a", False),
            ]
            old = found["runs"][2]
            assert (old["run_fingerprint"], old["model"], old["coverage"]) == ("old", "", None)
            assert found["comparisons"] == []
            shown[days] = old["events"]["shown"]
        assert shown == {1: 9, 7: 39, 30: 89}
        refused = client.get("/v1/stats", params={"days": 8})
        assert refused.status_code == 422
        assert "'days' must be 1, 7 or 30" in refused.json()["error"]


def test_the_numbers_need_a_key_and_the_page_without_numbers_does_not(recommender):
    with open_client(recommender, api_keys=(KEY,)) as client:
        assert client.get("/v1/stats").status_code == 401
        assert client.get("/v1/dashboard").status_code == 404
        page = client.get("/dashboard")
        assert page.status_code == 200
        assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
        assert recommender.run.metrics["model"] not in page.text
        answer = client.get("/v1/stats", headers={"Authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200


def test_any_worker_reports_for_all(folder, tmp_path):
    with Service(folder, "--feedback", tmp_path / "feedback", workers=2) as service:
        for _ in range(12):  # each on a connection of its own, so both workers have some
            ask(f"{service.address}/v1/recommend", {"history": [12], "k": 3})
        ask(f"{service.address}/v1/feedback", {"event": "shown", "items": [12, 57]})
        answers = [ask(f"{service.address}/v1/stats") for _ in range(3)]
    for found in answers:
        paths = {row["path"]: row["requests"] for row in found["requests"]}
        assert paths["/recommend"] == 12
        assert found["runs"][0]["events"]["shown"] == 2


@pytest.mark.browser
def test_the_page_of_the_dashboard_names_the_better_run(browser, recommender, other, tmp_path):
    for name, found in (("first", recommender), ("second", other)):
        found.run.save(tmp_path / name)
    runs = (tmp_path / "first", tmp_path / "second", "--split", "first=50,second=50")
    with Service(*runs, "--feedback", tmp_path / "feedback", "--api-key", KEY) as service:
        browser.open(f"{service.address}/dashboard")
        assert browser.texts("#note") == ["This service needs an API key."]
        browser.run(f"document.getElementById('key-text').value = '{KEY}'")
        browser.run("document.getElementById('key').requestSubmit()")
        browser.wait("document.querySelector('#verdicts li')")
        assert "No “shown” events yet" in browser.texts("#verdicts")[0]
        for run, clicks in (("first", 5), ("second", 30)):
            for event, count in (("shown", 50), ("liked", clicks)):
                body = {"event": event, "items": list(range(count)), "user": "u", "run": run}
                ask(f"{service.address}/v1/feedback", body)
        browser.wait("document.querySelector('#verdicts .better')", 60)  # it asks again by itself
        assert browser.texts("#verdicts .better") == ["second is better than first"]
        assert browser.texts("#runs th") == ["first", "second"]
        expected = binomtest(30, 50).proportion_ci(0.95, method="wilson")
        low, high = (f"{100 * end:.2f} %" for end in (expected.low, expected.high))
        assert f"60.00 % ({low} to {high})" in browser.texts("#runs tr:last-child")[0]
        assert "/feedback" in browser.texts("#paths th")
        assert any(text.startswith("401, ") for text in browser.texts("#refusals li"))


@AXE
@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_of_the_dashboard_is_accessible(browser, service, width, dark):
    browser.resize(width, 900, dark=dark)
    browser.open(f"{service.address}/dashboard")
    assert browser.violations() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
