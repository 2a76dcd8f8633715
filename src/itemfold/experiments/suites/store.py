"""The store of results: one JSONL file per suite, with every run stored once.

``results/SUITE.jsonl`` holds three kinds of lines, each a JSON object::

    {"kind": "row", "data": "yelp2018/inductive", "row": "item", "seed": 0, "run": "9f3c…"}
    {"kind": "run", "id": "9f3c…", "dataset": …, "seconds": …, "valid": …, "test": …, "config": …}
    {"kind": "tests", "data": "yelp2018/inductive", "baseline": "lightgcn", "rows": …, "runs": …}

- A *run* is keyed by its id, the hash of its comparable configuration. It is stored with the suite
  that made it; rows of all suites refer to it by that id.
- A *row* is keyed by data set, row name and seed. Where a run was made again for a row, because the
  row's suite measures time or has further metrics, the row also has the ``seconds`` and the
  ``hardware`` of that repetition.
- *tests* are the paired tests of a data set; ``runs`` lists the runs that were compared.

Every line ends with its ``digest``, a hash of the rest. A line whose content was changed afterwards
is an error. Files of release 0.2 have none; `tidy` adds it.

Order has no meaning, except that of two lines with the same key the later one is valid. A finished
run is therefore appended, and is on disk before the next one starts; a line that was cut off at the
end of a file is ignored, and the next append removes it. Results of another machine are merged by
concatenation, ``cat there/inductive.jsonl >> results/inductive.jsonl``. `tidy`, which `reproduce`
and ``make results`` call, then sorts the lines, keeps one line per key and one per run, and drops
runs that no row refers to.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.files import locked, write_text

Line = dict[str, Any]
Result = dict[str, Any]  # a run as a row shows it: suite, row, data, seed, and the run's own fields
RowKey = tuple[str, str, int]  # data set, row, seed

ENDING = ".jsonl"
OF_REPETITIONS = ("seconds", "hardware")  # differ when the same run is made again


def identity(content: Any) -> str:
    """A short name for settings: the start of the SHA-256 of their JSON."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SuiteFile:
    """The content of the file of one suite."""

    rows: dict[RowKey, Line] = field(default_factory=dict)
    runs: dict[str, Line] = field(default_factory=dict)
    tests: dict[str, Line] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Add a line; it replaces an earlier one with the same key."""
        if line["kind"] == "row":
            self.rows[line["data"], line["row"], int(line["seed"])] = line
        elif line["kind"] == "run":
            self.runs[line["id"]] = line
        elif line["kind"] == "tests":
            self.tests[line["data"]] = line
        else:
            raise ValueError(f"unknown kind {line['kind']!r}")

    def text(self) -> str:
        """All lines, sorted."""
        lines = [self.rows[key] for key in sorted(self.rows)]
        lines += [self.runs[key] for key in sorted(self.runs)]
        lines += [self.tests[key] for key in sorted(self.tests)]
        return "".join(map(_dump, lines))


@dataclass(frozen=True)
class Store:
    """The files of a results folder, by the names of their suites."""

    folder: Path
    files: dict[str, SuiteFile]

    def run(self, suite: str, run: str) -> Line | None:
        """A run by its id, from the suite's own file or from that of another suite."""
        places = [self.files[suite]] if suite in self.files else []
        places += [file for name, file in sorted(self.files.items()) if name != suite]
        return next((file.runs[run] for file in places if run in file.runs), None)

    def result(self, suite: str, key: RowKey) -> Result | None:
        """The run of a row; None if the row is missing or its run is not stored."""
        row = self.files[suite].rows.get(key) if suite in self.files else None
        run = None if row is None else self.run(suite, row["run"])
        if row is None or run is None:
            return None
        place = {key: row[key] for key in ("row", "data", "seed")}
        own = {key: row[key] for key in OF_REPETITIONS if key in row}
        return {"suite": suite, **place, **{k: v for k, v in run.items() if k != "kind"}, **own}

    def results(self, suite: str) -> list[Result]:
        """All results of a suite, in the order of their keys."""
        out = []
        rows = self.files[suite].rows if suite in self.files else {}
        for key, row in sorted(rows.items()):
            result = self.result(suite, key)
            if result is None:
                raise ItemfoldError(
                    f"{path_of(self.folder, suite)} refers to run {row['run']!r}, which no file of "
                    f"{self.folder} holds: copy the file of the suite that made it"
                )
            out.append(result)
        return out

    def tests(self, suite: str, data: str) -> Line:
        """The paired tests of a data set; empty if there are none."""
        return self.files[suite].tests.get(data, {}) if suite in self.files else {}


