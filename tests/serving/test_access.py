"""Access control (hosts, keys, limits, origins) and logs."""

import io
import json
import logging
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from served import open_client

import itemfold as ir
from itemfold.serving.http.access.api_keys import read_keys
from itemfold.serving.http.access.rate_limit import RateLimit
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.monitoring.log import LOGGER, JsonFormatter
from itemfold.serving.http.settings import ServiceSettings, check_exposed

KEYS = ("correct-horse-battery", "another-key-for-others")
ASK = {"history": [12], "k": 2}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "shop.example", "10.2.3.4"],
)
def test_the_service_answers_to_its_names_and_to_numbers(recommender, host):
    with open_client(recommender, allowed_hosts=("Shop.Example",)) as client:
        assert client.get("/about", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8000", "", "127.0.0.1.nip.io"]
)
def test_an_unknown_host_header_is_rejected(recommender, host):
    with open_client(recommender) as client:
        answer = client.post(
            "/recommend", json={"user": 5, "explain": True}, headers={"Host": host}
        )
    assert answer.status_code == 421
    assert answer.json()["error"].startswith("'Host' must be a known name")


def test_a_key_is_needed_for_everything_but_probes_and_the_page(recommender):
    with open_client(recommender, api_keys=KEYS) as client:
        for headers in ({}, bearer("wrong"), {"Authorization": KEYS[0]}, bearer(KEYS[0][:-1])):
            answer = client.post("/recommend", json=ASK, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/about", "/metrics", "/openapi.json", "/items", "/nothing"):
            assert client.get(path).status_code == 401
        for path in ("/livez", "/v1/readyz", "/health", "/", "/page/main.js"):
            assert client.get(path).status_code == 200
        for key in KEYS:
            assert client.post("/recommend", json=ASK, headers=bearer(key)).status_code == 200


def test_each_key_has_its_own_limit(recommender):
    with open_client(recommender, api_keys=KEYS, rate_limit=0.001) as client:
        first, second = (client.get("/about", headers=bearer(KEYS[0])) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 429)
        assert int(second.headers["retry-after"]) > 900
        assert client.get("/about", headers=bearer(KEYS[1])).status_code == 200


@pytest.mark.parametrize("start", [0.0, 1e6])  # seconds since the machine was started
def test_the_limit_is_a_rate_and_not_a_total(start):
    limit = RateLimit(10.0, [0.0] * 2)
    passed = sum(limit.seconds_to_wait(0, now=start + n / 100) == 0 for n in range(1000))
    assert passed in range(105, 112)  # ten a second for ten seconds, and the first second's ten


def test_only_named_origins_may_read_answers(recommender):
    with open_client(recommender, cors=("https://shop.example",), api_keys=KEYS) as client:
        for origin, allowed in (("https://shop.example", True), ("https://evil.example", False)):
            ask = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            ask |= {"Access-Control-Request-Headers": "authorization,content-type"}
            before = client.options("/v1/recommend", headers=ask)
            assert (before.headers.get("access-control-allow-origin") == origin) == allowed
            answer = client.get("/about", headers={"Origin": origin, **bearer(KEYS[0])})
            assert (answer.headers.get("access-control-allow-origin") == origin) == allowed
    with open_client(recommender) as client:
        headers = client.get("/about", headers={"Origin": "https://shop.example"}).headers
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"api_keys": ("short",)}, "'api_key' must have at least 16 printable"),
        ({"api_keys": ("with a space in it",)}, "'api_key' must have at least 16 printable"),
        ({"rate_limit": 5.0}, "'rate_limit' applies per key: give 'api_key_file' as well"),
        ({"rate_limit": 0.0, "api_keys": KEYS}, "'rate_limit' must be a positive number, got 0.0"),
        ({"cors": ("*",)}, r"'cors' must be an origin such as https://shop.example, got '\*'"),
    ],
)
def test_invalid_settings_raise(settings, sentence):
    with pytest.raises(ir.ItemfoldError, match=sentence):
        ServiceSettings(**settings)


