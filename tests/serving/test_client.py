"""The client: its key stays with one host, and every failure is a `ServiceError`."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import itemfold as ir
from itemfold.client import Client, ServiceError

KEY = "a-key-that-is-long-enough"
CALLS = {
    "recommend": lambda client: client.recommend(history=[1]),
    "batch": lambda client: client.recommend_batch(histories=[[1]]),
    "similar": lambda client: client.similar_items(1),
    "feedback": lambda client: client.send_feedback("liked", [1]),
    "about": lambda client: client.about(),
}


@contextmanager
def server(answer: bytes, seen: list[dict] | None = None) -> Iterator[str]:
    """A host that sends these bytes to every request and then closes the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if seen is not None:
                seen.append({**self.headers, "body": self.rfile.read(size)})
            self.wfile.write(answer)
            self.close_connection = True

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}"
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


def response(status: str, body: bytes, kind: str = "application/json", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@pytest.mark.parametrize("status", ["301 a", "302 a", "303 a", "307 a", "308 a"])
@pytest.mark.parametrize("call", ["about", "recommend"])
def test_the_key_does_not_follow_a_redirect(status, call):
    seen: list[dict] = []
    with server(response("200 OK", b"{}"), seen) as elsewhere:
        target = f"Location: {elsewhere}/v1/about"
        with (
            server(response(status, b"", "text/plain", target)) as address,
            pytest.raises(ServiceError, match=f"redirects to '{elsewhere}/v1/about'") as caught,
        ):
            CALLS[call](Client(address, KEY))
    assert caught.value.status == int(status[:3])
    assert not seen


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(response("200 OK", b"<html>", "text/html"), id="a page"),
        pytest.param(response("200 OK", b"not json"), id="not json"),
        pytest.param(response("200 OK", b""), id="empty"),
        pytest.param(response("200 OK", b"\xff\xfe\x00"), id="not text"),
        pytest.param(response("200 OK", b'"text"'), id="another type"),
        pytest.param(response("200 OK", b"17"), id="a number"),
        pytest.param(response("200 OK", b'[{"items": 3}]'), id="other fields"),
        pytest.param(response("200 OK", b"[" * 100_000), id="deep"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", id="cut short"),
        pytest.param(b"nonsense\r\n\r\n", id="no status"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz", id="bad chunk"),
        pytest.param(response("500 E", b"{}"), id="an error without a reason"),
        pytest.param(response("500 E", b"[]"), id="an error of another form"),
        pytest.param(response("502 E", b"{bad"), id="an error that is not json"),
        pytest.param(b"HTTP/1.1 500 E\r\nContent-Length: 99\r\n\r\n{", id="an error cut short"),
        pytest.param(response("302 E", b"", "a", "Location: http://["), id="a bad redirect"),
        pytest.param(response("302 E", b""), id="a redirect to nowhere"),
        pytest.param(response("503 E", b"{}", "a", "Retry-After: x"), id="a bad wait"),
    ],
)
def test_any_answer_that_is_not_ours_is_one_error(answer, call):
    with server(answer) as address, pytest.raises(ServiceError, match=address):
        CALLS[call](Client(address, KEY))


def test_an_error_has_its_status_and_wait():
    body = json.dumps({"error": "too many requests"}).encode()
    kind = "application/json"
    with (
        server(response("429 E", body, kind, "Retry-After: 7")) as address,
        pytest.raises(ir.ItemfoldError, match="answers 429: too many requests") as caught,
    ):
        Client(address).about()
    assert (caught.value.status, caught.value.retry_after) == (429, 7)
    with pytest.raises(ServiceError, match="does not answer") as caught:
        Client(address, timeout=60).about()
    assert (caught.value.status, caught.value.retry_after) == (None, None)


def test_fields_of_a_newer_service_are_left_out():
    item = {"item": 7, "score": 1.5, "title": "t", "genres": "", "reasons": [], "like": []}
    answer = {"items": [{**item, "colour": "red"}], "user": None, "unknown": [], "fallback": ""}
    with server(response("200 OK", json.dumps({**answer, "more": 1}).encode())) as address:
        (pick,) = Client(address).recommend(history=[1])
    assert (pick.item, pick.score, pick.title) == (7, 1.5, "t")


def test_ids_and_weights_of_numpy_are_sent_as_numbers():
    seen: list[dict] = []
    given = {"history": np.array([12, 57]), "weights": list(np.float32([1, 2])), "k": np.int64(3)}
    with server(response("404 E", b"{}"), seen) as address, pytest.raises(ServiceError):
        Client(address).recommend(**given)
    sent = json.loads(seen[0]["body"])
    assert (sent["history"], sent["weights"], sent["k"]) == ([12, 57], [1.0, 2.0], 3)


@pytest.mark.parametrize(
    "address", ["localhost:8000", "ftp://host", "http://", "file:///etc/passwd", "http://a b", ""]
)
def test_an_address_that_is_no_url_is_rejected(address):
    with pytest.raises(ir.ItemfoldError, match="'address' must be a URL such as http"):
        Client(address)


@pytest.mark.parametrize("key", ["secret\r\nX: y", "secret ü", "secret two"])
def test_a_key_that_no_header_can_hold_is_rejected_without_showing_it(key):
    with pytest.raises(ir.ItemfoldError, match="'api_key' must have printable") as caught:
        Client("http://127.0.0.1:1", key)
    assert "secret" not in str(caught.value)
