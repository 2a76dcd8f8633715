"""`itemfold serve` as a process: signals, connections, workers."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import DATA, Service

import itemfold as ir
from itemfold.client import Client

ASK = json.dumps({"history": [12, 57], "k": 3})
JSON = {"Content-Type": "application/json"}


def ask(
    connection: http.client.HTTPConnection, path: str = "/recommend"
) -> http.client.HTTPResponse:
    method, body = ("POST", ASK) if path == "/recommend" else ("GET", None)
    connection.request(method, path, body, JSON)
    answer = connection.getresponse()
    answer.content = answer.read()  # type: ignore[attr-defined]
    return answer


def connect(service: Service) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(*service.place, timeout=30)


def eventually(condition: Callable[[], bool], seconds: float = 180) -> None:
    """Wait for what must happen at some time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def worker_pids(service: Service) -> list[int]:
    """The processes that answer, found by their command line."""
    children = f"/proc/{service.process.pid}/task/{service.process.pid}/children"
    with open(children) as file:
        pids = [int(pid) for pid in file.read().split()]
    return [pid for pid in pids if "spawn_main" in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:  # it has just ended
        return ""


# --- shutdown -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_open_connections_are_drained(folder, workers):
    with Service(folder, workers=workers) as service:
        clients = [connect(service) for _ in range(8)]
        for client in clients:
            assert ask(client).status == 200
        service.process.send_signal(signal.SIGTERM)
        # until every worker is stopping
        eventually(lambda: all(ask_ready(service) != 200 for _ in range(4 * workers)))
        answers = [ask(client) for client in clients]
        assert [answer.status for answer in answers] == [200] * 8
        assert all(answer.getheader("connection") == "close" for answer in answers)
        assert service.process.wait(timeout=60) == -signal.SIGTERM
        assert {line["level"] for line in service.log()} == {"info"}


def ask_ready(service: Service) -> int:
    try:
        return ask(connect(service), "/readyz").status
    except OSError:
        return 0


def test_a_request_that_takes_too_long_to_send_ends_with_one_sentence(folder):
    with Service(folder, "--limit", "shutdown_s=1") as service:
        with socket.create_connection(service.place, timeout=30) as client:
            client.sendall(
                b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
            )
            eventually(lambda: in_flight(service) == 2)
            service.process.send_signal(signal.SIGTERM)
            assert client.recv(2**16).startswith(b"HTTP/1.1 503 ")
        assert service.process.wait(timeout=60) == -signal.SIGTERM
        assert "exception" not in service.log_text(), service.log_text()


def in_flight(service: Service) -> float:
    text = ask(connect(service), "/metrics").content.decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    return sum(sample.value for sample in families["itemfold_in_flight"].samples)


# --- reload --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hangup_loads_the_folder_again_without_a_failed_request(tmp_path, recommender, workers):
    other = ir.train(ir.split_interactions(DATA, seed=0), ir.models.EASE())
    recommender.run.save(tmp_path / "old")
    other.save(tmp_path / "new")
    link = tmp_path / "link"
    link.symlink_to("old")
    with Service(f"shop={link}", workers=workers) as service:
        client, statuses, over = connect(service), [], threading.Event()

        def keep_asking() -> None:
            while not over.is_set():
                statuses.append(ask(client).status)

        thread = threading.Thread(target=keep_asking)
        thread.start()
        try:
            (tmp_path / "draft").symlink_to("new")
            (tmp_path / "draft").replace(link)
            service.process.send_signal(signal.SIGHUP)

            def all_changed() -> bool:
                about = json.loads(ask(connect(service), "/about").content)
                loaded = [li for li in service.log() if li["message"] == "run 'shop' is loaded"]
                return about["model"] == "ease" and len(loaded) >= workers

            eventually(all_changed)
            before = len(statuses)
            eventually(lambda: len(statuses) > before + 20)
        finally:
            over.set()
            thread.join()
        assert set(statuses) == {200}
        shutil.rmtree(tmp_path / "new")
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: "is not replaced" in service.log_text())
        assert json.loads(ask(client, "/about").content)["model"] == "ease"


