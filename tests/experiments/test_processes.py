"""Workers: one that breaks or dies fails only its own job."""

from pathlib import Path

from itemrec.experiments.suites.processes import perform_all

WORKER = """
import os
from itemrec.experiments.suites.processes import serve

def perform(job):
    print("noise on stdout is no answer")
    if job["do"] == "raise":
        raise RuntimeError("broken")
    if job["do"] == "die":
        os._exit(3)
    return {"square": job["n"] ** 2}

serve(perform)
"""


def test_a_broken_worker_fails_one_job(tmp_path: Path) -> None:
    (tmp_path / "toy_worker.py").write_text(WORKER)
    todo = ["square", "raise", "die", "square"]
    jobs = [{"n": n, "do": do} for n, do in enumerate(todo)]
    steps = list(
        perform_all(
            jobs,
            "toy_worker",
            1,
            environment={"PYTHONPATH": str(tmp_path)},
            stop=lambda: False,
        )
    )
    assert [(what, job["n"]) for what, job, _ in steps] == [
        (what, n) for n in range(4) for what in ("start", "end")
    ]
    answers = [answer for what, _, answer in steps if what == "end"]
    assert answers[0] == {"square": 0}
    assert answers[1]["error"] == "RuntimeError: broken"
    assert answers[2] == {"error": "the worker exited with status 3"}
    assert answers[3] == {"square": 9}


def test_no_job_starts_after_stop() -> None:
    jobs = [{"n": 1}]
    assert not list(perform_all(jobs, "absent_module", 2, environment={}, stop=lambda: True))
