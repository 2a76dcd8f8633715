"""Run the rows of suites: finished runs are skipped, interrupted runs continue."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from itemrec.errors import ItemrecError
from itemrec.experiments.suites import FOLDER
from itemrec.experiments.suites.dataset_counts import count_datasets
from itemrec.experiments.suites.example_lists import write_example_lists
from itemrec.experiments.suites.jobs import (
    is_done,
    make_jobs,
    name_of,
    perform_jobs,
    reuse_runs,
    with_data,
)
from itemrec.experiments.suites.options import Options
from itemrec.experiments.suites.paired_tests import write_tests
from itemrec.experiments.suites.processes import Job
from itemrec.experiments.suites.progress import Overview
from itemrec.experiments.suites.store import append_lines, read_store, row_line, tidy
from itemrec.experiments.suites.suite import Suite, load_suite
from itemrec.files import atomic
from itemrec.validation import lookup

OTHERS = ("datasets", "qualitative")  # tables that do not consist of rows


@dataclass(frozen=True)
class Outcome:
    """The outcome of the runs of a suite."""

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


def reproduce(
    suite: Suite, options: Options | None = None, console: Console | None = None
) -> Outcome:
    """Run rows × data sets × seeds and store the results in ``results/SUITE.jsonl``.

    A run counts as done if it is stored with the same settings and all columns.
    """
    started = time.monotonic()
    options, console = options or Options(), console or Console(stderr=True)
    options.check()
    everything, todo = _find_work(suite, options)
    todo, absent = with_data(todo, console)
    done = len(everything) - len(todo) - sum(job["entry"] in absent for job in everything)
    console.print(
        f"{suite.name}: {len(todo)} runs to do, {done} done", highlight=False, markup=False
    )
    if not suite.shipped:
        _keep_suite(suite, options.home)

    def late() -> bool:
        limit = options.time_limit
        return limit is not None and time.monotonic() - started >= limit

    ran, failed = _make_runs(suite, todo, options, late, console)
    store = read_store(options.home)
    for entry in dict.fromkeys(job["entry"] for job in everything):
        for note in write_tests(suite, entry, store, options.values):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    tidy(options.home)
    return Outcome(done, ran, failed, absent, len(todo) - ran - len(failed))


def reproduce_all(name: str, options: Options, console: Console) -> bool:
    """Run a suite or table, or with "all" every one but the smoke test; whether all succeeded."""
    started, fine = time.monotonic(), True
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
            found = reproduce(suites[each], own, console)
            console.print(f"{each}: {found}", highlight=False, markup=False)
            fine = fine and not found.failed
        elif rest is None or rest > 0:
            _reproduce_other(each, options, console)
    return fine


def _find_work(suite: Suite, options: Options) -> tuple[list[Job], list[Job]]:
    """All jobs, and those to do, ordered by seed so that finished rows can be compared."""
    cells = suite.cells(options.datasets, options.rows)
    everything = make_jobs(suite, cells, options)
    store = read_store(options.home)
    todo = [job for job in everything if not is_done(job, store)]
    if not suite.cost:  # if times matter, each suite measures its own
        todo = reuse_runs(todo, store)
    places = {cell.entry.key: n for n, cell in enumerate(cells)}
    return everything, sorted(todo, key=lambda job: (places[job["entry"]], job["seed"]))


def _make_runs(
    suite: Suite, todo: list[Job], options: Options, late: Callable[[], bool], console: Console
) -> tuple[int, dict[str, str]]:
    """Make and store the runs; returns how many succeeded, and which failed."""
    ran, failed = 0, {}
    with Overview(todo, options.jobs, suite.columns[-1], console) as overview:
        for event, job, answer in perform_jobs(todo, options.jobs, late):
            if event == "start":
                overview.start(job)
                continue
            if "error" in answer:
                failed[name_of(job)] = answer["error"]
            else:
                _keep_run(job, answer["run"], options.home)
                ran += 1
            overview.end(job, answer)
    return ran, failed


def _keep_run(job: Job, run: dict[str, object], home: Path) -> None:
    """Store a finished run, and only then remove its training state."""
    row = row_line(job["entry"], job["row"], job["seed"], job["id"])
    append_lines(home, job["suite"], {"kind": "run", **run}, row)
    shutil.rmtree(job["unfinished"], ignore_errors=True)


def _keep_suite(suite: Suite, home: Path) -> None:
    """Copy a user's own suite next to its results, because the pages need it."""
    target = home / f"{suite.name}.toml"
    if target.resolve() != suite.path:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic(target) as draft:
            draft.write_bytes(suite.path.read_bytes())


def _tables(name: str) -> list[str]:
    """The suites and other tables that a name refers to."""
    shipped = [file.stem for file in sorted(FOLDER.glob("*.toml"))]
    if name == "all":
        return ["datasets", *(each for each in shipped if each != "smoke"), "qualitative"]
    own = Path(name).suffix == ".toml" or Path(name).is_file()
    if not own and name not in (*OTHERS, *shipped):
        choices = ", ".join(["all", *OTHERS, *shipped])
        raise ItemrecError(f"'suite' must be a .toml file or one of {choices}, got {name!r}")
    return [name]


def _rows(
    name: str, suites: Mapping[str, Suite], rows: Sequence[str] | None
) -> dict[str, list[str] | None]:
    """The rows (None: all) that each suite has; suites without any of them are left out."""
    if rows is None:
        return dict.fromkeys(suites)
    if not suites:
        raise ItemrecError(f"'rows' cannot be chosen: the table {name} has none")
    known = dict.fromkeys(row for suite in suites.values() for row in suite.rows)
    for row in rows:
        lookup(known, "rows", row)
    found = {each: [row for row in rows if row in suite.rows] for each, suite in suites.items()}
    return {each: chosen for each, chosen in found.items() if chosen}


def _reproduce_other(name: str, options: Options, console: Console) -> None:
    if name == "datasets":
        count_datasets(
            options.home, datasets=options.datasets, data_root=options.data_root, console=console
        )
    else:
        write_example_lists(
            options.home,
            datasets=options.datasets,
            data_root=options.data_root,
            device=options.device,
            console=console,
        )
