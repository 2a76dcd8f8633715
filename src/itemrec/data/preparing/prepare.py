"""`prepare`: files of any size become a folder that `load` maps instead of reading it.

The steps, each recorded when it is done: rows of some files are checked and stored; ids are sorted;
rows get the numbers of their ids and are divided into buckets of users; the pairs of each bucket
are appended to the arrays.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from itemrec.data import prepared
from itemrec.data.columns import Names
from itemrec.data.prepared import MANIFEST, Prepared, facts_of, read_manifest
from itemrec.data.preparing import finish, rows
from itemrec.data.preparing.expressions import add_functions, final_id
from itemrec.data.preparing.ids import bucket_limits, write_ids
from itemrec.data.preparing.inputs import Input, find_inputs, open_table, parquet, same_columns
from itemrec.data.preparing.pairs import (
    Merging,
    Numbering,
    remove_bucket,
    write_buckets,
    write_pairs,
)
from itemrec.data.preparing.rows import Plan
from itemrec.data.preparing.work import Facts, KeptError, Report, Work, check_request
from itemrec.data.weights import Weighting, duration_text
from itemrec.environment import need_packages
from itemrec.errors import ItemrecError
from itemrec.files import check_folder, locked
from itemrec.threads import usable_cpus
from itemrec.validation import is_number, positive_integer

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
LEAST_MEMORY = 500 * 10**6
PROGRAM = 150 * 10**6  # bytes of Python and its libraries
SHARE = 0.6  # of the rest for DuckDB; the others are for arrays, and for what DuckDB does not count
BYTES_PER_ROW = 500  # of all memory, for each row of a bucket; sorting one takes some 120
PART_BYTES, PART_FILES = 2**28, 64  # of the files that are read in one step


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
    progress: Report | None = None,
) -> Prepared:
    """Turn tables that need not fit into memory into a folder, which is data for all else.

    `load(out)` then gives the interactions that `read` would give for the files, with the same
    fingerprint, but its arrays are mapped from disk. A call that was interrupted, even by
    `kill -9`, is continued by the same call. It needs the package duckdb.

    Args:
        files: Parquet or text files, patterns such as "plays/*/*.parquet", or folders, whose files
            are all taken. Folders called `name=value` give a column.
        out: The folder to write.
        memory: How much memory may be used, such as "4GB". What does not fit goes to the disk,
            inside `out`.
        threads: Number of threads; by default all CPUs.
        user: Name of the user column, as in `read`; likewise the following ones.
        item: The item column.
        rating: The rating column.
        time: The time column.
        min_rating: Keep ratings of at least this value.
        skip_bad_rows: Leave out rows with a missing or invalid value; by default they are an error.
        weight: The weight column.
        half_life: Time after which an interaction counts half.
        weight_transform: "log" or "none".
        duplicates: "merge" or "sum".
        progress: Called with the phase, its finished steps, all its steps, and its seconds.

    Returns:
        The counts of the folder.

    Raises:
        ItemrecError: A file cannot be read or has bad rows, the folder holds other data, or duckdb
            is not installed.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import itemrec as ir
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
        raise ItemrecError(f"'min_rating' must be a number, got {min_rating!r}")
    if not isinstance(skip_bad_rows, bool):
        raise ItemrecError(f"'skip_bad_rows' must be true or false, got {skip_bad_rows!r}")
    threads = usable_cpus() if threads is None else threads
    limits = memory_bytes(memory), positive_integer("threads", threads)
    need_packages("prepare", ["duckdb"])
    folder = _free(check_folder("out", out))
    inputs = find_inputs(files, without=folder.resolve())
    settings = {**names, **weighting.settings(), "min_rating": min_rating}
    settings["skip_bad_rows"] = skip_bad_rows or None
    given = {name: value for name, value in settings.items() if value is not None}
    stamps = [input_.stamp() for input_ in inputs]
    with _claimed(folder):
        request = {"settings": given, "inputs": stamps}
        if (folder / MANIFEST).is_file():
            return _finished(folder, request)
        work = Work(folder, request, progress)
        with _connected(work, *limits) as connection:
            job = _Job(connection, work, inputs, names, weighting, min_rating, skip_bad_rows)
            found = job.run(limits[0])
        finish.publish(work, folder, {**request, **found})
        work.remove()
    return facts_of(folder, read_manifest(folder))


