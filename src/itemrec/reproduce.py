"""Run the rows of a suite: what is done is skipped, what was interrupted continues."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from itemrec.components import lookup
from itemrec.dataset_table import reproduce_datasets
from itemrec.datasets import cache_folder
from itemrec.devices import pick_device
from itemrec.environment import usable_cpus
from itemrec.errors import ItemrecError
from itemrec.files import atomic, check_folder
from itemrec.layers import Entry
from itemrec.progress import duration
from itemrec.qualitative import reproduce_qualitative
from itemrec.settled import changes
from itemrec.sharing import take_over
from itemrec.significance import write_tests
from itemrec.suite import FOLDER, Cell, Suite, load_suite
from itemrec.suite_run import identity, load_data, perform
from itemrec.workers import Answer, Job, perform_all


@dataclass(frozen=True)
class Outcome:
    """What became of the runs of a suite."""

    done: int = 0  # by earlier calls
    ran: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # run → reason
    absent: dict[str, str] = field(default_factory=dict)  # data set → reason
    left: int = 0  # not started, for lack of time


def reproduce(
    suite: Suite,
    *,
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    seeds: int | None = None,
    device: str = "auto",
    jobs: int = 1,
    data_root: str | Path | None = None,
    results: str | Path = "results",
    per_user: str | Path | None = None,
    time_limit: float | None = None,
    console: Console | None = None,
) -> Outcome:
    """Run rows × data sets × seeds and write ``results/SUITE/DATA-PROTOCOL/ROW-SEED.json``.

    A run is done when its file is there with the same settings and all columns. ``per_user`` holds
    the values of single users and unfinished runs. After ``time_limit`` seconds no further run is
    started.
    """
    _check(
        datasets=datasets,
        rows=rows,
        seeds=seeds,
        device=device,
        jobs=jobs,
        data_root=data_root,
        results=results,
        per_user=per_user,
        time_limit=time_limit,
    )
    started = time.monotonic()
    console = console or Console(stderr=True)
    home, values = Path(results), Path(per_user or cache_folder() / "suites")
    cells = suite.cells(datasets, rows)
    shared = {"device": device, "jobs": jobs, "columns": list(suite.columns), "progress": jobs == 1}
    shared["data_root"] = None if data_root is None else str(Path(data_root).expanduser().resolve())
    everything = [job for cell in cells for job in _jobs(suite, cell, home, values, seeds, shared)]
    todo = [job for job in everything if not is_done(job)]
    if not suite.cost:  # where times matter, each suite takes its own
        todo = take_over(todo, home, values)
    # Seed by seed, so that what is finished can be compared.
    places = {cell.entry.key: n for n, cell in enumerate(cells)}
    todo.sort(key=lambda job: (places[job["entry"]], job["seed"]))
    todo, absent = _present(todo, console)
    done = len(everything) - len(todo) - sum(job["entry"] in absent for job in everything)
    console.print(
        f"{suite.name}: {len(todo)} runs to do, {done} done", highlight=False, markup=False
    )
    if not suite.shipped:
        _keep_suite(suite, home)

    def late() -> bool:
        return time_limit is not None and time.monotonic() - started >= time_limit

    failed, ran = {}, 0
    with Overview(len(todo), jobs, suite.columns[-1], console) as overview:
        overview.expect(todo)
        steps = _one_by_one(todo, late) if jobs == 1 else _side_by_side(todo, jobs, late)
        for what, job, answer in steps:
            if what == "start":
                overview.start(job)
                continue
            ran += "error" not in answer
            if "error" in answer:
                failed[name_of(job)] = answer["error"]
            overview.end(job, answer)
    for entry in dict.fromkeys(cell.entry for cell in cells):
        for note in write_tests(suite, entry, home, values):
            console.print(note, highlight=False, markup=False, soft_wrap=True)
    return Outcome(done, ran, failed, absent, len(todo) - ran - len(failed))


def _check(
    *,
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    seeds: int | None = None,
    device: str = "auto",
    jobs: int = 1,
    data_root: str | Path | None = None,
    results: str | Path = "results",
    per_user: str | Path | None = None,
    time_limit: float | None = None,
) -> None:
    """Refuse what no run could be made with: each would fail or be skipped by itself."""
    for name, value in (("jobs", jobs), ("seeds", seeds)):
        if value is not None and value < 1:
            raise ItemrecError(f"'{name}' must be a positive integer, got {value}")
    for name, chosen in (("datasets", datasets), ("rows", rows)):
        if chosen is not None and not chosen:
            raise ItemrecError(f"'{name}' must name at least one, got none")
    if time_limit is not None and not time_limit >= 0:
        raise ItemrecError(f"'time_limit' must be at least 0, got {time_limit}")
    if data_root is not None and not Path(data_root).expanduser().is_dir():
        raise ItemrecError(f"'data_root' must be an existing folder, got '{data_root}'")
    for name, folder in (("results", results), ("per_user", per_user)):
        if folder is not None:
            check_folder(name, folder)
    pick_device(device)


OTHERS = ("datasets", "qualitative")  # tables that are not made of rows


def reproduce_all(name: str, *, console: Console, **options: Any) -> bool:
    """Run a suite or another table, or with "all" every one but the smoke test; whether all ran."""
    shipped = [file.stem for file in sorted(FOLDER.glob("*.toml"))]
    if name == "all":
        names = ["datasets", *(each for each in shipped if each != "smoke"), "qualitative"]
    else:
        names = [name]
        if not (
            name in (*OTHERS, *shipped) or Path(name).suffix == ".toml" or Path(name).is_file()
        ):
            choices = ", ".join(["all", *OTHERS, *shipped])
            raise ItemrecError(f"'suite' must be a .toml file or one of {choices}, got {name!r}")
    _check(**options)
    suites, fine = {each: load_suite(each) for each in names if each not in OTHERS}, True
    rows = options.pop("rows", None)
    own = _rows(name, suites, rows)
    for each, chosen in own.items():
        suites[each].cells(options.get("datasets"), chosen)  # refuses before the first table
    started, limit = time.monotonic(), options.pop("time_limit", None)
    for each in names if rows is None else own:
        rest = None if limit is None else max(limit - (time.monotonic() - started), 0.0)
        if each in suites:
            found = reproduce(
                suites[each], rows=own[each], time_limit=rest, console=console, **options
            )
            console.print(f"{each}: {_told(found)}", highlight=False, markup=False)
            fine = fine and not found.failed
        elif rest is None or rest > 0:
            home = Path(options.get("results", "results"))
            given = {key: options.get(key) for key in ("datasets", "data_root")}
            if each == "datasets":
                reproduce_datasets(home, **given, console=console)
            else:
                device = options.get("device", "auto")
                reproduce_qualitative(home, **given, device=device, console=console)
    return fine


def _rows(
    name: str, suites: Mapping[str, Suite], rows: Sequence[str] | None
) -> dict[str, list[str] | None]:
    """Which of the rows (None: all) each suite has; a suite that has none of them is left out."""
    if rows is None:
        return dict.fromkeys(suites)
    if not suites:
        raise ItemrecError(f"'rows' cannot be chosen: the table {name} has none")
    known = dict.fromkeys(row for suite in suites.values() for row in suite.rows)
    for row in rows:
        lookup(known, "rows", row)
    found = {each: [row for row in rows if row in suite.rows] for each, suite in suites.items()}
    return {each: chosen for each, chosen in found.items() if chosen}


def _told(found: Outcome) -> str:
    said = [f"{found.ran} runs made", f"{found.done} were done"]
    said += [f"{len(found.failed)} failed"] * bool(found.failed)
    said += [f"{found.left} not started: call again"] * bool(found.left)
    said += [f"{key} skipped" for key in found.absent]
    return ", ".join(said)


def place(results: Path, suite: str, entry: Entry, row: str, seed: int) -> Path:
    """Where the result of a run lies."""
    return results / suite / entry.folder / f"{row}-{seed}.json"


def is_done(job: Job) -> bool:
    """Whether the result is there with every column, its settings still those of the suite."""
    try:
        stored = json.loads(Path(job["result"]).read_text(encoding="utf-8"))
        whole = set(job["columns"]) <= set(stored["test"])
        return whole and not changes(stored["config"], job["config"])
    except (OSError, ValueError, KeyError):
        return False


def name_of(job: Job) -> str:
    """A run, in words."""
    return f"{job['entry']} {job['row']} seed {job['seed']}"


def _jobs(
    suite: Suite, cell: Cell, home: Path, values: Path, seeds: int | None, shared: dict[str, Any]
) -> Iterator[Job]:
    for seed in range(seeds or cell.seeds):
        config = cell.seeded(seed)
        run = identity(config)
        started = identity([config, shared["device"], shared["data_root"]])
        yield {
            **shared,
            "suite": suite.name,
            "row": cell.row,
            "entry": cell.entry.key,
            "seed": seed,
            "id": run,
            "config": config,
            "result": str(place(home, suite.name, cell.entry, cell.row, seed)),
            "per_user": str(
                place(values, suite.name, cell.entry, cell.row, seed).with_suffix(".npz")
            ),
            "unfinished": str(values / "unfinished" / started),
        }


def _present(todo: list[Job], console: Console) -> tuple[list[Job], dict[str, str]]:
    """The jobs whose data can be had, and why the others' cannot."""
    reasons: dict[str, str] = {}
    for job in {job["config"]["data"]["data"]: job for job in todo}.values():
        config = {"data": dict(job["config"]["data"])}
        if job["data_root"] is not None:
            config["data"]["data_root"] = job["data_root"]
        try:
            load_data(config)
        except ItemrecError as error:
            reasons[config["data"]["data"]] = str(error)
            console.print(f"skipped: {error}", highlight=False, markup=False, soft_wrap=True)
    absent = {
        job["entry"]: reasons[job["config"]["data"]["data"]]
        for job in todo
        if job["config"]["data"]["data"] in reasons
    }
    return [job for job in todo if job["entry"] not in absent], absent