# --- connections ---------------------------------------------------------------------------------


def test_connections_that_say_nothing_are_closed_and_others_are_answered(folder):
    with Service(folder, "--limit", "header_s=0.5") as service:
        silent = [socket.create_connection(service.place, timeout=30) for _ in range(20)]
        for place, client in enumerate(silent):
            if place % 2:
                client.sendall(b"POST /recommend HTTP/1.1\r\nHo")
        assert ask(connect(service)).status == 200
        assert [client.recv(100) for client in silent] == [b""] * 20  # the end of the connection
        kept = connect(service)
        assert [ask(kept).status for _ in range(3)] == [200] * 3
        kept.sock.sendall(b"GET /livez HTTP/1.1\r\nHo")  # half of a further request
        assert kept.sock.recv(100) == b""


def test_more_connections_than_open_files_do_not_stop_the_service(folder):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"
    assert limits[0] > 300
    with Service(folder, constants=files) as service:
        clients = [socket.create_connection(service.place, timeout=30) for _ in range(200)]
        assert ask(connect(service)).status == 200  # although none of the others has left
        assert is_closed(clients[0])  # the oldest of those that say nothing
        for client in clients:
            client.close()
        assert ask(connect(service)).status == 200
        assert len(service.log_text()) < 10_000


def is_closed(client: socket.socket) -> bool:
    """Whether the service has closed a connection without an answer."""
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_a_busy_service_rejects_work_on_open_connections_and_answers_probes(folder):
    full = "work_queue.WorkQueue.is_full = property(lambda self: True)"
    constants = f"from itemfold.serving.http.admission import work_queue; {full}"
    with Service(folder, constants=constants) as service:
        client = connect(service)
        client.connect()
        head = (
            f"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(ASK)}\r\n\r\n"
        )
        for _ in range(3):
            client.sock.sendall(f"{head}{ASK}".encode())
            refused = http.client.HTTPResponse(client.sock)
            refused.begin()
            assert (refused.status, refused.getheader("retry-after")) == (503, "1")
            sentence = json.loads(refused.read())["error"]
            assert sentence.startswith("too many requests are waiting")
            assert ask(client, "/livez").status == 200  # over the same connection
        text = ask(client, "/metrics").content.decode()
        refusals = {line for line in text.splitlines() if 'path="refused"' in line}
        assert 'itemfold_answers_total{key="none",path="refused",status="503"} 3.0' in refusals


def test_batches_with_diversity_do_not_starve_single_requests(folder, recommender):
    history = recommender.run.item_ids.ids.tolist()[:20]
    body = json.dumps({"histories": [history] * 1000, "k": 10, "diversity": 0.5})
    begun, over = threading.Barrier(5), threading.Event()

    def send() -> None:
        begun.wait(60)
        while not over.is_set():
            client = http.client.HTTPConnection(*service.place, timeout=60)
            client.request("POST", "/v1/recommend/batch", body, JSON)
            client.getresponse().read()

    with Service(folder, "--no-access-log") as service:
        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait(60)
        client, seconds = connect(service), []
        for _ in range(30):
            start = time.monotonic()
            assert ask(client).status == 200
            seconds.append(time.monotonic() - start)
        over.set()
        for thread in threads:
            thread.join()
        assert sorted(seconds)[15] < 1.0


FULL = (
    "from itemfold.serving.http.admission import busy_responses, work_queue; "
    "work_queue.WorkQueue.is_full = property(lambda self: True)"
)
REFUSED = (
    f"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(ASK)}\r\n\r\n{ASK}"
).encode()


def next_status(client: socket.socket) -> int:
    """The status of the next response, which is read to its end."""
    response = http.client.HTTPResponse(client)
    response.begin()
    response.read()
    return response.status


def test_a_request_that_follows_a_refused_one_at_once_is_answered_too(folder):
    with (
        Service(folder, constants=FULL) as service,
        socket.create_connection(service.place, timeout=60) as client,
    ):
        client.sendall(REFUSED)
        time.sleep(0.03)  # it is refused and waits for its 503
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'{"status":"ok"}' not in received:
            received += client.recv(2**16) or pytest.fail(f"closed after {received!r}")
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"503", b"200"]


