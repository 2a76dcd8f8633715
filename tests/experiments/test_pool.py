"""Workers: one that breaks or dies fails only its own job, and none outlives its parent."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command import sigint

from itemfold.experiments.suites.pool import DIED, JobResult, Pool
from itemfold.threads import usable_cpus

TOY = """
import os, signal, sys, time
from itemfold.errors import ItemfoldError

def perform(job):
    print("printed on stdout")
    do = job["do"]
    if do == "reject":
        raise ItemfoldError("'lr' must be positive")
    if do == "raise":
        raise RuntimeError(f"broken {os.getpid()}")
    if do == "die":
        os._exit(3)
    if do == "be killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "wait":  # while another worker dies
        time.sleep(1)
    if do == "sleep":
        open(job["file"], "w").write(str(os.getpid()))
        time.sleep(600)
    threads = os.environ["OMP_NUM_THREADS"]
    return {"n": job["n"], "pid": os.getpid(), "threads": threads, "torch": "torch" in sys.modules}
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "toy_jobs.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield importlib.import_module("toy_jobs")
    del sys.modules["toy_jobs"]


def run(toy: ModuleType, todo: list[str], count: int) -> tuple[list[int], dict[int, JobResult]]:
    """The order in which jobs started, and their results."""
    jobs: list[dict[str, Any]] = [{"n": n, "do": do} for n, do in enumerate(todo)]
    started: list[int] = []
    with Pool(count) as pool:
        results = pool.run(
            toy.perform, jobs, stop=lambda: False, on_start=lambda job: started.append(job["n"])
        )
        return started, {job["n"]: result for job, result in results}


def test_a_broken_worker_fails_one_job(toy: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    todo = ["wait", "square", "raise", "reject", "die", "be killed", "square"]
    started, found = run(toy, todo, 2)
    assert started == list(range(7))
    kind, broken = found[2].error.rsplit(" ", 1)
    assert kind == "RuntimeError: broken"
    assert {n: result.error for n, result in found.items() if result.error and n != 2} == {
        3: "'lr' must be positive",
        4: DIED,
        5: DIED,
    }
    done = {n: found[n].content for n in (0, 1, 6)}
    assert [content["n"] for content in done.values()] == [0, 1, 6]
    assert os.getpid() not in {content["pid"] for content in done.values()}
    assert found[6].content["pid"] != int(broken)  # that worker was replaced
    assert not any(content["torch"] for content in done.values())  # it would ignore the threads
    share = max(1, usable_cpus() // 2)
    assert {content["threads"] for content in done.values()} == {str(share)}
    out, err = capfd.readouterr()
    assert "printed" not in out  # stdout is for results
    assert 'raise RuntimeError(f"broken' in err


def test_a_worker_performs_many_jobs(toy: ModuleType) -> None:
    _, found = run(toy, ["square", "reject", "square"], 2)
    alone, many = run(toy, ["square"] * 5, 2)
    assert alone == list(range(5))
    assert 1 <= len({result.content["pid"] for result in many.values()}) <= 2
    assert found[1].error


@pytest.mark.parametrize("count", [1, 2])
def test_no_job_starts_after_stop(toy: ModuleType, count: int) -> None:
    jobs = [{"n": 1, "do": "die"}]
    with Pool(count) as pool:
        assert not list(pool.run(toy.perform, jobs, stop=lambda: True, on_start=print))


def test_a_job_in_this_process_fails_alone(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    _, found = run(toy, ["raise", "square"], 1)
    assert found[0].error == f"RuntimeError: broken {os.getpid()}"
    assert found[1].content["pid"] == os.getpid()


def test_closing_kills_running_workers(toy: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    jobs = [{"n": 0, "do": "square"}, {"n": 1, "do": "sleep", "file": str(file)}]
    with Pool(2) as pool:
        results = pool.run(toy.perform, jobs, stop=lambda: False, on_start=lambda _: None)
        next(results)
        pid = _pid(file)
        results.close()
    assert not _alive(pid)


def test_workers_stay_for_the_next_jobs(toy: ModuleType) -> None:
    seen: list[set[int]] = []
    with Pool(2) as pool:
        for _ in range(2):
            jobs = [{"n": n, "do": "square"} for n in range(4)]
            found = pool.run(toy.perform, jobs, stop=lambda: False, on_start=lambda _: None)
            seen.append({result.content["pid"] for _, result in found})
    assert seen[1] <= seen[0]
    assert not any(map(_alive, seen[0]))


PARENT = """
import sys, toy_jobs
from itemfold.experiments.suites.pool import Pool
if __name__ == "__main__":
    jobs = [{"n": n, "do": "sleep", "file": f"{sys.argv[1]}{n}"} for n in range(2)]
    with Pool(2) as pool:
        list(pool.run(toy_jobs.perform, jobs, stop=lambda: False, on_start=lambda _: None))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, toy: ModuleType, number: int) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "pid")]
    with sigint():
        parent = subprocess.Popen(
            command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )
    pids = [_pid(tmp_path / f"pid{n}") for n in range(2)]
    if number == signal.SIGINT:
        os.killpg(parent.pid, number)  # as a terminal does: to the parent and its workers
    else:
        parent.send_signal(number)
    assert parent.wait(60) != 0
    deadline = time.monotonic() + 30
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


def _pid(file: Path) -> int:
    """The process that has written its number to a file."""
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(file.read_text())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # a killed process whose parent is gone waits for init
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
