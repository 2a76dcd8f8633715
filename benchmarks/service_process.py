"""`itemfold serve` and load on it as processes of their own, each on cores of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cores:
    """Which cores the service has, and which its load; the same if there are only two."""

    service: list[int]
    load: list[int]

    @classmethod
    def of_machine(cls) -> Cores:
        """Two cores for the service, the others for load; threads of one core are one core."""
        threads: dict[str, list[int]] = {}
        for cpu in sorted(os.sched_getaffinity(0)):
            path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            name = path.read_text() if path.is_file() else str(cpu)
            threads.setdefault(name, []).append(cpu)
        cores = list(threads.values())
        others = [cpu for core in cores[2:] for cpu in core]
        return cls([core[0] for core in cores[:2]], others or sorted(os.sched_getaffinity(0)))

    def apart(self) -> Cores:
        """Cores that are not shared: with two in all, one for the service and one for its load."""
        if set(self.service) & set(self.load):
            return Cores(self.service[:1], self.service[1:] or self.load)
        return self

    def __str__(self) -> str:
        return f"service on CPUs {self.service}, load on CPUs {self.load}"


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Processes that are started within this context have these CPUs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Service:
    """`itemfold serve` with a worker on each of some CPUs."""

    def __init__(self, run: str, cpus: Sequence[int], *options: str) -> None:
        command = [sys.executable, "-m", "itemfold", "serve", run, "--port", "0", *options]
        command += ["--workers", str(len(cpus)), "--no-access-log"]
        with pinned(cpus):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            sys.exit("the service did not start; its reason is above")
        self.address = urlsplit(found[0]).netloc

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def get(self, path: str) -> str:
        """The response of a path over a new connection, empty if there is none."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            connection.close()

    def fingerprints(self) -> set[str]:
        """The fingerprints of the runs that answer, over several connections."""
        return {json.loads(self.get("/about") or "{}").get("run_fingerprint") for _ in range(8)}

    def workers(self) -> list[int]:
        """The processes that answer."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # one that has just ended
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                command = (folder / "cmdline").read_text()
                if int(parent) == self.process.pid and "spawn_main" in command:
                    found.append(int(folder.name))
        return found

    def cpu_seconds(self) -> float:
        """CPU time of all processes of the service."""
        ticks = 0
        for pid in {self.process.pid, *self.workers()}:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes of resident memory of all workers."""
        pages = (int(Path(f"/proc/{w}/statm").read_text().split()[1]) for w in self.workers())
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")


class Load:
    """`load.py` in one or several processes, which share connections and rate."""

    def __init__(
        self,
        service: Service,
        bodies: Path,
        cpus: Sequence[int],
        *,
        processes: int = 1,
        **options: float,
    ) -> None:
        command = [sys.executable, str(HERE / "load.py"), service.address, str(bodies)]
        for name, value in options.items():
            share = value / processes if name == "rate" else value
            share = value // processes if name == "connections" else share
            command += [f"--{name}", str(share)]
        with pinned(cpus):
            self.processes = [
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                for _ in range(processes)
            ]
        for process in self.processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        """Stop sending."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)

    def result(self) -> dict[str, Any]:
        """The outcomes of the requests, once all are answered."""
        found = [json.loads(process.communicate()[0]) for process in self.processes]
        return {
            "statuses": sum((Counter(one["statuses"]) for one in found), Counter()),
            "failures": sum((Counter(one["failures"]) for one in found), Counter()),
            "seconds": sorted(second for one in found for second in one["seconds"]),
            "sent": sum(one["sent"] for one in found),
            "sending": max(one["sending"] for one in found),
            "last_sent": max(one["last_sent"] for one in found),
            "goodput": sum(one["good"] for one in found) / max(one["sending"] for one in found),
        }