def path_of(folder: Path, suite: str) -> Path:
    """The file of a suite."""
    return folder / f"{suite}{ENDING}"


def row_line(data: str, row: str, seed: int, run: str) -> Line:
    """The line of a row."""
    return {"kind": "row", "data": data, "row": row, "seed": seed, "run": run}


def read_store(folder: Path) -> Store:
    """Read a results folder."""
    files = {}
    for path in sorted(folder.glob(f"*{ENDING}")) if folder.is_dir() else ():
        content = path.read_bytes()
        complete = content[: _complete(content)]
        files[path.stem] = file = SuiteFile()
        any_digest = b'"digest": ' in complete
        for number, text in enumerate(complete.split(b"\n"), 1):
            try:
                if text.strip():
                    file.add(_verified(json.loads(text), f"{path}, line {number}", any_digest))
            except ItemfoldError:
                raise
            except (ValueError, KeyError, TypeError) as error:
                raise ItemfoldError(f"{path}, line {number} is damaged: {error!r}") from error
    return Store(folder, files)


def append_lines(folder: Path, suite: str, *lines: Line) -> None:
    """Add lines to the file of a suite; they are on disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(folder, suite)
    with locked(folder, wait=True):
        new = not path.exists()
        with path.open("ab+") as file:
            file.seek(0)
            content = file.read()
            end = _complete(content)
            file.truncate(end)
            if end and content[end - 1 : end] != b"\n":
                file.write(b"\n")
            file.write("".join(map(_dump, lines)).encode())
            file.flush()
            os.fsync(file.fileno())
        if new and os.name != "nt":  # where folders cannot be opened
            handle = os.open(folder, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


def _complete(content: bytes) -> int:
    """The length of the complete lines of a file; a killed process may have cut off the last."""
    end = content.rfind(b"\n") + 1
    try:
        json.loads(content[end:])
    except ValueError:
        return end
    return len(content)


def _dump(line: Line) -> str:
    return (
        json.dumps({**line, "digest": identity(line)}, ensure_ascii=False, allow_nan=False) + "\n"
    )


def _verified(line: Line, where: str, any_digest: bool) -> Line:
    """A line without its digest; raise if the digest does not match.

    Without ``any_digest`` in its file, a line needs none.
    """
    digest = line.pop("digest", None)
    if digest != identity(line) and (any_digest or digest is not None):
        what = " ".join(str(line[key]) for key in ("kind", "data", "row", "id") if key in line)
        problem = "has lost its digest" if digest is None else "does not match its digest"
        raise ItemfoldError(
            f"{where} ({what}) was changed after it was stored, it {problem}: restore the line, or "
            "delete it and run `itemfold reproduce` again"
        )
    return line


def tidy(folder: Path) -> None:
    """Sort every file, keeping one line per key, and each run in one file only."""
    if not folder.is_dir():
        return
    with locked(folder, wait=True):
        store = read_store(folder)
        _store_once(store)
        used = {row["run"] for file in store.files.values() for row in file.rows.values()}
        # By name: a run is added to the first file before the others lose it.
        for suite, file in sorted(store.files.items()):
            for run in file.runs.keys() - used:
                del file.runs[run]
            path, text = path_of(folder, suite), file.text()
            if path.read_bytes() != text.encode():
                write_text(path, text)


def _store_once(store: Store) -> None:
    """Keep a run that several files have in the first one; rows of the others keep their times."""
    first: dict[str, SuiteFile] = {}
    for _, file in sorted(store.files.items()):
        for run in sorted(file.runs):
            home = first.setdefault(run, file)
            if home is file or not _agree(home.runs[run], file.runs[run]):
                continue  # a repetition with different figures stays with its rows
            kept, repeated = home.runs[run], file.runs.pop(run)
            for part in ("valid", "test"):
                kept[part] = {**kept[part], **repeated[part]}
            differing = {k: repeated[k] for k in OF_REPETITIONS if repeated[k] != kept[k]}
            for row in file.rows.values():
                if row["run"] == run and differing:
                    for key in OF_REPETITIONS:
                        row.setdefault(key, repeated[key])


def _agree(one: Line, two: Line) -> bool:
    """Whether two lines of a run agree in all figures that both have."""
    apart = {*OF_REPETITIONS, "valid", "test", "notes"}  # older lines have no notes
    same = {k: v for k, v in one.items() if k not in apart} == {
        k: v for k, v in two.items() if k not in apart
    }
    return same and all(
        one[part][metric] == two[part][metric]
        for part in ("valid", "test")
        for metric in one[part].keys() & two[part].keys()
    )


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