@pytest.mark.parametrize("page", ["Dockerfile", "docs/how-to/serving.md"])
def test_the_key_of_the_documented_container_is_accepted(page):
    text = (Path(__file__).parents[2] / page).read_text()
    (value,) = re.findall(r"ITEMFOLD_API_KEY=(.+)", text)
    made = re.fullmatch(r"\$\(openssl rand -hex (\d+)\)", value)
    key = "0f" * int(made[1]) if made else value.split()[0]
    ServiceSettings(api_keys=(key,))
    assert re.search(r"docker run .*-e ITEMFOLD_API_KEY ", text)


def test_a_public_address_needs_a_key_or_insecure(tmp_path):
    with pytest.raises(
        ir.ItemfoldError,
        match="give --api-key-file, set ITEMFOLD_API_KEY, or allow it",
    ):
        check_exposed("0.0.0.0", ServiceSettings(), insecure=False)
    check_exposed("0.0.0.0", ServiceSettings(), insecure=True)
    check_exposed("0.0.0.0", ServiceSettings(api_keys=KEYS), insecure=False)
    check_exposed("127.0.0.1", ServiceSettings(), insecure=False)
    file = tmp_path / "keys"
    file.write_text(f"# the shop\n{KEYS[0]}\n\n{KEYS[1]}\n")
    file.chmod(0o600)
    assert tuple(key.text for key in read_keys(file)) == KEYS
    file.write_text("# nothing\n")
    with pytest.raises(ir.ItemfoldError, match="'api_key_file' must hold one key per line"):
        read_keys(file)


def test_a_request_id_is_kept_if_it_is_harmless_and_made_otherwise(recommender):
    with open_client(recommender) as client:
        given = client.get("/livez", headers={"X-Request-ID": "abc-123"})
        assert given.headers["x-request-id"] == "abc-123"
        for bad in ("a b", "x" * 65, '"}{'):
            made = client.get("/nothing", headers={"X-Request-ID": bad}).headers["x-request-id"]
            assert len(made) == 32
        assert made != client.get("/livez").headers["x-request-id"]


