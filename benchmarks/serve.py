"""`itemfold serve` over HTTP: 20 items for a history of 50, alone, under load and beyond it.

A network or a hybrid with random weights, which cost as much time as trained ones. Load comes from
other processes: 1 to 1,000 connections, one core against two, batches and searches beside single
requests, memory, a new run, a killed worker, four and sixteen times the load that can be answered,
and the end of the service. The service has cores of its own, one for each worker. Where there are
fewer than three cores, the load takes a part of them, except in overload: there, one worker has one
core, and the load the other.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import Verdicts, begin, parser

import numpy as np
from fold_in import TOP, histories, untrained
from service_process import Cores, Load, Service, pinned

from itemfold.models.base import Model
from itemfold.models.hybrid import Hybrid
from itemfold.models.lightgcn import LightGCN
from itemfold.models.rlae import RLAE
from itemfold.serving.recommender import Recommender

BOUND = 1.0  # seconds that a request may wait, `Limits.max_wait_s`
CHECKS = 200  # of the health of the service
CONNECTIONS = (1, 8, 64, 256, 1000)


def network() -> Model:
    """A GNN of the size that a CPU trains."""
    return LightGCN(dim=64, layers=3)


def hybrid() -> Model:
    """The default model of the size that a GPU trains, with settings as if they were chosen."""
    return Hybrid(gnn=LightGCN(dim=256, layers=3), linear=RLAE(l2=50.0, item_power=0.2))


MODELS = {"gnn": network, "hybrid": hybrid}


@dataclass(frozen=True)
class Setting:
    """The options of all measurements."""

    folder: Path  # with the runs `first` and `second`, and the file `bodies`
    cores: Cores
    seconds: float  # of load in one measurement
    quick: bool
    verdicts: Verdicts

    def load(self, service: Service, cpus: Sequence[int] = (), **options: Any) -> Load:
        """Start load on some cores, by default on those reserved for it."""
        return Load(service, self.folder / "bodies", cpus or self.cores.load, **options)


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--model", choices=list(MODELS), default="gnn")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    split, cores = begin(options), Cores.of_machine()
    print(cores)
    asked = list(histories(split, 50 if options.quick else 500))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, place in enumerate(("first", "second")):
            run = untrained(split, MODELS[options.model](), seed)
            run.save(folder / place)
        lines = [json.dumps({"history": history, "k": TOP}) for history in asked]
        (folder / "bodies").write_text("\n".join(lines))
        seconds, verdicts = (0.5, 4.0)[not options.quick], Verdicts()
        setting = Setting(folder, cores, seconds, options.quick, verdicts)
        alone = one_at_a_time(setting, asked)
        capacity = throughput(setting)
        (folder / "link").symlink_to("first")
        feedback = ("--feedback", str(folder / "feedback"))
        with Service(f"shop={folder / 'link'}", cores.service, *feedback) as service:
            mixed(setting, service, capacity, asked)
            memory(setting, service)
            new_run(setting, service)
            killed(setting, service)
            stopped(setting, service)
        apart = replace(setting, cores=cores.apart())
        with Service(str(folder / "first"), apart.cores.service) as service:
            for times in (4, 16):
                overload(apart, service, times)
        verdicts.last("serve_over_python", alone, 3.0)


def one_at_a_time(setting: Setting, questions: list[list[Any]]) -> float:
    """One client that waits for each answer, in turn with the same call in Python."""
    asked, called = [], []
    recommender = Recommender.load(setting.folder / "first")
    with (
        Service(str(setting.folder / "first"), setting.cores.service[:1]) as service,
        pinned(setting.cores.load),
    ):
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
    setting.verdicts.also("serve_p99_ms", p99, 20.0)
    return float(np.median(asked) / np.median(called))


def throughput(setting: Setting) -> float:
    """Requests a second by connections, on one core and on two in turn; returns most of two.

    With two cores in all, the load shares the cores of the service in both: one core does all the
    work, or two do. The CPU time is that of the service alone.
    """
    best: dict[int, float] = {}
    run, cpus = str(setting.folder / "first"), setting.cores.service
    with Service(run, cpus[:1]) as one, Service(run, cpus) as two:
        services = {1: one, 2: two}
        for service in services.values():  # warm up
            setting.load(service, connections=8, seconds=setting.seconds / 2).result()
        for connections in CONNECTIONS[1:2] if setting.quick else CONNECTIONS:
            for workers, service in services.items():
                shared = set(setting.cores.load) & set(cpus)
                spent = service.cpu_seconds()
                found = setting.load(
                    service,
                    cpus=cpus[:workers] if shared else setting.cores.load,
                    connections=connections,
                    seconds=setting.seconds,
                ).result()
                cpu = (service.cpu_seconds() - spent) / max(1, found["statuses"]["200"])
                goodput, refused = found["goodput"], found["statuses"]["503"]
                p50, p99 = (1e3 * np.percentile(found["seconds"], q) for q in (50, 99))
                print(
                    f"{workers} workers, {connections} connections: "
                    f"{goodput:.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
                    f"refused {refused}, failed {failed(found) - refused}, "
                    f"CPU {1e3 * cpu:.2f} ms a list"
                )
                best[workers] = max(best.get(workers, 0.0), goodput)
    setting.verdicts.also("serve_cores", best[2] / best[1], 1.7, at_least=True)
    return best[2]


def failed(found: dict[str, Any]) -> int:
    """Requests without an answer, or with another status than 200."""
    wrong = found["statuses"].total() - found["statuses"]["200"]
    return int(wrong + found["failures"].total())


def memory(setting: Setting, service: Service) -> None:
    """Growth of the memory of all workers over 20,000 requests, after the first of them."""
    requests = 200 if setting.quick else 20_000
    sizes = []
    for share in (0.1, 0.25, 0.25, 0.25, 0.25):  # the first to warm up
        number = int(share * requests)
        found = setting.load(service, connections=16, seconds=600.0, requests=number).result()
        assert found["statuses"].total() == number
        sizes.append(service.memory())
    listed = ", ".join(f"{size / 2**20:.0f}" for size in sizes)
    print(f"memory of the workers in MB, over {requests} requests: {listed}")
    setting.verdicts.also("serve_memory_growth", sizes[-1] / sizes[0], 1.05)


def new_run(setting: Setting, service: Service) -> None:
    """Another run behind the link, under load."""
    before = service.fingerprints()
    load = setting.load(service, connections=16, seconds=120.0)
    time.sleep(setting.seconds / 4)
    draft = setting.folder / "draft"
    draft.symlink_to("second")
    draft.replace(setting.folder / "link")
    start = time.perf_counter()
    service.process.send_signal(signal.SIGHUP)
    while len(now := service.fingerprints()) > 1 or now & before:
        assert time.perf_counter() - start < 100, "the new run was not loaded"
    print(f"a new run answers after {time.perf_counter() - start:.1f} s")
    time.sleep(setting.seconds / 4)
    load.stop()
    found = load.result()
    print(f"a new run under load: {dict(found['statuses'])}, failed {dict(found['failures'])}")
    setting.verdicts.also("serve_reload_failed", failed(found), 0)


def mixed(setting: Setting, service: Service, capacity: float, questions: list[list[Any]]) -> None:
    """Single requests alone, then beside batches with diversity, searches and feedback."""

    def singles() -> float:
        found = setting.load(
            service, connections=4, seconds=2 * setting.seconds, rate=capacity / 10
        ).result()
        print(f"single requests: {dict(found['statuses'])}, failed {dict(found['failures'])}")
        assert not failed(found), "single requests must be answered"
        return float(np.percentile(found["seconds"], 99))

    batch = {"histories": questions[:200], "k": TOP, "diversity": 0.5}
    liked = {"event": "liked", "items": questions[0][:5], "user": "someone"}
    others = [("POST", "/v1/recommend/batch", batch)] * 3
    others += [("GET", "/v1/items?q=a", None), ("POST", "/v1/feedback", liked)]
    quiet, over, statuses = singles(), threading.Event(), Counter[int]()

    def ask(method: str, path: str, content: Any) -> None:
        connection = http.client.HTTPConnection(service.address, timeout=60)
        while not over.is_set():
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            statuses[answer.status] += 1
            time.sleep(0.02)

    threads = [threading.Thread(target=ask, args=other) for other in others]
    for thread in threads:
        thread.start()
    time.sleep(setting.seconds / 2)
    busy = singles()
    over.set()
    for thread in threads:
        thread.join()
    print(f"beside them: {dict(statuses)}; p99 {1e3 * quiet:.1f} ms alone, {1e3 * busy:.1f} ms")
    setting.verdicts.also("serve_mixed_p99_over_quiet", busy / quiet, 5.0)


def overload(setting: Setting, service: Service, times: int) -> None:
    """More load than it can answer: no request waits long, and the service recovers.

    The capacity is measured before and after, because a shared machine's speed changes.
    """

    def capacity() -> float:
        return float(
            setting.load(service, connections=64, seconds=setting.seconds).result()["goodput"]
        )

    before = capacity()
    found = setting.load(
        service,
        processes=min(4, len(setting.cores.load)),
        connections=256 if setting.quick else 2048,
        seconds=2 * setting.seconds,
        rate=times * before,
    ).result()
    recovery, after = recovered(setting, service) - found["last_sent"], capacity()
    statuses, offered = found["statuses"], found["sent"] / found["sending"] / before
    print(
        f"overload, {times * before:.0f}/s wanted, {offered:.1f} times the capacity sent: "
        f"{dict(statuses)}, failed {dict(found['failures'])}; capacity {before:.0f}/s before and "
        f"{after:.0f}/s after, answered {found['goodput']:.0f}/s"
    )
    name = f"serve_overload_{times}"
    if times == 4:  # more is not sent: a connection waits for its answer
        setting.verdicts.also(f"{name}_times_capacity", offered, 3.5, at_least=True)
    setting.verdicts.also(f"{name}_worst_s", found["seconds"][-1], 2 * BOUND)
    setting.verdicts.also(f"{name}_unanswered", found["failures"].total(), 0)
    share = 2 * found["goodput"] / (before + after)
    setting.verdicts.also(f"{name}_share_answered", share, 0.8, at_least=True)
    setting.verdicts.also(f"{name}_recovery_s", recovery, 5.0)


def recovered(setting: Setting, service: Service) -> float:
    """When twenty requests in a row were answered, half of them within 50 ms."""
    start = time.monotonic()
    while True:
        found = setting.load(service, connections=1, requests=20, seconds=60.0).result()
        if not failed(found) and np.median(found["seconds"]) < 0.05:
            return time.monotonic()
        assert time.monotonic() - start < 60, "the service has not recovered"


def killed(setting: Setting, service: Service) -> None:
    """`kill -9` of a worker: ten seconds later every check of its health is answered."""
    os.kill(service.workers()[0], signal.SIGKILL)
    time.sleep(3 if setting.quick else 10)
    failures = sum('"ok"' not in service.get("/livez") for _ in range(CHECKS))
    print(f"kill -9 of a worker: {len(service.workers())} workers after it, {CHECKS} checks")
    setting.verdicts.also("serve_kill_failed_checks", failures, 0)


def stopped(setting: Setting, service: Service) -> None:
    """SIGTERM under load: what was accepted is answered; later connections are refused."""
    load = setting.load(service, connections=64, seconds=120.0)
    time.sleep(setting.seconds)
    service.process.terminate()
    found = load.result()  # it ends when every connection is refused
    print(f"SIGTERM under load: {dict(found['statuses'])}, failed {dict(found['failures'])}")
    unanswered = found["failures"].total() - found["failures"]["refused"]
    setting.verdicts.also("serve_stop_unanswered", unanswered, 0)


if __name__ == "__main__":
    main()
