"""The API: its OpenAPI document, batches and metrics."""

import math
import warnings

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from served import open_client

import itemfold as ir
from itemfold.serving.http.admission import body_limit
from itemfold.serving.http.limits import Limits

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(recommender, tmp_path_factory):
    with open_client(recommender, feedback=tmp_path_factory.mktemp("feedback")) as client:
        yield client


@pytest.fixture(scope="module")
def document(client) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as two operations of one id
        return client.get("/openapi.json").json()


# --- the document --------------------------------------------------------------------------------


def test_every_address_is_described_once_with_one_model_of_errors(document):
    found = {
        (path, method): op for path, ops in document["paths"].items() for method, op in ops.items()
    }
    assert {path for path, _ in found} == {
        f"/v1/{name}"
        for name in (
            *("livez", "readyz", "about", "similar", "items", "history"),
            *("recommend", "recommend/batch", "feedback", "stats"),
        )
    }
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)
    for operation in found.values():
        assert operation["summary"]
        errors = {s: r for s, r in operation["responses"].items() if s != "200"}
        assert {"401", "404", "405", "413", "421", "422", "429", "503"} <= set(errors)
        for response in errors.values():
            schema = response["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Error"}
    assert list(document["components"]["schemas"]["Error"]["properties"]) == ["error"]


def test_examples_of_the_document_are_answered(client, document):
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if "requestBody" not in operation:
                query = {
                    p["name"]: p["schema"].get("examples", p.get("examples"))[0]
                    for p in operation.get("parameters", ())
                    if p["required"]
                }
                answer = client.get(path, params=query)
            else:
                content = operation["requestBody"]["content"]["application/json"]
                name = content["schema"]["$ref"].rpartition("/")[2]
                example = document["components"]["schemas"][name]["examples"][0]
                answer = client.post(path, json=example)
            assert answer.status_code == 200, (path, answer.text)


def test_an_answer_has_the_fields_of_the_document(client, document):
    schemas = document["components"]["schemas"]
    body = {"history": [12, 57], "k": 3, "explain": True}
    answer = client.post("/v1/recommend", json=body).json()
    assert set(answer) == set(schemas["Answer"]["properties"])
    assert set(answer["items"][0]) == set(schemas["Recommendation"]["properties"])
    assert set(client.get("/v1/about").json()) == set(schemas["About"]["properties"])


