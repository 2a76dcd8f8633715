"""The progress of a suite: finished and running runs, and the estimated time left."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from itemfold.experiments.suites.jobs import SuiteJob
from itemfold.experiments.suites.pool import JobResult
from itemfold.training.progress import duration


class SuiteProgress:
    """One line per finished run and, with several runs in parallel, one bar for all of them."""

    def __init__(self, todo: list[SuiteJob], jobs: int, metric: str, console: Console) -> None:
        self.total, self.jobs, self.metric, self.console = len(todo), jobs, metric, console
        self.done, self.running = 0, dict[str, float]()
        self.spent: dict[str, list[float]] = defaultdict(list)  # data set → seconds of each run
        self.waiting = [job.entry for job in todo]  # data sets of the runs that have not ended
        # A single run shows its own epochs; another bar would interfere.
        self.bar = Progress(
            TextColumn("{task.completed}/{task.total} runs"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),  # it contains file names
            console=console,
            disable=jobs == 1 or not console.is_terminal or not todo,
            transient=True,
        )
        self.task = self.bar.add_task("", total=self.total, note="")

    def start(self, job: SuiteJob) -> None:
        """A run started."""
        self.running[job.name] = time.monotonic()
        self._update_bar()
        if self.jobs == 1 and self.console.is_terminal:
            self.console.print(f"{job.name} …", highlight=False, markup=False)

    def end(self, job: SuiteJob, result: JobResult) -> None:
        """A run succeeded or failed."""
        self.done += 1
        self.waiting.remove(job.entry)
        self.spent[job.entry].append(time.monotonic() - self.running.pop(job.name))
        text, run = result.error, result.content
        if not text:
            value, seconds = run["test"][self.metric], run["seconds"]["total"]
            text = f"{self.metric} {value:.4f}, {seconds:.0f} s"
        line = f"[{self.done}/{self.total}] {job.name}: {text}"
        left = f" · {duration(self.seconds_left())} left" if self.waiting else ""
        self.console.print(line + left, highlight=False, markup=False, soft_wrap=True)
        self._update_bar()

    def seconds_left(self) -> float:
        """An estimate from the mean time of the runs on the same data set, or on all."""
        spent = [s for times in self.spent.values() for s in times]
        typical = sum(spent) / max(len(spent), 1)
        need = 0.0
        for entry in self.waiting:
            times = self.spent.get(entry)
            need += sum(times) / len(times) if times else typical
        now = time.monotonic()
        need -= sum(min(now - began, typical) for began in self.running.values())
        return max(need, 0.0) / min(self.jobs, max(len(self.waiting), 1))

    def _update_bar(self) -> None:
        note = f"{duration(self.seconds_left())} left · " if self.done else ""
        note += ", ".join(self.running)
        self.bar.update(self.task, completed=self.done, note=note)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
