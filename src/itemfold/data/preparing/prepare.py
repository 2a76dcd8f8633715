"""`prepare`: convert files of any size to a folder of arrays that `load` maps.

The steps, each recorded when it is done: check and stage the rows of some files; sort the ids;
number the ids in the rows and divide the rows into buckets of users; append the pairs of each
bucket to the arrays.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from itemfold.data.columns.time_units import unit_note
from itemfold.data.merging import dotted_note
from itemfold.data.preparing import finish, rows
from itemfold.data.preparing.conversion import open_input
from itemfold.data.preparing.expressions import add_functions, day_first, final_id
from itemfold.data.preparing.inputs import Input, find_inputs, parquet, same_columns
from itemfold.data.preparing.pairs import (
    Merging,
    Numbering,
    bucket_limits,
    write_buckets,
    write_pairs,
    write_sorted_ids,
)
from itemfold.data.preparing.prepared import (
    MANIFEST,
    STATE,
    Prepared,
    prepared_facts,
    read_manifest,
)
from itemfold.data.preparing.rows import StagingPlan
from itemfold.data.preparing.work import KeptError, PrepareProgress, StepFacts, Work, check_request
from itemfold.data.readers.files import RowRules
from itemfold.data.readers.frames import first_line
from itemfold.data.weights import Weighting, duration_text
from itemfold.environment import need_packages
from itemfold.errors import ItemfoldError
from itemfold.files import check_folder, locked
from itemfold.threads import usable_cpus
from itemfold.validation import is_number, positive_integer

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
LEAST_MEMORY = 500 * 10**6
PROGRAM = 150 * 10**6  # bytes of Python and its libraries
SHARE = 0.6  # of the rest for DuckDB; arrays, and what DuckDB does not count, need the others
BYTES_PER_ROW = 500  # of all memory, for each row of a bucket; sorting takes about 120
PART_BYTES, PART_FILES = 2**28, 64  # most bytes and files that are read in one step


def prepare(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    memory: str | int = "4GB",
    threads: int | None = None,
    user: str | int | None = None,
    item: str | int | None = None,
    rating: str | int | None = None,
    time: str | int | None = None,
    min_rating: float | None = None,
    skip_bad_rows: bool = False,
    weight: str | int | None = None,
    half_life: str | dt.timedelta | None = None,
    weight_transform: Literal["log", "none"] | None = None,
    duplicates: Literal["merge", "sum"] = "merge",
    header: bool | None = None,
    progress: PrepareProgress | None = None,
) -> Prepared:
    """Prepare tables that may be larger than memory as a folder for `load`.

    `load(out)` returns the interactions that `read` would return for the files, with the same
    fingerprint, but maps the arrays from disk. Repeat an interrupted call to continue it, even
    after `kill -9`. Requires the package duckdb.

    Args:
        files: Parquet, text or JSON files, patterns such as "plays/*/*.parquet", or folders with
            such files. A folder called `name=value` adds a column.
        out: The folder to write.
        memory: Memory limit, such as "4GB". Anything larger is spilled to disk, inside `out`.
        threads: Number of threads; default: all CPUs.
        user: Name of the user column, as in `read`; likewise for the other columns.
        item: The item column.
        rating: The rating column.
        time: The time column.
        min_rating: Keep ratings of at least this value.
        skip_bad_rows: Leave out rows with a missing or invalid value; by default they raise an
            error.
        weight: The weight column.
        half_life: Time after which the weight of an interaction halves.
        weight_transform: "log" or "none".
        duplicates: "merge" or "sum".
        header: Whether the first line of a text file has the names of its columns; default:
            recognised by its content.
        progress: Called with the phase, its finished steps, all its steps, and its seconds.

    Returns:
        The counts of the folder.

    Raises:
        ItemfoldError: A file cannot be read or has bad rows, the folder holds other data, or duckdb
            is not installed.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import itemfold as ir
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "plays.csv").write_text("user_id,item_id\\nann,x\\nbob,x\\nann,x\\n")
        >>> found = ir.prepare(folder / "plays.csv", folder / "plays")
        >>> found.users, found.interactions, found.duplicates
        (2, 2, 1)
        >>> ir.load(folder / "plays").fingerprint == ir.read(folder / "plays.csv").fingerprint
        True
    """
    names = {"user": user, "item": item, "rating": rating, "time": time, "weight": weight}
    weighting = Weighting(weight, duration_text(half_life), weight_transform, duplicates)
    if min_rating is not None and not is_number(min_rating):
        raise ItemfoldError(f"'min_rating' must be a number, got {min_rating!r}")
    if not isinstance(skip_bad_rows, bool):
        raise ItemfoldError(f"'skip_bad_rows' must be true or false, got {skip_bad_rows!r}")
    threads = usable_cpus() if threads is None else threads
    limits = memory_bytes(memory), positive_integer("threads", threads)
    need_packages("prepare", ["duckdb"])
    folder = check_folder("out", out)
    ours = any((folder / name).exists() for name in (MANIFEST, STATE.parent))
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise ItemfoldError(f"'out' must be a new or an empty folder, got '{folder}'")
    inputs = find_inputs(files, without=folder.resolve())
    settings = {**names, **weighting.settings(), "min_rating": min_rating}
    settings |= {"skip_bad_rows": skip_bad_rows or None, "header": header}
    given = {name: value for name, value in settings.items() if value is not None}
    stamps = [input_.stamp() for input_ in inputs]
    with _claimed(folder):
        request = {"settings": given, "inputs": stamps}
        if (folder / MANIFEST).is_file():  # finished before
            manifest = read_manifest(folder)
            check_request(folder, {name: manifest.get(name) for name in request}, request)
            Work.clear(folder)  # left by a process that was killed at the very end
            return prepared_facts(folder, manifest)
        work = Work(folder, request, progress)
        with _connected(work, *limits) as connection:
            rules = RowRules(names, skip_bad_rows, header)
            job = _Job(connection, work, inputs, rules, weighting, min_rating)
            found = job.run(limits[0])
        finish.publish(work, folder, {**request, **found})
        Work.clear(folder)
    return prepared_facts(folder, read_manifest(folder))


def memory_bytes(memory: Any) -> int:
    """The bytes of a size such as 4GB or 500MB.

    >>> memory_bytes("4GB"), memory_bytes("1.5 GiB")
    (4000000000, 1610612736)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?", str(memory).strip())
    if isinstance(memory, bool) or not found:
        raise ItemfoldError(f"'memory' must be a size such as 4GB or 500MB, got {memory!r}")
    unit = UNITS[found[2].upper()]
    if found[3]:
        unit = 2 ** (10 * list(UNITS).index(found[2].upper()))
    size = int(float(found[1]) * unit)
    if size < LEAST_MEMORY:
        raise ItemfoldError(f"'memory' must be at least {LEAST_MEMORY // 10**6}MB, got {memory!r}")
    return size


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Lock the folder; bad input leaves nothing behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        try:
            yield
        except KeptError:
            raise
        except ItemfoldError:
            Work.clear(folder)
            if not any(folder.iterdir()):
                folder.rmdir()
            raise


