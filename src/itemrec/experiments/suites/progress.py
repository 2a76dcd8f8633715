"""The progress of a suite: which runs are done, which are running, how long the rest may take."""

from __future__ import annotations

import time
from collections import defaultdict

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from itemrec.experiments.suites.jobs import name_of
from itemrec.experiments.suites.processes import Answer, Job
from itemrec.training.progress import duration


class Overview:
    """One line per finished run and, with several runs in parallel, one bar for all of them."""

    def __init__(self, todo: list[Job], jobs: int, metric: str, console: Console) -> None:
        self.total, self.jobs, self.metric, self.console = len(todo), jobs, metric, console
        self.done, self.running = 0, dict[str, float]()
        self.spent: dict[str, list[float]] = defaultdict(list)  # data set → seconds of each run
        self.waiting = [job["entry"] for job in todo]  # data sets of the runs that have not ended
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
        self.task: TaskID = self.bar.add_task("", total=self.total, note="")

    def start(self, job: Job) -> None:
        """A run started."""
        self.running[name_of(job)] = time.monotonic()
        self._show()
        if self.jobs == 1 and self.console.is_terminal:
            self.console.print(f"{name_of(job)} …", highlight=False, markup=False)

    def end(self, job: Job, answer: Answer) -> None:
        """A run ended, with or without success."""
        self.done += 1
        self.waiting.remove(job["entry"])
        began = self.running.pop(name_of(job))
        self.spent[job["entry"]].append(time.monotonic() - began)
        line = f"[{self.done}/{self.total}] {name_of(job)}: {self._outcome(answer)}"
        left = f" · {duration(self.left())} left" if self.waiting else ""
        self.console.print(line + left, highlight=False, markup=False, soft_wrap=True)
        self._show()

    def left(self) -> float:
        """Estimated seconds left, from the mean time of runs on the same data set or on all."""
        spent = [s for times in self.spent.values() for s in times]
        typical = sum(spent) / max(len(spent), 1)
        need = 0.0
        for entry in self.waiting:
            times = self.spent.get(entry)
            need += sum(times) / len(times) if times else typical
        now = time.monotonic()
        need -= sum(min(now - began, typical) for began in self.running.values())
        return max(need, 0.0) / min(self.jobs, max(len(self.waiting), 1))

    def _outcome(self, answer: Answer) -> str:
        if "error" in answer:
            return str(answer["error"])
        value = answer["run"]["test"][self.metric]
        return f"{self.metric} {value:.4f}, {answer['run']['seconds']['total']:.0f} s"

    def _show(self) -> None:
        note = f"{duration(self.left())} left · " if self.done else ""
        note += ", ".join(self.running)
        self.bar.update(self.task, completed=self.done, note=note)

    def __enter__(self) -> Overview:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