def test_a_stopping_service_answers_the_requests_that_it_refused(folder):
    constants = f"{FULL}; busy_responses.MIN_BUSY_DELAY_S = busy_responses.MAX_BUSY_DELAY_S = 600.0"
    with (
        Service(folder, constants=constants) as service,
        socket.create_connection(service.place, timeout=60) as client,
    ):
        client.sendall(REFUSED)
        assert ask(connect(service), "/livez").status == 200
        service.process.terminate()
        assert next_status(client) == 503


# --- workers -------------------------------------------------------------------------------------

linux = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="finds processes by /proc")


@linux
def test_a_worker_that_is_killed_is_replaced(folder):
    with Service(folder, workers=2) as service:
        before = worker_pids(service)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda: "is replaced" in service.log_text())
        assert ask(connect(service), "/livez").status == 200
        eventually(lambda: len(worker_pids(service)) == 2)
        os.kill(before[1], signal.SIGKILL)  # now only those that came later can answer
        eventually(lambda: service.log_text().count("is replaced") == 2)
        eventually(lambda: len(worker_pids(service)) == 2)
        assert not set(worker_pids(service)) & set(before)
        assert ask(connect(service)).status == 200
        assert service.log_text().count("is replaced") == 2  # they stay
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=60) == -signal.SIGTERM


def model(service: Service) -> str:
    """The model of the run that answers, "" while no worker does."""
    try:
        return json.loads(ask(connect(service), "/about").content)["model"]
    except OSError:
        return ""


def switch(link: Path, target: str) -> None:
    """Let a link point to another folder."""
    draft = link.with_name("draft")
    draft.symlink_to(target)
    draft.replace(link)


@linux
def test_workers_load_what_was_accepted_and_roll_back(tmp_path, recommender):
    recommender.run.save(tmp_path / "old")
    ir.train(ir.split_interactions(DATA, seed=0), ir.models.EASE()).save(tmp_path / "new")
    (tmp_path / "broken").mkdir()
    link = tmp_path / "link"
    link.symlink_to("old")
    with Service(f"shop={link}", workers=2) as service:

        def all_have(name: str) -> bool:
            return {model(service) for _ in range(8)} == {name}

        def killed_are_replaced() -> bool:
            return len(worker_pids(service)) == 2 and not set(worker_pids(service)) & set(killed)

        switch(link, "broken")
        service.process.send_signal(signal.SIGHUP)
        eventually(lambda: "is not replaced" in service.log_text())
        killed = worker_pids(service)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        eventually(killed_are_replaced)
        eventually(lambda: all_have("lightgcn"))  # not what the link points to

        switch(link, "new")
        for reloads, (number, name) in enumerate(
            [
                (signal.SIGHUP, "ease"),
                (signal.SIGUSR1, "lightgcn"),
                (signal.SIGUSR1, "ease"),  # and forward again
            ],
            1,
        ):
            service.process.send_signal(number)
            eventually(lambda: service.log_text().count("is loaded") == 2 * reloads)  # noqa: B023
            assert all_have(name)

        shutil.rmtree(tmp_path / "new")
        os.kill(worker_pids(service)[0], signal.SIGKILL)
        place = str(tmp_path / "new")

        def delays() -> list[float]:
            """Seconds before each replacement of a worker that could not load the run."""
            return [line["delay_s"] for line in service.log() if place in line.get("reason", "")]

        eventually(lambda: len(delays()) > 1)
        assert delays()[:2] == [1.0, 2.0]
        eventually(lambda: all_have("ease"))  # the other worker answers