@contextmanager
def _connected(work: Work, memory: int, threads: int) -> Iterator[Any]:
    """A DuckDB connection within the memory limit; its errors become `ItemfoldError`."""
    import duckdb

    spill = work.fresh("spill")
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{int((memory - PROGRAM) * SHARE)}B",
        "temp_directory": str(spill),
        "threads": threads,
        "enable_external_file_cache": False,  # the system caches files
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with duckdb.connect(config=config) as connection:
        connection.execute("SET enable_progress_bar = false")
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise KeptError(
                f"'memory' must be larger: {memory / 1e9:.3g} GB are not enough for this data with "
                f"{threads} threads ({first_line(error)})"
            ) from error
        except duckdb.IOException as error:
            if (code := rows.write_problem(error)) is not None:
                raise OSError(code, os.strerror(code), str(work.folder)) from error
            raise KeptError(f"a file cannot be read or written: {first_line(error)}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            # numpy raises this where it could write only a part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(work.folder)) from error


class _Job:
    """The steps of one preparation."""

    def __init__(
        self,
        connection: Any,
        work: Work,
        inputs: list[Input],
        rules: RowRules,
        weighting: Weighting,
        min_rating: float | None,
    ) -> None:
        self.connection, self.work = connection, work
        self.weighting, self.min_rating = weighting, min_rating
        names = rules.names
        tables = [open_input(connection, input_, rules, work, n) for n, input_ in enumerate(inputs)]
        same_columns(tables)
        add_functions(connection, day_first(connection, tables))
        needs = {"time": "half_life"} if weighting.half_life is not None else {}
        needs |= {"rating": "min_rating"} if min_rating is not None else {}
        self.plan = StagingPlan(tables, names, rules.skip, weighting.duplicates == "sum", needs)
        rows.check_needs(self.plan, left_out={})

    def run(self, memory: int) -> StepFacts:
        """Run all steps that are not done yet; returns the counts for the manifest."""
        work, connection = self.work, self.connection
        n_parts, facts = self._stage()
        counts = self._sort_ids(n_parts, facts)
        numbering = self._numbering(facts, (memory - PROGRAM) // BYTES_PER_ROW)
        for n in range(n_parts):
            step = partial(write_buckets, connection, work, n, numbering)
            work.once("numbers", n, n_parts, step)
            (work.folder / f"rows-{n}.parquet").unlink(missing_ok=True)
        merged = self._merge(numbering, counts, facts)
        final = work.once("ids", 0, 2, lambda: finish.renumber(connection, work, counts))
        unit = facts.get("time_unit", "seconds")
        stamp = work.once("ids", 1, 2, lambda: finish.find_fingerprint(connection, work, final))
        return {
            "users": final["users"],
            "items": final["items"],
            "interactions": merged["pairs"],
            "rows": facts["rows"],
            "duplicates": merged["duplicates"],
            "fingerprint": stamp["fingerprint"],
            "weighting": str(self.weighting),
            "left_out": facts["left_out"],
            "skipped": facts["skipped"],
            "remarks": [
                *dict.fromkeys(remark for table in self.plan.tables for remark in table.remarks),
                *map(dotted_note, facts.get("dotted", ())),
                *([unit_note(unit)] if unit != "seconds" else []),
            ],
        }

    def _stage(self) -> tuple[int, StepFacts]:
        """Check and store the rows; returns the number of parts, and the facts of all rows."""
        work, groups = self.work, rows.groups_of(self.plan.tables, PART_BYTES, PART_FILES)
        parts = [
            work.once(
                "rows",
                n,
                len(groups),
                partial(rows.stage, self.connection, self.plan, group, work, n),
            )
            for n, group in enumerate(groups)
        ]
        summarise = partial(rows.summarise, self.connection, self.plan, parts)
        return len(parts), work.once("summary", 0, 1, summarise)

    def _final_id(self, facts: StepFacts, role: str) -> str:
        return final_id(role, self.plan.held_as(role), facts[f"{role}_whole"])

    def _sort_ids(self, n_parts: int, facts: StepFacts) -> dict[str, int]:
        """Sort the ids of users and of items; returns their numbers."""
        paths = [self.work.folder / f"rows-{n}.parquet" for n in range(n_parts)]
        source = f"{parquet(*paths)} WHERE {rows.used_rows(self.plan, facts['bad'])}"
        found = {}
        for n, role in enumerate(rows.IDS):
            expression = self._final_id(facts, role)
            step = partial(write_sorted_ids, self.connection, self.work, role, expression, source)
            found[f"{role}s"] = self.work.once("sorting ids", n, 2, step)["count"]
        return found

    def _numbering(self, facts: StepFacts, most_rows: int) -> Numbering:
        def limits() -> StepFacts:
            path = self.work.folder / "users.parquet"
            return {"limits": bucket_limits(self.connection, path, most_rows).tolist()}

        found = self.work.once("buckets", 0, 1, limits)
        used = [role for role in self.plan.numbers if role not in facts["left_out"]]
        return Numbering(
            user=self._final_id(facts, "user"),
            item=self._final_id(facts, "item"),
            columns=used,
            condition=rows.used_rows(self.plan, facts["bad"]),
            limits=found["limits"],
            in_order=self.plan.in_order,
        )

    def _merge(self, numbering: Numbering, counts: dict[str, int], facts: StepFacts) -> StepFacts:
        """Write the pairs, bucket by bucket; returns the facts of the last bucket, which add up."""
        unit = facts.get("time_unit", "seconds")  # begun by release 0.2: without one
        merging = Merging(counts["items"], self.weighting, facts["latest"], self.min_rating, unit)
        total: StepFacts = {}
        buckets = len(numbering.limits) - 1
        for n in range(buckets):
            step = partial(write_pairs, self.connection, self.work, n, numbering, merging, total)
            total = self.work.once("pairs", n, buckets, step)
            for folder in self.work.folder.glob(f"buckets-*/bucket={n}"):
                shutil.rmtree(folder)
        if not total["pairs"]:
            low, high = total["lowest"], total["highest"]
            raise ItemfoldError(
                f"'min_rating' must be at most {high:g}, the best rating in these files "
                f"(they run from {low:g}), got {self.min_rating:g}"
            )
        return total
