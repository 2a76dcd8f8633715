"""`itemrec serve` over HTTP: 20 items for a history of 50, alone, under load and beyond it.

A GNN and an item-item model of the same catalogue; 1 to 256 connections from another process, on
the same cores; one core against two; memory; a new run, a killed worker, four times the load that
can be answered, and the end of the service.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import Verdicts, begin, parser

import numpy as np
from fold_in import TOP, histories, untrained

from itemrec.models.itemknn import ItemKNN
from itemrec.serving.recommender import Recommender
from itemrec.training.loop import train

BOUND = 1.0  # seconds that a request may wait, `ServiceSettings.seconds`
HERE = Path(__file__).parent


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    split = begin(options)
    asked = list(histories(split, 50 if options.quick else 500))
    seconds = 0.5 if options.quick else 4.0
    runs = {"lightgcn": untrained(split), "itemknn": train(split, ItemKNN())}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for name, run in runs.items():
            run.save(folder / name)
        lines = [json.dumps({"history": history, "k": TOP}) for history in asked]
        (folder / "bodies").write_text("\n".join(lines))
        verdicts = Verdicts()
        alone = one_at_a_time(folder, Recommender.from_run(runs["lightgcn"]), asked, verdicts)
        capacity = {
            name: throughput(folder, name, seconds, verdicts)
            for name in ("itemknn", "lightgcn")[options.quick :]
        }
        link = folder / "link"
        link.symlink_to("itemknn")
        with Service(f"shop={link}", "--workers", "2") as service:
            memory(service, folder, 200 if options.quick else 20_000, verdicts)
            new_run(service, folder, seconds, verdicts)
            killed(service, 3 if options.quick else 10, verdicts)
            overload(service, folder, capacity["lightgcn"], seconds, verdicts)
            stopped(service, folder, seconds, verdicts)
        verdicts.last("serve_over_python", alone, 3.0)


class Service:
    """`itemrec serve` in a process of its own."""

    def __init__(self, *options: str, cores: int = 0) -> None:
        command = [sys.executable, "-m", "itemrec", "serve", *options, "--port", "0"]
        if cores:
            chosen = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
            command = ["taskset", "-c", chosen, *command]
        command.append("--no-access-log")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        self.address = urlsplit(re.findall(r"http://\S+", line)[0]).netloc

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def get(self, path: str) -> str:
        """The answer at a path over a new connection, empty if there is none."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""
        finally:
            connection.close()

    def workers(self) -> list[int]:
        """The processes that answer."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(child)
            for child in children
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
        ]


class Load:
    """`load.py` in a process of its own."""

    def __init__(self, service: Service, folder: Path, **options: float) -> None:
        command = [sys.executable, str(HERE / "load.py"), service.address, str(folder / "bodies")]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(self) -> dict[str, Any]:
        """What became of the requests."""
        out, _ = self.process.communicate()
        found: dict[str, Any] = json.loads(out)
        return found


def one_at_a_time(
    folder: Path, recommender: Recommender, questions: list[list[Any]], verdicts: Verdicts
) -> float:
    """One client that waits for each answer, in turn with the same call in Python."""
    asked, called = [], []
    with Service(str(folder / "lightgcn")) as service:
        connection = http.client.HTTPConnection(service.address)
        for turn, history in enumerate(questions[:20] + questions):
            start = time.perf_counter()
            body = json.dumps({"history": history, "k": TOP})
            connection.request("POST", "/recommend", body, {"Content-Type": "application/json"})
            found = json.loads(connection.getresponse().read())["items"]
            middle = time.perf_counter()
            picks = recommender.recommend(history=history, k=TOP)
            end = time.perf_counter()
            assert [pick["item"] for pick in found] == [pick.item for pick in picks]
            if turn >= 20:  # after warming up
                asked.append(middle - start)
                called.append(end - middle)
        connection.close()
    p50, p99 = (1e3 * float(np.percentile(asked, q)) for q in (50, 99))
    print(f"{len(asked)} calls, one at a time: median {p50:.2f} ms, 99th percentile {p99:.2f} ms")
    print(f"the same in Python: median {1e3 * np.median(called):.2f} ms")
    verdicts.also("serve_p99_ms", p99, 20.0)
    return float(np.median(asked) / np.median(called))


def throughput(folder: Path, name: str, seconds: float, verdicts: Verdicts) -> float:
    """Requests a second by connections, on one core and on two; returns those of two."""
    best: dict[int, float] = {}
    for cores in (1, 2):
        with Service(str(folder / name), "--workers", str(cores), cores=cores) as service:
            Load(service, folder, connections=8, seconds=seconds / 2).result()  # warm up
            for connections in (1, 8, 64, 256):
                found = Load(service, folder, connections=connections, seconds=seconds).result()
                good = found["statuses"].get("200", 0)
                p50, p99 = (1e3 * np.percentile(found["seconds"], q) for q in (50, 99))
                others = sum(found["statuses"].values()) - good
                print(
                    f"{name}, {cores} cores, {connections} connections: "
                    f"{good / found['elapsed']:.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
                    f"refused {others}, failed {sum(found['failures'].values())}"
                )
                best[cores] = max(best.get(cores, 0.0), good / found["elapsed"])
    verdicts.also(f"serve_cores_{name}", best[2] / best[1], 1.7, at_least=True)
    return best[2]


def memory(service: Service, folder: Path, requests: int, verdicts: Verdicts) -> None:
    """Growth of the memory over many requests, after the first of them."""

    def used() -> float:
        return sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for pid in service.workers()
        )

    few = {"connections": 16, "seconds": 600.0}
    Load(service, folder, requests=max(100, requests // 10), **few).result()
    before = used()
    found = Load(service, folder, requests=requests, **few).result()
    print(f"memory: {before / 2**20:.0f} MB before {sum(found['statuses'].values())} requests")
    verdicts.also("serve_memory_growth", used() / before, 1.05)


def new_run(service: Service, folder: Path, seconds: float, verdicts: Verdicts) -> None:
    """Another run behind the link, under load."""
    load = Load(service, folder, connections=16, seconds=seconds + 6)
    time.sleep(1)
    (folder / "draft").symlink_to("lightgcn")
    (folder / "draft").replace(folder / "link")
    service.process.send_signal(signal.SIGHUP)
    found = load.result()
    assert '"model":"lightgcn"' in service.get("/about")
    print(f"a new run under load: {found['statuses']}, failed {found['failures']}")
    refused = sum(count for status, count in found["statuses"].items() if status != "200")
    verdicts.also("serve_reload_failed", refused + sum(found["failures"].values()), 0)


def killed(service: Service, pause: float, verdicts: Verdicts) -> None:
    """`kill -9` of a worker: ten seconds later every check of its health is answered."""
    os.kill(service.workers()[0], signal.SIGKILL)
    time.sleep(pause)
    failed = sum('"ok"' not in service.get("/livez") for _ in range(200))
    assert len(service.workers()) == 2
    verdicts.also("serve_kill_failed_checks", failed, 0)


def overload(
    service: Service, folder: Path, capacity: float, seconds: float, verdicts: Verdicts
) -> None:
    """Four times what it can answer: nobody waits long, and it recovers."""
    rate = 4 * capacity
    found = Load(service, folder, connections=1024, seconds=2 * seconds, rate=rate).result()
    statuses = found["statuses"]
    print(f"overload, {rate:.0f}/s: {statuses}, failed {found['failures']}")
    start = time.perf_counter()
    while Load(service, folder, connections=1, requests=20).result()["seconds"][10] > 0.05:
        assert time.perf_counter() - start < 60
    verdicts.also("serve_overload_worst_s", found["seconds"][-1], 2 * BOUND)
    share = statuses.get("200", 0) / found["elapsed"] / capacity
    verdicts.also("serve_overload_share_answered", share, 0.2, at_least=True)
    verdicts.also("serve_recovery_s", time.perf_counter() - start, 5.0)


def stopped(service: Service, folder: Path, seconds: float, verdicts: Verdicts) -> None:
    """SIGTERM under load: what was accepted is answered; later connections are refused."""
    load = Load(service, folder, connections=16, seconds=seconds + 8)
    time.sleep(seconds)
    service.process.terminate()
    found = load.result()
    print(f"SIGTERM under load: {found['statuses']}, failed {found['failures']}")
    bad = sum(count for name, count in found["failures"].items() if name != "refused")
    verdicts.also("serve_stop_failed", bad, 0)


if __name__ == "__main__":
    main()