def memory_bytes(memory: Any) -> int:
    """A number of bytes, or a text such as 4GB or 500MB.

    >>> memory_bytes("4GB"), memory_bytes("1.5 GiB")
    (4000000000, 1610612736)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?", str(memory).strip())
    if isinstance(memory, bool) or not found:
        raise ItemrecError(f"'memory' must be a size such as 4GB or 500MB, got {memory!r}")
    unit = UNITS[found[2].upper()]
    if found[3]:
        unit = 2 ** (10 * list(UNITS).index(found[2].upper()))
    size = int(float(found[1]) * unit)
    if size < LEAST_MEMORY:
        raise ItemrecError(f"'memory' must be at least {LEAST_MEMORY // 10**6}MB, got {memory!r}")
    return size


def _finished(folder: Path, request: Facts) -> Prepared:
    """The counts of a folder that is finished; raises if it was made of something else."""
    manifest = read_manifest(folder)
    check_request(folder, {name: manifest.get(name) for name in request}, request)
    Work.clear(folder)  # left by a process that was killed at the very end
    return facts_of(folder, manifest)


def _free(folder: Path) -> Path:
    """The folder, if it holds nothing but what a preparation has written."""
    known = MANIFEST, prepared.STATE.parent
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / n).exists() for n in known):
        raise ItemrecError(f"'out' must be a new or an empty folder, got '{folder}'")
    return folder


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Keep other processes out; an error in the input leaves nothing behind."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=False):
        try:
            yield
        except KeptError:
            raise
        except ItemrecError:
            Work.clear(folder)
            if not any(folder.iterdir()):
                folder.rmdir()
            raise


@contextmanager
def _connected(work: Work, memory: int, threads: int) -> Iterator[Any]:
    """A connection to DuckDB that keeps to the memory; its errors become sentences."""
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
        add_functions(connection)
        try:
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise KeptError(
                f"'memory' must be larger: {memory / 1e9:.3g} GB are not enough for this data with "
                f"{threads} threads ({first_sentence(error)})"
            ) from error
        except duckdb.IOException as error:
            if "No space left" in str(error) or "max_temp_directory_size" in str(error):
                raise OSError(28, os.strerror(28), str(work.folder)) from error
            raise KeptError(f"a file cannot be read or written: {first_sentence(error)}") from error


def first_sentence(error: Exception) -> str:
    """The first line of an error of DuckDB."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


class _Job:
    """The steps of one preparation."""

    def __init__(
        self,
        connection: Any,
        work: Work,
        inputs: list[Input],
        names: Names,
        weighting: Weighting,
        min_rating: float | None,
        skip: bool,
    ) -> None:
        self.connection, self.work = connection, work
        self.weighting, self.min_rating = weighting, min_rating
        tables = [open_table(connection, input_, names) for input_ in inputs]
        same_columns(tables)
        needs = {"time": "half_life"} if weighting.half_life is not None else {}
        needs |= {"rating": "min_rating"} if min_rating is not None else {}
        self.plan = Plan(tables, names, skip, weighting.duplicates == "sum", needs)
        rows.check_needs(self.plan, left_out={})

    def run(self, memory: int) -> Facts:
        """All steps that are not done yet; returns what the manifest tells."""
        work, connection = self.work, self.connection
        parts = self._stage()
        facts = self._summary(parts)
        counts = self._number(parts, facts)
        numbering = self._numbering(parts, facts, (memory - PROGRAM) // BYTES_PER_ROW)
        for n in range(len(parts)):
            work.once("numbers", n, len(parts), lambda n=n: self._bucket(n, numbering))  # type: ignore[misc]
            (work.folder / f"rows-{n}.parquet").unlink(missing_ok=True)
        merged = self._merge(numbering, counts, facts)
        final = work.once("ids", 0, 2, lambda: finish.renumber(connection, work, counts))
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
        }

    def _stage(self) -> list[Facts]:
        groups = rows.groups_of(self.plan.tables, PART_BYTES, PART_FILES)

        def stage(n: int) -> Facts:
            return rows.stage(self.connection, self.plan, groups[n], self.work, n)

        return [
            self.work.once("rows", n, len(groups), lambda n=n: stage(n))  # type: ignore[misc]
            for n in range(len(groups))
        ]

    def _summary(self, parts: list[Facts]) -> Facts:
        """What is known of all rows: how many, which columns are left out, which rows."""
        return self.work.once(
            "summary", 0, 1, lambda: rows.summary(self.connection, self.plan, parts)
        )

    def _rows(self, facts: Facts, n_parts: int) -> str:
        paths = [self.work.folder / f"rows-{n}.parquet" for n in range(n_parts)]
        return f"{parquet(*paths)} WHERE {rows.used_rows(self.plan, facts['bad'])}"

    def _final_id(self, facts: Facts, role: str) -> str:
        return final_id(role, self.plan.held_as(role), facts[f"{role}_whole"])

    def _number(self, parts: list[Facts], facts: Facts) -> dict[str, int]:
        found = {}
        for n, role in enumerate(rows.IDS):
            source, expression = self._rows(facts, len(parts)), self._final_id(facts, role)
            step = self.work.once(
                "sorting ids", n, 2,
                lambda: write_ids(self.connection, self.work, role, expression, source),  # noqa: B023
            )  # fmt: skip
            found[f"{role}s"] = step["count"]
        return found

    def _numbering(self, parts: list[Facts], facts: Facts, most_rows: int) -> Numbering:
        def limits() -> Facts:
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

    def _bucket(self, part: int, numbering: Numbering) -> Facts:
        return write_buckets(self.connection, self.work, part, numbering)

    def _merge(self, numbering: Numbering, counts: dict[str, int], facts: Facts) -> Facts:
        merging = Merging(counts["items"], self.weighting, facts["latest"], self.min_rating)
        before: Facts = {}
        buckets = len(numbering.limits) - 1
        for n in range(buckets):
            before = self.work.once(
                "pairs", n, buckets,
                lambda n=n, before=before: write_pairs(  # type: ignore[misc]
                    self.connection, self.work, n, numbering, merging, before
                ),
            )  # fmt: skip
            remove_bucket(self.work, n)
        if not before["pairs"]:
            low, high = before["lowest"], before["highest"]
            raise ItemrecError(
                f"'min_rating' must be at most {high:g}, the best rating in these files "
                f"(they run from {low:g}), got {self.min_rating:g}"
            )
        return before