@linux
def test_a_stopped_worker_is_replaced_and_nothing_is_left_behind(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Service(folder, "--limit", "watchdog_s=5", workers=2) as service:
        assert list(tmp_path.glob("itemfold-metrics-*"))
        stopped = worker_pids(service)[0]
        os.kill(stopped, signal.SIGSTOP)
        eventually(lambda: "no sign of life" in service.log_text())
        eventually(lambda: stopped not in worker_pids(service))
        eventually(lambda: len(worker_pids(service)) == 2)
        assert [ask(connect(service)).status for _ in range(4)] == [200] * 4
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=60) == -signal.SIGTERM
        assert not list(tmp_path.glob("itemfold-metrics-*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_metrics_have_a_port_of_their_own(folder, workers):
    key = ("--api-key", "a-key-that-is-long-enough")
    with Service(folder, "--metrics-port", "0", *key, workers=workers) as service:
        sentence = service.process.stdout.readline()
        port = int(re.search(r"metrics are at http://127.0.0.1:(\d+)/metrics", sentence)[1])
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        answer = ask(client, "/metrics")
        assert (answer.status, b"itemfold_run_info" in answer.content) == (200, True)
        assert ask(client, "/about").status == 404
        other = connect(service)
        assert ask(other, "/metrics").status == 404
        assert ask(other, "/livez").status == 200


@linux
def test_connections_wait_until_a_worker_can_take_them(folder):
    with Service(folder, workers=2) as service:
        pids = worker_pids(service)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # as if both were very busy
        clients = [socket.create_connection(service.place, timeout=60) for _ in range(800)]
        for client in clients:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        time.sleep(0.5)  # more than the workers' channels hold have arrived
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for client in clients:
            with client, client.makefile("rb") as answer:
                assert answer.readline().startswith(b"HTTP/1.1 200")


def test_workers_end_with_their_supervisor(folder):
    with Service(folder, workers=2) as service:
        pids = worker_pids(service)
        service.process.kill()
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_each_worker_reports_the_metrics_of_all(folder):
    with Service(folder, workers=2) as service:
        for _ in range(30):
            ask(connect(service))
        for _ in range(5):  # an answer is counted after it is sent
            eventually(lambda: lists_answered(service) == 30)


def lists_answered(service: Service) -> float:
    text = ask(connect(service), "/metrics").content.decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    counted = families["itemfold_answers"].samples
    lists = [s for s in counted if s.name.endswith("_total") and s.labels["path"] == "/recommend"]
    return sum(sample.value for sample in lists)


def test_workers_share_the_limit_of_a_key(folder):
    key = "a-key-that-is-long-enough"
    with Service(folder, "--api-key", key, "--rate-limit", "0.001", workers=2) as service:
        statuses = []
        for _ in range(8):  # each connection goes to the next worker
            client = connect(service)
            client.request("GET", "/about", headers={"Authorization": f"Bearer {key}"})
            statuses.append(client.getresponse().status)
    assert statuses == [200] + [429] * 7


def test_a_run_that_workers_cannot_load_is_reported_in_one_sentence(tmp_path):
    command = [sys.executable, "-m", "itemfold", "serve", str(tmp_path / "none"), "--workers", "2"]
    done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"itemfold: {tmp_path / 'none'}: no such folder\n"


# --- the client ----------------------------------------------------------------------------------


def test_the_client_returns_what_the_recommender_returns(folder, recommender, tmp_path):
    key = "a-key-that-is-long-enough"
    options = ("--api-key", key, "--feedback", str(tmp_path / "feedback"))
    with Service(folder, *options) as service:
        client = Client(service.address, key)
        asked = {"history": [12, 57], "k": 4, "explain": True}
        assert client.recommend(**asked) == recommender.recommend(**asked)
        users = recommender.run.user_ids.ids.tolist()[:3]
        expected = [recommender.recommend(user, k=4) for user in users]
        assert client.recommend_batch(users=users, k=4) == expected
        assert client.similar_items(12, 5) == recommender.similar_items(12, 5)
        assert client.send_feedback("liked", [12, 57], user=5) == 2
        assert client.about()["model"] == "lightgcn"
        with pytest.raises(ir.ItemfoldError, match="answers 422: 'k' must be greater than"):
            client.recommend(history=[12], k=0)
        with pytest.raises(ir.ItemfoldError, match="answers 401: an API key is needed"):
            Client(service.address).about()
    with pytest.raises(ir.ItemfoldError, match="does not answer"):
        client.about()
