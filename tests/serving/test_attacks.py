"""Clients that send too much, too slowly or not at all, and clients that do not read."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import h11
import pytest
from served import Service

from itemfold.serving.http.limits import Limits
from itemfold.serving.http.protocol.connection import is_whole_post
from itemfold.serving.http.protocol.parser import PIECES_PER_SLICE, BoundedParser

ATTACKERS = Path(__file__).parents[2] / "benchmarks" / "attackers.py"
KEY = "a-key-that-is-long-enough"
HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BEARER = f"Authorization: Bearer {KEY}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"
ASK = json.dumps({"history": [12, 57], "k": 3})


@pytest.fixture(scope="module")
def service(folder):
    with Service(folder, "--api-key", KEY) as service:
        yield service


def connect(service: Service) -> socket.socket:
    return socket.create_connection(service.place, timeout=60)


def read_answer(client: socket.socket) -> tuple[http.client.HTTPResponse, dict]:
    """The response and its JSON."""
    response = http.client.HTTPResponse(client)
    response.begin()
    assert response.getheader("content-type") == "application/json"
    return response, json.loads(response.read())


def answers(service: Service) -> None:
    """The service answers a probe, and a client with the key."""
    client = http.client.HTTPConnection(*service.place, timeout=60)
    client.request("GET", "/livez")
    assert client.getresponse().read() == b'{"status":"ok"}'
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    client.request("POST", "/v1/recommend", ASK, headers)
    answer = client.getresponse()
    assert (answer.status, len(json.loads(answer.read())["items"])) == (200, 3)
    client.close()


# --- requests that are too large -----------------------------------------------------------------


def flood(client: socket.socket, head: str) -> None:
    """Send a million chunks of one byte, as many as the service takes."""
    client.sendall((head + CHUNKED).encode())
    with contextlib.suppress(OSError):
        for _ in range(100):
            client.sendall(b"1\r\n[\r\n" * 10_000)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD.format("/v1/recommend") + BEARER, 413),
        (HEAD.format("/v1/recommend"), 401),
        (HEAD.format("/v1/livez"), 405),
        (HEAD.format("/v1/livez").replace("POST", "GET"), 200),
    ],
)
def test_a_flood_of_chunks_is_not_read_to_its_end(service, head, status):
    with connect(service) as client:
        client.sendall((head + CHUNKED + "1\r\n[\r\n" * 5000).encode())  # and the end never comes
        response, content = read_answer(client)
        assert (response.status, response.getheader("connection")) == (status, "close")
        if status == 413:
            assert content == {"error": "a request body must arrive in at most 4,096 pieces"}
        answers(service)


def test_floods_do_not_stop_others(service):
    clients = [connect(service) for _ in range(4)]
    for number, client in enumerate(clients):
        flood(client, HEAD.format("/v1/recommend") + BEARER * (number % 2))
        answers(service)
    for client in clients:
        client.close()


def test_a_flood_is_parsed_in_slices():
    parser, parsed = BoundedParser(Limits()), 0
    parser.receive_data((HEAD.format("/") + CHUNKED).encode() + b"1\r\n[\r\n" * 200_000)
    assert isinstance(parser.next_event(), h11.Request)
    while parsed < 4096:
        parser.allow_slice()
        pieces = list(iter(parser.next_event, h11.NEED_DATA))
        assert 0 < len(pieces) <= PIECES_PER_SLICE
        assert parser.has_more
        parsed += len(pieces)
    parser.allow_slice()
    with pytest.raises(h11.RemoteProtocolError, match="at most 4,096 pieces"):
        parser.next_event()


def test_a_body_in_few_or_many_pieces_is_read(service):
    for size in (1, 7, 1000):
        with connect(service) as client:
            pieces = [ASK[at : at + size] for at in range(0, len(ASK), size)]
            chunks = [f"{len(piece):x}\r\n{piece}\r\n" for piece in [*pieces, ""]]
            head = HEAD.format("/v1/recommend") + BEARER + CHUNKED
            client.sendall((head + "".join(chunks)).encode())
            response, content = read_answer(client)
            assert (response.status, len(content["items"])) == (200, 3)
    many = json.dumps({"history": ["12"] * 300, "k": 3})  # more than a slice
    with connect(service) as client:
        chunks = "".join(f"1\r\n{letter}\r\n" for letter in many) + "0\r\n\r\n"
        client.sendall((HEAD.format("/v1/recommend") + BEARER + CHUNKED + chunks).encode())
        assert read_answer(client)[0].status == 200


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/livez", 405), ("/v1/nothing", 404), ("/v1/recommend", 413)]
)
def test_a_large_body_is_answered_before_it_is_sent(service, path, status):
    with connect(service) as client:
        client.sendall((HEAD.format(path) + BEARER + "Content-Length: 99999999\r\n\r\n").encode())
        response, _ = read_answer(client)
        assert (response.status, response.getheader("connection")) == (status, "close")
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    ("sent", "status", "sentence"),
    [
        (b"NONSENSE\r\n\r\n", 400, "the request is not valid HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "the request is not valid"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431, "headers must have at most 65,536 bytes"),
        (
            b"POST /recommend HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n",
            400,
            "the request is not valid HTTP/1.1",
        ),
        (
            (HEAD.format("/recommend") + BEARER + CHUNKED + "xyz\r\n").encode(),
            400,
            "the request is not valid HTTP/1.1",
        ),
    ],
)
def test_malformed_requests_are_answered_in_json(service, sent, status, sentence):
    with connect(service) as client:
        client.sendall(sent)
        response, content = read_answer(client)
        assert response.status == status
        assert content["error"].startswith(sentence)
        assert response.getheader("x-content-type-options") == "nosniff"
        assert client.recv(1) == b""
    answers(service)
    assert "exception" not in service.log_text()


def test_lengths_that_no_number_holds_are_not_whole():
    request = b"POST /recommend HTTP/1.1\r\nContent-Length: %s\r\n\r\n"
    assert is_whole_post(request % b"0")
    assert not is_whole_post(request % (b"1" * 5000))
    assert not is_whole_post((request % b"0").replace(b"/recommend", b"/recommend/batch"))


# --- clients that close, wait or do not read -----------------------------------------------------


def test_a_client_that_closes_its_side_gets_its_answer(service):
    with connect(service) as client:
        head = HEAD.format("/v1/recommend") + BEARER
        client.sendall(f"{head}Content-Length: {len(ASK)}\r\n\r\n{ASK}".encode())
        client.shutdown(socket.SHUT_WR)
        response, content = read_answer(client)
        assert (response.status, len(content["items"])) == (200, 3)
        assert client.recv(1) == b""


def test_an_answer_that_is_not_read_is_given_up(folder, recommender):
    users = recommender.run.user_ids.ids.tolist()
    body = json.dumps({"users": (users * 9)[:550], "k": 90})
    with Service(folder, "--limit", "read_s=0.5") as service, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(service.place)
        head = HEAD.format("/v1/recommend/batch") + f"Content-Length: {len(body)}\r\n\r\n"
        client.sendall((head + body).encode())
        wait_for_answer(service)
        response = http.client.HTTPResponse(client)
        time.sleep(3)  # much longer than the limit
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            response.begin() or response.read()


def wait_for_answer(service: Service) -> None:
    end = time.monotonic() + 60
    while '"status": 200' not in service.log_text():
        assert time.monotonic() < end, "the batch was not answered"
        time.sleep(0.05)


def test_unread_answers_together_are_bounded(folder, recommender):
    users = recommender.run.user_ids.ids.tolist()
    body = json.dumps({"users": (users * 9)[:550], "k": 90})
    head = HEAD.format("/v1/recommend/batch") + f"Content-Length: {len(body)}\r\n\r\n"
    with Service(folder, "--limit", "max_unsent=6000000") as service:
        clients = [socket.socket() for _ in range(5)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect(service.place)
            client.sendall((head + body).encode())
            count = 1 + clients.index(client)
            end = time.monotonic() + 60
            while service.log_text().count('"status": 200') < count:
                assert time.monotonic() < end, "the batch was not answered"
                time.sleep(0.05)
        with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
            read_answer(clients[0])  # the oldest was given up
        response, content = read_answer(clients[-1])
        assert (response.status, len(content)) == (200, 550)
        for client in clients:
            client.close()


@pytest.mark.parametrize("kind", ["silent", "headers", "bodies", "chunks", "unread"])
def test_the_service_answers_while_attackers_are_connected(service, kind):
    command = [sys.executable, str(ATTACKERS), "{}:{}".format(*service.place), kind]
    command += ["--connections", "60"] + ["--key", KEY] * (kind == "unread")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        try:
            assert attack.stdout.readline() == "ready\n"
            for _ in range(5):
                answers(service)
        finally:
            attack.kill()


# --- clients without a key -----------------------------------------------------------------------

PATIENT = (
    "from itemfold.serving.http.protocol import connection_pool; "
    "connection_pool.MAX_REJECTION_DELAY_S = 600.0"
)
ONE = ("--limit", "max_rejected=1")  # a second


def keyless(
    service: Service, head: str = f"Content-Length: {len(ASK)}\r\n\r\n{ASK}"
) -> socket.socket:
    """A connection that has sent a request without a key."""
    client = connect(service)
    client.sendall((HEAD.format("/v1/recommend") + head).encode())
    return client


@pytest.mark.parametrize("limit", ["max_waiting=1", "max_connections=8"])
def test_rejections_wait_for_their_turn_and_take_no_place(folder, limit):
    options = ("--api-key", KEY, *ONE, "--limit", limit)
    with Service(folder, *options, constants=PATIENT) as service:
        clients = []
        for _ in range(12):
            clients.append(keyless(service))
            answers(service)
        clients[-1].settimeout(0.2)
        with pytest.raises(TimeoutError):  # not yet
            read_answer(clients[-1])
        for client in clients:
            client.close()


def test_a_stopping_service_answers_the_requests_that_it_rejected(folder):
    with Service(folder, "--api-key", KEY, *ONE, constants=PATIENT) as service:
        with keyless(service) as first:
            assert read_answer(first)[0].status == 401
        flooding = keyless(service, CHUNKED + "1\r\n[\r\n" * 5000)
        whole = keyless(service)
        answers(service)  # so they were received
        start = time.monotonic()
        service.process.terminate()
        for client in (flooding, whole):
            response, _ = read_answer(client)
            assert (response.status, response.getheader("connection")) == (401, "close")
            client.close()
        assert time.monotonic() - start < 5  # sooner than they would be cut off
        assert service.process.wait(timeout=60) == -signal.SIGTERM
