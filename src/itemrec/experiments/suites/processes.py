"""Worker processes that perform one job after another: JSON lines in, JSON lines out.

A worker performs many jobs, so that Python, torch and a data set are loaded only once. It exits
when its parent process ends for any reason. If a worker dies, only its current job fails.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Job = dict[str, Any]
Answer = dict[str, Any]


def serve(perform: Callable[[Job], Answer]) -> None:
    """Run as a worker: perform the jobs that arrive on stdin, answer on the original stdout.

    All other output goes to stderr. An exception is answered as an error and ends the process,
    because the GPU context may be unusable.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    jobs: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(line)
        os._exit(0)  # the parent is gone or has no more jobs: exit even in the middle of a job

    threading.Thread(target=listen, daemon=True).start()
    answer: Answer = {}
    while "last" not in answer:
        try:
            answer = perform(json.loads(jobs.get()))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "last": True}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def perform_all(
    jobs: Sequence[Job],
    module: str,
    count: int,
    *,
    environment: Mapping[str, str],
    stop: Callable[[], bool],
) -> Iterator[tuple[str, Job, Answer]]:
    """Run ``python -m module`` workers in parallel; yields ("start" | "end", job, answer).

    Jobs start in order until none is left or ``stop()`` returns true.
    """
    waiting, lock = deque(jobs), threading.Lock()
    events: queue.Queue[tuple[str, Job, Answer] | None] = queue.Queue()
    running: set[subprocess.Popen[str]] = set()
    abandoned = threading.Event()

    def next_job() -> Job | None:
        with lock:
            return waiting.popleft() if waiting and not stop() and not abandoned.is_set() else None

    def run_worker() -> None:
        worker: subprocess.Popen[str] | None = None
        try:
            while (job := next_job()) is not None:
                if worker is None:
                    worker = _start(module, environment)
                    running.add(worker)
                events.put(("start", job, {}))
                answer = _ask(worker, job)
                if answer is None or "last" in answer:
                    answer = answer or {"error": f"the worker exited with status {worker.wait()}"}
                    running.discard(worker)
                    worker = None
                events.put(("end", job, answer))
        finally:
            if worker is not None:
                assert worker.stdin is not None
                worker.stdin.close()
                worker.wait()
                running.discard(worker)
            events.put(None)

    threads = [
        threading.Thread(target=run_worker, daemon=True) for _ in range(min(count, len(jobs)))
    ]
    for thread in threads:
        thread.start()
    try:
        left = len(threads)
        while left:
            event = events.get()
            if event is None:
                left -= 1
            else:
                yield event
    finally:
        abandoned.set()
        for worker in list(running):
            worker.kill()
        for thread in threads:
            thread.join()


def _start(module: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,  # only the parent gets Ctrl-C, and then ends its workers
    )


def _ask(worker: subprocess.Popen[str], job: Job) -> Answer | None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
    except OSError:
        return None
    line = worker.stdout.readline()
    return json.loads(line) if line.endswith("\n") else None
