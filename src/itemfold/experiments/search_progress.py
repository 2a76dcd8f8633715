"""The progress of a hyper-parameter search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from itemfold.experiments.search_folder import Trial, best_trial
from itemfold.training.progress import duration


class TrialBar:
    """Trials, the best value and the time left; without a terminal, one line per trial."""

    def __init__(self, done: int, trials: int, metric: str, *, show: bool) -> None:
        self.first, self.trials, self.metric = done, trials, metric
        self.started, self.console = time.perf_counter(), Console(stderr=True)
        self.log = show and not self.console.is_terminal
        self.bar = Progress(
            TextColumn("{task.completed}/{task.total} trials"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self.console,
            disable=not show or self.log,
            transient=True,
        )
        self.task = self.bar.add_task("", total=trials, completed=done, note="")

    def update(self, done: Sequence[Trial]) -> None:
        """Show the current state of the search."""
        pace = (time.perf_counter() - self.started) / (len(done) - self.first)
        note = f"{duration(pace * (self.trials - len(done)))} left"
        if any(trial.value is not None for trial in done):
            best = best_trial(done)
            note = f"best {self.metric} {best.value:.4f} (trial {best.number}) · {note}"
        self.bar.update(self.task, completed=len(done), note=note)
        if self.log:
            last = done[-1]
            outcome = last.error or f"{self.metric} {last.value:.4f}"
            tried = [f"{k} {v}" for k, v in last.settings.items() if v is not None]
            shown = [", ".join(tried)] if tried else []
            parts = [f"trial {last.number}: {outcome}", *shown, note]
            line = f"[{len(done)}/{self.trials}] " + " · ".join(parts)
            self.console.print(line, soft_wrap=True, highlight=False, markup=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
