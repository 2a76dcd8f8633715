"""Prometheus metrics of the service, summed over its workers.

Workers write their numbers to files in the folder PROMETHEUS_MULTIPROC_DIR, which is set before
they start, so each of them can report the totals.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

from itemfold.serving.http.runs import ServedRun

MULTIPROCESS_DIR = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5, 10, 30)


class Telemetry:
    """The metrics of one service, in a separate registry, because a process may run several."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = self._counter(
            "answers", "Answers by path, status and class of the key.", "path", "status", "key"
        )
        self.feedback = self._counter("feedback", "Feedback by event and run.", "event", "run")
        self.feedback_refused = self._counter(
            "feedback_refused", "Feedback events that were not stored.", "reason"
        )
        self.feedback_waiting = self._gauge(
            "feedback_waiting", "Feedback events that wait to be written.", mode="livesum"
        )
        self.reloads = self._counter("reloads", "Reloads of run folders.", "run", "outcome")
        self.seconds = self._histogram("answer_seconds", "Time from request to answer.")
        self.upload_seconds = self._histogram("upload_seconds", "Upload time of requests.")
        self.in_flight = self._gauge("in_flight", "Requests in progress.", mode="livesum")
        self.run_info = self._gauge(
            "run_info", "1 for the runs being served.", "run", "model", "run_fingerprint"
        )
        self.run_since = self._gauge("run_since_seconds", "Time when a run was loaded.", "run")
        self.users = self._gauge("users", "Number of known users.", "run")
        self.items = self._gauge("items", "Number of known items.", "run")
        self.memory = self._gauge("memory_bytes", "Resident memory.", mode="livesum")
        self.cpu = self._gauge("cpu_seconds", "CPU time.", mode="livesum")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"itemfold_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"itemfold_{name}", text, ("path",), registry=self.registry, buckets=BUCKETS
        )

    def _gauge(self, name: str, text: str, *labels: str, mode: str = "livemax") -> Gauge:
        return Gauge(
            f"itemfold_{name}",
            text,
            labels,
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )

    def describe_run(self, run: ServedRun, before: ServedRun | None = None) -> None:
        """Set the gauges of a run, and reset those of the version it replaces."""
        name, data = run.name, run.recommender.run
        if before is not None:
            model = str(before.recommender.run.metrics["model"])
            self.run_info.labels(name, model, before.fingerprint).set(0)
        self.run_info.labels(name, str(data.metrics["model"]), run.fingerprint).set(1)
        self.run_since.labels(name).set(datetime.fromisoformat(run.since).timestamp())
        self.users.labels(name).set(len(data.user_ids))
        self.items.labels(name).set(run.recommender.n_items)

    def measure_process(self) -> None:
        """Set the gauges of memory and CPU time of this process."""
        self.memory.set(resident_bytes())
        self.cpu.set(time.process_time())

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        self.measure_process()
        if MULTIPROCESS_DIR not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


def resident_bytes() -> int:
    """Resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