def _keep_suite(suite: Suite, home: Path) -> None:
    """A suite of the user's own lies beside its results: the tables need it."""
    target = home / suite.name / f"{suite.name}.toml"
    if target.resolve() != suite.path:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic(target) as draft:
            draft.write_bytes(suite.path.read_bytes())


Step = tuple[str, Job, Answer]


def _one_by_one(todo: list[Job], late: Any) -> Iterator[Step]:
    for job in todo:
        if late():
            return
        yield "start", job, {}
        try:
            answer = perform(job)
        except Exception as error:  # it fails its own job only, as in a worker
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        yield "end", job, answer


def _side_by_side(todo: list[Job], jobs: int, late: Any) -> Iterator[Step]:
    threads = str(max(1, usable_cpus() // jobs))
    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
    yield from perform_all(todo, "itemrec.suite_run", jobs, environment=environment, stop=late)


class Overview:
    """How many runs are done, which are under way, and how long the rest may take."""

    def __init__(self, total: int, jobs: int, metric: str, console: Console) -> None:
        self.total, self.jobs, self.metric, self.console = total, jobs, metric, console
        self.done, self.running = 0, dict[str, float]()
        self.spent: dict[str, list[float]] = defaultdict(list)  # data set → seconds of each run
        self.waiting: list[str] = []  # the data sets of the runs that have not ended
        # A single run shows its own epochs; a bar above it would get in its way.
        self.bar = Progress(
            TextColumn("{task.completed}/{task.total} runs"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),  # it holds names of files
            console=console,
            disable=jobs == 1 or not console.is_terminal or not total,
            transient=True,
        )
        self.task: TaskID = self.bar.add_task("", total=total, note="")

    def expect(self, todo: list[Job]) -> None:
        """These runs are to come."""
        self.waiting = [job["entry"] for job in todo]

    def start(self, job: Job) -> None:
        """A run began."""
        self.running[name_of(job)] = time.monotonic()
        self._show()
        if self.jobs == 1 and self.console.is_terminal:
            self.console.print(f"{name_of(job)} …", highlight=False, markup=False)

    def end(self, job: Job, answer: Answer) -> None:
        """A run ended, well or not."""
        self.done += 1
        self.waiting.remove(job["entry"])
        began = self.running.pop(name_of(job))
        self.spent[job["entry"]].append(time.monotonic() - began)
        said = answer.get("error") or ", ".join(
            [f"{self.metric} {answer['test'][self.metric]:.4f}", f"{answer['seconds']:.0f} s"]
        )
        line = f"[{self.done}/{self.total}] {name_of(job)}: {said}"
        left = f" · {duration(self.left())} left" if self.waiting else ""
        self.console.print(line + left, highlight=False, markup=False, soft_wrap=True)
        self._show()

    def left(self) -> float:
        """Seconds still to go: a run takes what those on its data set took, else what any did."""
        spent = [s for times in self.spent.values() for s in times]
        usual = sum(spent) / max(len(spent), 1)
        need = 0.0
        for entry in self.waiting:
            times = self.spent.get(entry)
            need += sum(times) / len(times) if times else usual
        now = time.monotonic()
        need -= sum(min(now - began, usual) for began in self.running.values())
        return max(need, 0.0) / min(self.jobs, max(len(self.waiting), 1))

    def _show(self) -> None:
        note = f"{duration(self.left())} left · " if self.done else ""
        note += ", ".join(self.running)
        self.bar.update(self.task, completed=self.done, note=note)

    def __enter__(self) -> Overview:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()