@pytest.fixture
def lines():
    """The log lines that are written within a test."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    level = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def test_log_lines_hold_no_ids(recommender, lines, tmp_path):
    with open_client(recommender, feedback=tmp_path) as client:
        sent = {"X-Request-ID": "r1"}
        client.post("/v1/recommend", json={"history": ["secret-item", 12]}, headers=sent)
        client.post("/v1/recommend", json={"user": "secret-user"})
        client.get("/similar", params={"item": "secret-item"})
        client.get("/history", params={"user": "secret-user"})
        client.get("/secret-path")
        liked = {"event": "liked", "items": ["secret-item"], "user": "secret-user"}
        client.post("/feedback", json=liked)
    found = [line for line in lines() if line["message"] == "request"]
    assert [(line["path"], line["status"]) for line in found] == [
        ("/recommend", 200),
        ("/recommend", 404),
        ("/similar", 404),
        ("/history", 404),
        ("other", 404),
        ("/feedback", 200),
    ]
    assert found[0]["request_id"] == "r1"
    assert found[0]["run"] == "run"
    assert found[0]["bytes"] > 100
    assert "secret" not in json.dumps(lines())
    assert "testclient" not in json.dumps(lines())  # the address of the client


def test_a_bug_is_one_line_without_what_the_user_sent(recommender, lines, monkeypatch):
    def broken(*_, **__):
        raise ValueError("secret-user")

    monkeypatch.setattr(recommender, "recommend", broken, raising=False)
    with open_client(recommender) as client:
        answer = client.post("/recommend", json={"history": [12]})
    assert answer.status_code == 500
    assert list(answer.json()) == ["error"]
    error, _ = lines()
    assert (error["message"], error["exception"]) == ("unexpected error", "ValueError")
    assert error["request_id"] == answer.headers["x-request-id"]
    assert any("test_access.py" in place for place in error["at"])
    assert "secret" not in json.dumps(lines())


def test_a_batch_costs_its_key_as_many_requests_as_it_has_users(recommender):
    users = recommender.run.user_ids.ids.tolist()[:40]
    with open_client(recommender, api_keys=KEYS, rate_limit=2.0) as client:
        batch = {"users": users, "k": 2}
        first = client.post("/recommend/batch", json=batch, headers=bearer(KEYS[0]))
        second = client.post("/recommend", json=ASK, headers=bearer(KEYS[0]))
        assert (first.status_code, second.status_code) == (200, 429)
        assert 10 <= int(second.headers["retry-after"]) <= 20  # 40 users at two a second
        other = client.post("/recommend", json=ASK, headers=bearer(KEYS[1]))
        assert other.status_code == 200


def test_metrics_tell_requests_with_a_key_from_others(recommender):
    with open_client(recommender, api_keys=KEYS) as client:
        client.get("/about", headers=bearer(KEYS[0]))
        client.get("/about")
        text = client.get("/metrics", headers=bearer(KEYS[0])).text
    assert 'itemfold_answers_total{key="key",path="/about",status="200"} 1.0' in text
    assert 'itemfold_answers_total{key="none",path="other",status="401"} 1.0' in text


def test_metrics_count_each_class_of_keys(recommender, tmp_path):
    web, jobs, plain = (f"{name}-key-that-is-long-enough" for name in ("web", "jobs", "plain"))
    file = tmp_path / "keys"
    file.write_text(f"{web} class=web\n{jobs}\tclass=jobs\n{plain}\n")
    file.chmod(0o600)
    with open_client(recommender, api_key_file=file, rate_limit=1.0) as client:
        for key in (web, web, jobs, plain):
            client.get("/about", headers=bearer(key))
        text = client.get("/metrics", headers=bearer(KEYS[0])).json()["error"]
        assert "an API key is needed" in text  # the keys of the file alone are valid
        found = client.app.state.telemetry.exposition().decode()
    counts = dict(re.findall(r'answers_total\{key="(\w+)",path="/about",status="200"} (.*)', found))
    assert counts == {"web": "1.0", "jobs": "1.0", "key": "1.0"}
    assert 'itemfold_answers_total{key="web",path="other",status="429"} 1.0' in found
    assert web not in found


def test_every_answer_has_safe_headers(recommender):
    with open_client(recommender, api_keys=KEYS) as client:
        for path, key in (
            ("/about", KEYS[0]),
            ("/livez", ""),
            ("/nothing", KEYS[0]),
            ("/items", ""),
        ):
            headers = client.get(path, headers=bearer(key)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
        page = client.get("/").headers
        assert page["cache-control"] == "no-cache"
        assert "base-uri 'none'" in page["content-security-policy"]
        assert "form-action 'self'" in page["content-security-policy"]


def test_limits_are_set_by_name():
    assert Limits.parse([]) == Limits()
    assert Limits.parse(["max_wait_s=0.5", "max_waiting=0"]) == Limits(
        max_wait_s=0.5, max_waiting=0
    )
    for text, sentence in (
        ("max_body=big", "'limit' max_body must be a whole number, got 'big'"),
        ("max_body=0", "'max_body' must be a positive number, got 0"),
        ("max_bdy=5", "max_body"),
        ("max_body", "'limit' max_body must be a whole number, got ''"),
    ):
        with pytest.raises(ir.ItemfoldError, match=sentence):
            Limits.parse([text])


def test_the_documented_limits_are_the_defaults():
    text = (Path(__file__).parents[2] / "docs/how-to/serving.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \|", text, flags=re.MULTILINE)
    documented = {name: float(value.replace(",", "")) for name, value in rows}
    assert documented == {name: float(value) for name, value in asdict(Limits()).items()}