def test_wrong_methods_and_sizes_are_answered_as_described(client):
    for method, path, allowed in (
        ("GET", "/v1/recommend", "POST"),
        ("HEAD", "/v1/recommend", "POST"),
        ("DELETE", "/v1/items", "GET"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    large = client.post("/v1/feedback", content=b"1" * (Limits().max_body + 1), headers=JSON)
    assert large.status_code == 413
    assert list(large.json()) == ["error"]


@pytest.mark.parametrize("path", ["/", "/livez", "/health", "/v1/about", "/items?q=a", "/metrics"])
def test_head_is_get_without_a_body(client, path):
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # it has counted the request before
        assert head.headers["content-length"] == get.headers["content-length"]


def test_a_whole_number_may_have_a_point(client):
    whole, point = (client.post("/recommend", json={"history": [12], "k": k}) for k in (4, 4.0))
    assert whole.json() == point.json()
    assert len(point.json()["items"]) == 4
    refused = client.post("/recommend", json={"history": [12], "k": 4.5}).json()["error"]
    assert refused == "'k' must be a valid integer, got '4.5'"


# --- explanations --------------------------------------------------------------------------------


def test_the_largest_reasons_are_listed_and_the_rest_is_summed(client, recommender):
    history = list(range(20))
    full = client.post("/recommend", json={"history": history, "k": 5, "explain": True}).json()
    few = {"history": history, "k": 5, "explain": True, "reasons": 3}
    for whole, short in zip(
        full["items"], client.post("/recommend", json=few).json()["items"], strict=True
    ):
        assert short["item"] == whole["item"]
        largest = sorted(whole["reasons"], key=lambda reason: -abs(reason["share"]))[:3]
        assert short["reasons"] == sorted(largest, key=lambda reason: -reason["share"])
        total = math.fsum(reason["share"] for reason in short["reasons"]) + short["others"]
        assert total + short["own"] == pytest.approx(short["score"], abs=1e-5)
        assert whole["others"] == 0


def test_the_longest_permitted_explanation_is_short(client):
    ids = list(range(90))
    body = {"history": ids, "k": 1000, "explain": True, "exclude_seen": False}
    refused = client.post("/recommend", json=body)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("'explain' must list at most 5,000 shares, got 1000")
    answer = client.post("/recommend", json={**body, "reasons": 5})
    assert answer.status_code == 200
    assert len(answer.content) < 1_000_000


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_is_the_same_as_one_request_for_each(client, recommender):
    users = recommender.run.user_ids.ids.tolist()[:40]
    shared = {"k": 3, "genre": ["Drama"], "exclude_seen": False}
    together = client.post("/v1/recommend/batch", json={"users": users, **shared}).json()
    assert together == [client.post("/recommend", json={"user": u, **shared}).json() for u in users]
    histories = [[12], [], [3, "57", "nowhere"]]
    together = client.post("/recommend/batch", json={"histories": histories}).json()
    assert together == [client.post("/recommend", json={"history": h}).json() for h in histories]
    assert client.post("/recommend/batch", json={"users": []}).json() == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "give either 'users' or 'histories'"),
        ({"users": [1], "histories": [[1]]}, "give either 'users' or 'histories'"),
        ({"users": [1] * 1001}, "'users' must have at most 1000 items"),
        (
            {"users": [1] * 100, "k": 1000},
            "a batch must ask for at most 50,000 items, got 100 users",
        ),
        ({"users": [5], "explain": True}, "unknown field 'explain'; known fields: k,"),
    ],
)
def test_an_invalid_batch_is_rejected(client, body, sentence):
    answer = client.post("/recommend/batch", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(sentence)


# --- the catalogue and shutdown -------------------------------------------------------------------


def test_items_of_a_genre_and_of_a_known_user(client, recommender):
    run = recommender.run
    drama = client.get("/items", params={"genre": "drama", "limit": 5}).json()
    counts = dict(zip(run.item_ids.ids.tolist(), run.train.sum(axis=0).tolist(), strict=True))
    expected = sorted(
        (
            counts[i]
            for i, g in zip(run.item_ids.ids.tolist(), run.genres, strict=True)
            if "Drama" in g
        ),
        reverse=True,
    )
    assert [counts[entry["item"]] for entry in drama] == expected[:5]
    assert all("Drama" in entry["genres"] for entry in drama)
    user = run.user_ids.ids.tolist()[0]
    history = client.get("/history", params={"user": user}).json()
    assert {entry["item"] for entry in history} == set(
        run.item_ids.ids[run.train[[0]].indices].tolist()
    )
    nobody = client.get("/history", params={"user": "nobody"})
    assert nobody.json()["error"].startswith("'user' must be a user of the training data")


def test_a_stopping_service_answers_and_asks_clients_to_close(recommender):
    with open_client(recommender) as client:
        assert "connection" not in client.get("/readyz").headers
        client.app.state.stopping.set()
        answer = client.post("/recommend", json={"history": [12]})
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200


# --- metrics -------------------------------------------------------------------------------------


def samples(client: TestClient, family: str) -> list:
    text = client.get("/metrics").text
    return next(f for f in text_string_to_metric_families(text) if f.name == family).samples


def test_metrics_describe_the_run_and_requests_in_flight(recommender):
    with open_client(recommender) as client:
        about = client.get("/about").json()
        (info,) = samples(client, "itemfold_run_info")
        assert info.labels == {
            "run": "run",
            "model": "lightgcn",
            "run_fingerprint": about["run_fingerprint"],
        }
        (in_flight,) = samples(client, "itemfold_in_flight")
        assert in_flight.value == 1  # the one that asks
        (memory,) = samples(client, "itemfold_memory_bytes")
        assert memory.value > 10 * 2**20
        buckets = {
            float(s.labels["le"])
            for s in samples(client, "itemfold_answer_seconds")
            if "le" in s.labels
        }
        assert max(b for b in buckets if b < math.inf) >= 10


def test_the_time_of_an_upload_is_not_the_time_of_an_answer(recommender, monkeypatch):
    now, read = 0.0, body_limit._read_body

    async def read_slowly(receive, most):
        nonlocal now
        now += 100
        return await read(receive, most)

    monkeypatch.setattr(body_limit, "_read_body", read_slowly)
    monkeypatch.setattr("time.perf_counter", lambda: now)
    with open_client(recommender) as client:
        client.post("/recommend", json={"history": [12]})
        text = client.get("/metrics").text
    families = {f.name: f for f in text_string_to_metric_families(text)}

    def total(name: str) -> float:
        found = families[name].samples
        return sum(s.value for s in found if s.name.endswith("_sum"))

    assert (total("itemfold_upload_seconds"), total("itemfold_answer_seconds")) == (100, 0)


def test_a_client_that_hangs_up_is_not_a_wrong_request(recommender):
    import asyncio

    with open_client(recommender) as client:

        async def hang_up() -> list:
            messages = iter(
                [
                    {"type": "http.request", "body": b'{"his', "more_body": True},
                    {"type": "http.disconnect"},
                ]
            )
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/recommend",
                "query_string": b"",
                "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            }

            async def receive():
                return next(messages)

            sent = []

            async def send(message):
                sent.append(message)

            await client.app(scope, receive, send)
            return sent

        asyncio.run(hang_up())
        counted = samples(client, "itemfold_answers")
    statuses = [s.labels["status"] for s in counted if s.name.endswith("_total")]
    assert statuses == ["499"]


def test_the_number_of_reasons_must_be_positive(recommender):
    with pytest.raises(ir.ItemfoldError, match="'reasons' must be a positive integer, got 0"):
        recommender.recommend(history=[12], explain=True, reasons=0)
