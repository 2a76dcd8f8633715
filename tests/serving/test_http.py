"""The service returns what the recommender returns, and errors are one sentence."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.resources import files
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from served import DATA, Service, open_client
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.environment import EXTRAS, need_extra
from itemfold.serving.http.api.errors import error_response
from itemfold.serving.http.api.schemas import RecommendRequest
from itemfold.serving.http.processes.serve import listen
from itemfold.serving.title_search import TitleSearch, search_key
from itemfold.training.fingerprint import fingerprint

JSON = {"Content-Type": "application/json"}
PAGE = files("itemfold.serving.http").joinpath("page")


@pytest.fixture(scope="module")
def client(recommender: ir.Recommender):
    with open_client(recommender) as client:
        yield client


def as_json(value):
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "body",
    [
        {"history": [12, "57", "nowhere"], "k": 7, "explain": True},
        {"history": []},
        {"user": 5, "k": 3},
        {"user": "5", "k": 200, "exclude_seen": False, "explain": True},
        {"history": ["12"], "k": 4, "genre": ["Drama", "Comedy"], "without": [7], "only": None},
        {"history": ["12"], "only": [3, 4, 5]},
    ],
)
def test_a_response_is_what_the_recommender_returns(client, recommender, body):
    answer = client.post("/recommend", json=body)
    arguments = dict(body)
    assert answer.status_code == 200
    expected = asdict(recommender.recommend(arguments.pop("user", None), **arguments))
    run = {"run": "run", "run_fingerprint": fingerprint(recommender.run)}
    assert answer.json() == as_json(expected) | run
    assert client.post("/v1/recommend", json=body).json() == answer.json()


def test_similar_items_and_about(client, recommender):
    answer = client.get("/similar", params={"item": 12, "k": 5}).json()
    assert answer == as_json([asdict(pick) for pick in recommender.similar_items(12, 5)])
    about = client.get("/about").json()
    assert about["items"] == len(recommender.run.item_ids)
    assert about["users"] == len(recommender.run.user_ids)
    assert about["test"] == recommender.run.metrics["test"]
    assert about["fingerprint"] == DATA.fingerprint
    assert set(about["genres"]) == {g for text in DATA.genres for g in text.split("|") if g}
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "give either 'user' or 'history'"),
        ({"user": 1, "history": [2]}, "give either 'user' or 'history'"),
        ({"history": "12"}, "'history' must be a valid list, got '12'"),
        ({"history": [[1]]}, "'history.0' must be text or a whole number, got '[1]'"),
        ({"history": [1.5]}, "'history.0' must be text or a whole number, got '1.5'"),
        ({"history": [1], "k": 0}, "'k' must be greater than or equal to 1, got '0'"),
        ({"history": [1], "k": 10**6}, "'k' must be less than or equal to 1000, got '1000000'"),
        ({"histry": [1]}, "unknown field 'histry'; known fields: k, exclude_seen, only,"),
        ({"history": [1], "genre": "x"}, "'genre' must be one of "),
        ({"history": [1], "only": []}, "'only' must name at least one item"),
        ([], "the request must be a JSON object"),
        ({"history": [True]}, "'history.0' must be text or a whole number, got 'True'"),
        ({"user": None, "history": [1], "k": True}, "'k' must be a valid integer, got 'True'"),
        ({"history": [1], "explain": "yes"}, "'explain' must be a valid boolean, got 'yes'"),
        ({"history": [1], "genre": ["Drama", 5]}, "'genre.1' must be a valid string, got '5'"),
        ({"history": ["\ud800"]}, "'history.0' must be text that UTF-8 can hold, got '"),
        ({"history": [1], "genre": "\ud800"}, "'genre' must be one of "),
        ({"a\nb": 1}, "unknown field 'a\\nb'; known fields: "),
        ({"history": [1] * 60_000}, "'history' must have at most 50000 items"),
    ],
)
def test_a_bad_request_is_rejected_in_one_sentence(client, body, sentence):
    answer = client.post("/recommend", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].startswith(sentence)
    assert "\n" not in answer.json()["error"]


def test_other_bad_requests(client):
    for body in (b"{bad", b"", b"\xff\xfe", b'{"k": 1' + b"1" * 5000 + b"}", b"[" * 10_000):
        answer = client.post("/recommend", content=body, headers=JSON)
        assert answer.status_code == 422, body
        assert answer.json()["error"].startswith("the request must be a JSON object")
    assert client.get("/similar").json() == {"error": "'item' is required"}
    plain_text = client.post("/recommend", content=b'{"user": 5}', headers={"Content-Type": "a/b"})
    assert "must be sent as Content-Type: application/json" in plain_text.json()["error"]
    wrong = client.get("/recommend")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.get("/items/", follow_redirects=False).status_code == 404
    assert client.get("/items", params={"q": "x" * 201}).json()["error"].startswith("'q' ")
    limit = client.get("/items", params={"limit": "9" * 5000}).json()["error"]
    assert re.fullmatch(r"'limit' is invalid \(.*\), got '9{100}'", limit)
    unknown = client.get("/nothing/here")
    assert unknown.status_code == 404
    assert unknown.json()["error"].startswith("no such path")
    assert client.get("/openapi.json").status_code == 200  # the address that it names


def test_a_missing_content_type_is_named(client):
    answer = client.post("/recommend", content=b'{"history": [12]}')
    assert answer.status_code == 422
    assert "must be sent as Content-Type: application/json" in answer.json()["error"]


def test_an_error_is_one_short_line_whatever_it_quotes():
    body = json.loads(error_response(422, f"'a'\nmust {'x' * 900_000}").body)
    assert body["error"].startswith("'a' must xxx")
    assert len(body["error"]) < 1000


def test_errors_do_not_echo_long_ids(client):
    for body in ({"user": "x" * 900_000}, {"history": [12], "genre": "x" * 900_000}):
        answer = client.post("/recommend", json=body)
        assert answer.status_code in (404, 422)
        assert len(answer.content) < 2000


def test_large_answers_are_compressed_for_clients_that_accept_it(client):
    for path, body in (
        ("/recommend", {"history": [12], "k": 80}),
        ("/recommend/batch", {"histories": [[12], [57]], "k": 80}),
    ):
        plain = client.post(path, json=body, headers={"Accept-Encoding": "identity"})
        packed = client.post(path, json=body, headers={"Accept-Encoding": "gzip"})
        assert (plain.headers.get("content-encoding"), plain.status_code) == (None, 200)
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert packed.json() == plain.json()
        assert packed.headers["vary"] == "Accept-Encoding"
    short = client.post("/recommend", json={"history": [12], "k": 1})
    assert "content-encoding" not in short.headers


def test_the_page_is_sent_once(client):
    for path in ("/", "/page/main.js"):
        page = client.get(path)
        again = client.get(path, headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = client.get(path, headers={"If-None-Match": '"another"'})
        assert (other.status_code, other.content) == (200, page.content)


def test_validation_stops_at_the_first_error():
    for wrong in ({"history": [[]] * 1000}, {"history": [1], "genre": [1] * 1000}):
        with pytest.raises(ValidationError) as error:
            RecommendRequest.model_validate(wrong)
        assert error.value.error_count() == 1


def test_explanations_have_a_limit(client, recommender, monkeypatch):
    monkeypatch.setattr("itemfold.serving.http.api.routes.MAX_REASONS", 100)
    row = int(recommender.run.train.sum(axis=1).argmax())
    user = recommender.run.user_ids.ids[row].item()
    for query, history in (({"history": list(range(21))}, 21), ({"user": user}, None)):
        answer = client.post("/recommend", json={**query, "k": 20, "explain": True})
        history = history or int(recommender.run.train[[row]].sum())
        sentence = f"'explain' must list at most 100 shares, got 20 items × {history} history items"
        assert answer.json()["error"].startswith(sentence)
        assert client.post("/recommend", json={**query, "k": 20}).status_code == 200
    few = client.post("/recommend", json={"history": [1, 2], "k": 20, "explain": True})
    assert few.status_code == 200


@pytest.mark.parametrize("has_length", [True, False])
def test_a_request_that_is_too_large_is_not_read_to_its_end(client, has_length):
    sent = 0

    def parts():
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield b"1" * 2**16

    content = b"1" * 2**22 if has_length else parts()
    answer = client.post("/recommend", content=content)
    assert answer.status_code == 413
    assert answer.json() == {"error": "a request body must have at most 1,048,576 bytes"}


def test_parallel_requests_get_the_same_responses(client):
    requests = [{"history": [i, i + 3, i + 9], "k": 5, "explain": True} for i in range(60)]
    alone = [client.post("/recommend", json=q).json() for q in requests]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda q: client.post("/recommend", json=q).json(), requests * 3))
    assert together == alone * 3


def test_metrics_count_responses_by_path_and_status(recommender):
    with open_client(recommender) as client:
        client.post("/recommend", json={"history": [12]})
        client.post("/recommend", json={"history": [13]})
        client.post("/recommend", json={})
        for path in ("/a", "/b/c", "/b/d"):
            client.get(path)
        text = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counts = {
        (s.labels["path"], s.labels["status"]): s.value
        for s in families["itemfold_answers"].samples
        if s.name.endswith("_total")
    }
    assert counts == {("/recommend", "200"): 2, ("/recommend", "422"): 1, ("other", "404"): 3}
    seconds = families["itemfold_answer_seconds"].samples
    assert sum(s.value for s in seconds if s.name.endswith("_count")) == 6
    assert families["itemfold_items"].samples[0].value == len(recommender.run.item_ids)


# --- title search --------------------------------------------------------------------------------


def test_items_are_found_by_title_and_by_id(client, recommender):
    titles = dict(zip(DATA.item_ids.ids.tolist(), DATA.titles.tolist(), strict=True))
    item, title = next(iter(titles.items()))
    found = client.get("/items", params={"q": title.upper()}).json()
    assert found[0]["title"] == title
    assert client.get("/items", params={"q": str(item)}).json()[0]["item"] == item
    assert client.get("/items", params={"q": "no such film"}).json() == []
    popular = client.get("/items", params={"limit": 6}).json()
    counts = recommender.run.train.sum(axis=0)
    shown = [counts[recommender.run.item_ids.index([entry["item"]])[0]] for entry in popular]
    assert shown == sorted(counts, reverse=True)[:6]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=20), st.text(max_size=5))
def test_search_results_contain_every_word(titles, query):
    ids = [f"#{i}" for i in range(len(titles))]
    found = TitleSearch(ids, titles, [0] * len(titles)).find(query, len(titles))
    words = search_key(query).split()
    naive = [i for i, title in enumerate(titles) if all(w in search_key(title) for w in words)]
    assert sorted(found) == naive


def test_the_best_match_comes_first():
    titles = ["Back to Heaven", "Heat", "The Heat", "Cheated", "Heat II"]
    search = TitleSearch(["a", "b", "c", "d", "heat"], titles, [9, 1, 9, 99, 5])
    assert search.find("HÉAT", 9) == [4, 1, 2, 3]
    assert search.find("heat the", 9) == [2]
    assert TitleSearch(["A", "a"], ["x", "y"], [5, 1]).find("a", 1) == [1]  # an exact id is first
    assert TitleSearch(["x1", "x2"], None, [1, 2]).find("x", 9) == [1, 0]


# --- the page and the process --------------------------------------------------------------------


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    linked = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert {"/page/main.js", "/page/style.css"} <= set(linked)
    assert all(link.startswith(("/", "data:", "#")) for link in linked)
    assert all(client.get(link).status_code == 200 for link in linked if link.startswith("/"))
    scripts = [file.name for file in PAGE.iterdir() if file.name.endswith(".js")]
    assert len(scripts) > 3
    for name in scripts:
        code = client.get(f"/page/{name}").text
        assert "//" not in re.sub(r"//.*", "", code)
        imported = re.findall(r'from "\./([^"]*)"', code)
        assert set(imported) <= set(scripts)


def test_the_command_serves_until_it_is_stopped(folder, recommender):
    with Service(folder) as service:
        body = json.dumps({"history": [12, 57], "k": 3}).encode()
        ask = urllib.request.Request(f"{service.address}/recommend", body)
        ask.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(ask, timeout=30) as answer:
            found = json.load(answer)
        expected = recommender.recommend(history=[12, 57], k=3)
        assert [pick["item"] for pick in found["items"]] == [pick.item for pick in expected]
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=30) == -signal.SIGTERM


def test_a_client_that_never_finishes_its_request_does_not_keep_the_service_alive(folder):
    with Service(folder, "--limit", "shutdown_s=1") as service:
        where = urlsplit(service.address)
        with socket.create_connection((where.hostname, where.port)) as client:
            client.sendall(b"POST /recommend HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
            with urllib.request.urlopen(f"{service.address}/health", timeout=30) as answer:
                assert answer.status == 200  # both connections are accepted
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(timeout=30) == -signal.SIGTERM


def test_a_taken_port_is_reported_by_the_command(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "itemfold", "serve", str(folder), "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"itemfold: cannot listen on 127.0.0.1:{port} ")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", "70000"], "'port' must be between 0 and 65535, got 70000"),
        (["--insecure", "--host", "no.such.host.invalid"], "cannot listen on no.such.host"),
        (["--insecure", "--host", "a..b"], "cannot listen on a..b:8000 (not a valid host name"),
    ],
)
def test_a_place_where_it_cannot_listen_is_reported(folder, options, sentence, monkeypatch):
    monkeypatch.delattr("uvicorn.Server.run")  # nothing must be served
    done = CliRunner().invoke(app, ["serve", str(folder), *options])
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"itemfold: {sentence}")
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_responses_do_not_wait_for_full_packets():
    with listen("127.0.0.1", 0) as listener:
        assert (
            listener.proto == socket.IPPROTO_TCP
        )  # else asyncio leaves Nagle's algorithm on: +40 ms


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(EXTRAS, "serve", ("fastapi", "no-such-package"))
    with pytest.raises(
        ir.ItemfoldError, match=r"'itemfold serve' needs no-such-package: pip install"
    ):
        need_extra("serve")
