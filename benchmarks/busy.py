"""ITEM steps alone and next to a process that keeps one core busy, with two wait policies.

Each training is a process of its own on `--threads` cores; the two take turns. `short` is the
setting of the package: waiting threads spin for a moment, then sleep. `long` is OpenMP's default:
they spin for milliseconds. With one core taken, a step should lose that core's share and no more;
with none taken, the short wait should cost nothing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from common import Training, Verdicts, begin, hardware, parser

import numpy as np

from itemfold.losses import item_ndcg
from itemfold.settings.schema import TrainConfig

LONG = {"GOMP_SPINCOUNT": "300000"}  # the default of libgomp


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.add_argument("--worker", action="store_true", help="used by the parent process")
    options = arguments.parse_args()
    if options.worker:
        work(options)
        return
    print(f"{hardware(options.threads)}; load average {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        stack.enter_context(on_cpus(options.threads))
        sides = {
            name: stack.enter_context(Worker(options, settings))
            for name, settings in (("short", {}), ("long", LONG))
        }
        spinner = stack.enter_context(Spinner())
        seconds = take_turns(sides, spinner, 2 if options.quick else 20)
    for name in sides:
        alone, busy = (seconds[name, state] for state in ("alone", "busy"))
        print(
            f"{name:>6} waits: {1e3 * alone:7.1f} ms per step alone, {1e3 * busy:7.1f} ms with one "
            f"core busy, {busy / alone:.2f} times"
        )
    verdicts = Verdicts()
    verdicts.also(
        "short_over_long_alone", seconds["short", "alone"] / seconds["long", "alone"], 1.05
    )
    verdicts.last("busy_over_alone", seconds["short", "busy"] / seconds["short", "alone"], 2.2)


def take_turns(
    sides: dict[str, Worker], spinner: Spinner, rounds: int, steps: int = 2
) -> dict[tuple[str, str], float]:
    """Median seconds per step of each side, alone and next to the spinner."""
    spent: dict[tuple[str, str], list[float]] = {
        (name, state): [] for name in sides for state in ("alone", "busy")
    }
    for turn in range(rounds):
        order = list(sides) if turn % 2 else list(sides)[::-1]
        for name in order:
            spent[name, "alone"].append(sides[name].step(steps))
        with spinner.spinning():
            for name in order:
                spent[name, "busy"].append(sides[name].step(steps))
    return {key: float(np.median(seconds)) for key, seconds in spent.items()}


@contextmanager
def on_cpus(count: int) -> Iterator[None]:
    """Processes started within this context run on this many CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Spinner:
    """A process that keeps one core busy on request."""

    def __enter__(self) -> Spinner:
        # it ends with this process, also if that is killed
        code = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
        self.process = subprocess.Popen([sys.executable, "-c", code])
        self.process.send_signal(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def spinning(self) -> Iterator[None]:
        """The process runs within this context."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)


class Worker:
    """Training in a process whose OpenMP has these settings and no others."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, str]) -> None:
        command = [sys.executable, __file__, options.data, "--worker"]
        command += ["--threads", str(options.threads)]
        command += ["--data-root", options.data_root] if options.data_root else []
        others = ("OMP_", "GOMP_", "KMP_", "MKL_")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(others)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, **settings},
        )

    def __enter__(self) -> Worker:
        assert self.process.stdout
        while not self.process.stdout.readline().startswith("ready"):
            if self.process.poll() is not None:
                raise SystemExit("a worker ended before it was ready")
        self.step(2)  # warm
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def step(self, count: int) -> float:
        """Train this many steps; returns seconds per step."""
        assert self.process.stdin
        assert self.process.stdout
        print(count, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def work(options: argparse.Namespace) -> None:
    """Train as the package does, as many steps as each line of stdin requests."""
    split = begin(options)
    training = Training(split.train, item_ndcg(tau=1.5), TrainConfig(positives=5, n_negatives=200))
    keys = itertools.cycle(training.keys())
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            training.step(next(keys))
        print((time.perf_counter() - start) / int(line), flush=True)


if __name__ == "__main__":
    main()
