"""Run the rows of suites: finished runs are skipped, interrupted runs continue."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from itemfold.errors import ItemfoldError
from itemfold.experiments.suites.jobs import SuiteJob
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.other_tables import count_datasets, write_example_lists
from itemfold.experiments.suites.paired_tests import write_tests
from itemfold.experiments.suites.pool import Pool
from itemfold.experiments.suites.progress import SuiteProgress
from itemfold.experiments.suites.store import append_lines, read_store, row_line, tidy
from itemfold.experiments.suites.suite import Suite, load_suite, shipped_suites
from itemfold.experiments.suites.worker import load_data, perform_job
from itemfold.files import atomic
from itemfold.validation import lookup

OTHERS = ("datasets", "qualitative")  # tables that are not suites


@dataclass(frozen=True)
class SuiteOutcome:
    """The numbers of runs of a suite that were made, failed or remain."""

    done: int = 0  # in earlier calls
    ran: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # run → reason
    absent: dict[str, str] = field(default_factory=dict)  # data set → reason
    left: int = 0  # not started because of the time limit

    def __str__(self) -> str:
        parts = [f"{self.ran} runs finished", f"{self.done} already done"]
        parts += [f"{len(self.failed)} failed"] * bool(self.failed)
        parts += [f"{self.left} not started: call again"] * bool(self.left)
        parts += [f"{key} skipped" for key in self.absent]
        return ", ".join(parts)


def run_tables(name: str, options: Options, console: Console) -> bool:
    """Run a suite or table, or with "all" every one but the smoke test; whether all succeeded."""
    started, succeeded = time.monotonic(), True
    names = _tables(name)
    options.check()
    suites = {each: load_suite(each) for each in names if each not in OTHERS}
    rows = _rows(name, suites, options.rows)
    for each, chosen in rows.items():
        suites[each].cells(options.datasets, chosen)  # raises errors before the first table is run
    for each in names if options.rows is None else rows:
        rest = options.time_limit
        if rest is not None:
            rest = max(rest - (time.monotonic() - started), 0.0)
        if each in suites:
            own = replace(options, rows=rows[each], time_limit=rest)
            outcome = run_suite(suites[each], own, console)
            console.print(f"{each}: {outcome}", highlight=False, markup=False)
            succeeded = succeeded and not outcome.failed
        elif rest == 0:
            continue
        elif each == "datasets":
            count_datasets(options, console)
        else:
            write_example_lists(options, console)
    return succeeded


def run_suite(suite: Suite, options: Options, console: Console) -> SuiteOutcome:
    """Run rows × data sets × seeds, store the results in ``results/SUITE.jsonl``, and test them.

    A run is done if it is stored with the same settings and all columns.
    """

    with Pool(options.jobs) as pool:
        # if times matter, each suite measures its own
        outcome = make_runs(suite, options, console, pool, reuse=not suite.cost)
    entries = [cell.entry.key for cell in suite.cells(options.datasets, options.rows)]
    store_tests(suite, entries, options, console)
    return outcome


def make_runs(
    suite: Suite, options: Options, console: Console, pool: Pool, *, reuse: bool
) -> SuiteOutcome:
    """Make the runs of a suite that are not stored, with the workers of a pool.

    With ``reuse``, a row takes the run of another suite with the same settings.
    """
    started = time.monotonic()
    options.check()
    everything, todo = _find_work(suite, options, reuse)
    absent = _absent_data(todo, console)
    todo = [job for job in todo if job.entry not in absent]
    done = len(everything) - len(todo) - sum(job.entry in absent for job in everything)
    console.print(
        f"{suite.name}: {len(todo)} runs to do, {done} done", highlight=False, markup=False
    )
    copy = options.home / f"{suite.name}.toml"
    if not suite.shipped and copy.resolve() != suite.path:  # the pages of results read it there
        copy.parent.mkdir(parents=True, exist_ok=True)
        with atomic(copy) as draft:
            draft.write_bytes(suite.path.read_bytes())

    def stop() -> bool:
        limit = options.time_limit
        return limit is not None and time.monotonic() - started >= limit

    ran, failed = _make_all(suite, todo, options, pool, stop, console)
    return SuiteOutcome(done, ran, failed, absent, len(todo) - ran - len(failed))


def store_tests(suite: Suite, entries: Sequence[str], options: Options, console: Console) -> None:
    """Store the paired tests of data sets, and sort the files of results."""
    store = read_store(options.home)
    for entry in dict.fromkeys(entries):
        for note in write_tests(suite, entry, store, options.values):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    tidy(options.home)


def _find_work(
    suite: Suite, options: Options, reuse: bool
) -> tuple[list[SuiteJob], list[SuiteJob]]:
    """All jobs, and the remaining ones ordered by seed, so that complete rows can be compared."""
    cells = suite.cells(options.datasets, options.rows)
    everything = [
        SuiteJob(suite, cell, seed, options)
        for cell in cells
        for seed in range(options.seeds or cell.seeds)
    ]
    store = read_store(options.home)
    todo = [job for job in everything if not job.is_done(store)]
    if reuse:
        if reused := [row_line(*job.key, job.id) for job in todo if job.is_reusable(store)]:
            append_lines(options.home, suite.name, *reused)
        todo = [job for job in todo if not job.is_reusable(store)]
    places = {cell.entry.key: n for n, cell in enumerate(cells)}
    return everything, sorted(todo, key=lambda job: (places[job.entry], job.seed))


def _absent_data(jobs: Sequence[SuiteJob], console: Console) -> dict[str, str]:
    """The entries whose data cannot be loaded, with the reasons, which are also printed."""
    reasons: dict[str, str] = {}
    names = {job.entry: job.config["data"]["data"] for job in jobs}
    for name, job in {names[job.entry]: job for job in jobs}.items():
        try:
            load_data(job.local_config)
        except ItemfoldError as error:
            reasons[name] = str(error)
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
    return {entry: reasons[name] for entry, name in names.items() if name in reasons}


def _make_all(
    suite: Suite,
    todo: list[SuiteJob],
    options: Options,
    pool: Pool,
    stop: Callable[[], bool],
    console: Console,
) -> tuple[int, dict[str, str]]:
    """Make the runs and store each when it ends; returns the number of successes, and failures."""
    ran, failed = 0, {}
    with (
        SuiteProgress(todo, options.jobs, suite.columns[-1], console) as progress,
        closing(pool.run(perform_job, todo, stop=stop, on_start=progress.start)) as results,
    ):
        for job, result in results:
            if result.error:
                failed[job.name] = result.error
            else:
                run = {"kind": "run", **result.content}
                append_lines(options.home, suite.name, run, row_line(*job.key, job.id))
                shutil.rmtree(job.unfinished, ignore_errors=True)  # only after it is stored
                ran += 1
            progress.end(job, result)
    return ran, failed


def _tables(name: str) -> list[str]:
    """The suites and other tables that a name refers to."""
    shipped = list(shipped_suites())
    if name == "all":
        return ["datasets", *(each for each in shipped if each != "smoke"), "qualitative"]
    own = Path(name).suffix == ".toml" or Path(name).is_file()
    if not own and name not in (*OTHERS, *shipped):
        choices = ", ".join(["all", *OTHERS, *shipped])
        raise ItemfoldError(f"'suite' must be a .toml file or one of {choices}, got {name!r}")
    return [name]


def _rows(
    name: str, suites: Mapping[str, Suite], rows: Sequence[str] | None
) -> dict[str, list[str] | None]:
    """The selected rows (None: all) of each suite; suites without any of them are skipped."""
    if rows is None:
        return dict.fromkeys(suites)
    if not suites:
        raise ItemfoldError(f"'rows' must be left out: the table {name} has no rows")
    known = dict.fromkeys(row for suite in suites.values() for row in suite.rows)
    for row in rows:
        lookup(known, "rows", row)
    found = {each: [row for row in rows if row in suite.rows] for each, suite in suites.items()}
    return {each: chosen for each, chosen in found.items() if chosen}
