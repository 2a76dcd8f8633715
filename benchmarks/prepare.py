"""`itemfold prepare` on parquet files: rows a second, peak memory, and `kill -9` in between.

Writes parquet files of random rows with skewed users and items and repeated pairs to a temporary
folder, prepares them in a process of its own, whose peak resident memory is measured, then once
more with `kill -9` at a third and at two thirds of the time. Both folders must have the same bytes.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Verdicts, hardware

import numpy as np
import polars as pl

KILLED_AT = (1 / 3, 2 / 3)  # of the seconds without interruption
FILE_ROWS = 4_000_000
REPEATED = 0.1  # share of rows whose pair is also in another row of the file


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--interactions", type=float, default=100.0, help="millions of rows")
    arguments.add_argument("--memory", type=float, default=4.0, help="GB that may be used")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--quick", action="store_true", help="few rows: only a check")
    arguments.add_argument("--folder", help="where the temporary folder is made")
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="itemfold-prepare-", dir=options.folder))
    try:
        compare(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Prepare the same files twice, once with interruptions."""
    n_rows = 50_000 if options.quick else round(options.interactions * 1e6)
    size = write_rows(folder / "rows", n_rows)
    print(hardware(options.threads), flush=True)
    print(f"{n_rows:,} rows in parquet files of {size / 1e9:.2f} GB", flush=True)
    whole = Preparation(folder, "whole", options)
    seconds = whole.run()
    rate, peak = n_rows / seconds, whole.peak
    print(f"prepared in {seconds:.1f} s: {rate:,.0f} rows a second; peak {peak / 1e9:.2f} GB")
    found = json.loads((folder / "whole" / "prepared.json").read_text())
    shown = ("interactions", "users", "items", "duplicates", "fingerprint")
    print(", ".join(f"{found[name]} {name}" for name in shown), flush=True)
    killed = Preparation(folder, "killed", options)
    spent = sum(killed.run(stop_after=share * seconds) for share in KILLED_AT)
    for steps in killed.steps:
        print(f"killed after {steps} finished steps")
    last = killed.run()
    print(f"continued: {spent:.1f} s until the kills, then {last:.1f} s", flush=True)
    names = sorted(path.name for path in (folder / "whole").iterdir())
    others = sorted(path.name for path in (folder / "killed").iterdir())
    _, different, missing = filecmp.cmpfiles(folder / "whole", folder / "killed", names, False)
    same = names == others and not different and not missing
    print(f"files that differ: {[*different, *missing] or 'none'}")
    verdicts = Verdicts()
    verdicts.also("prepare_continued_same", float(same), 1.0, at_least=True)
    verdicts.also("prepare_continued_peak_gb", killed.peak / 1e9, options.memory)
    verdicts.last("prepare_peak_gb", peak / 1e9, options.memory)


class Preparation:
    """The command, in a process of its own."""

    def __init__(self, folder: Path, name: str, options: argparse.Namespace) -> None:
        self.out = folder / name
        self.command = [sys.executable, "-m", "itemfold", "prepare", str(folder / "rows")]
        self.command += ["--out", str(self.out), "--memory", f"{options.memory}GB"]
        self.command += ["--threads", str(options.threads)]
        self.peak = 0
        self.steps: list[int] = []  # finished at each kill

    def run(self, stop_after: float | None = None) -> float:
        """Run it, or kill it after some seconds; returns its seconds."""
        start = time.perf_counter()
        process = subprocess.Popen(self.command)
        if stop_after is not None:
            time.sleep(stop_after)
            os.kill(
                process.pid, signal.SIGKILL
            )  # `send_signal` would take the status of an ended one
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        if stop_after is None and process.returncode:
            raise SystemExit(f"itemfold prepare ended with {process.returncode}")
        state = self.out / "work" / "state.json"
        if state.exists():
            self.steps.append(len(json.loads(state.read_text())["steps"]))
        return time.perf_counter() - start


def write_rows(folder: Path, n_rows: int) -> int:
    """Write the files one after another; returns their bytes."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    n_users, n_items = max(10, n_rows // 20), max(10, n_rows // 200)
    for n, start in enumerate(range(0, n_rows, FILE_ROWS)):
        rows = min(FILE_ROWS, n_rows - start)
        users, items = skewed(rng, n_users, rows, 2.0), skewed(rng, n_items, rows, 3.0)
        again = rng.integers(0, rows, round(REPEATED * rows))
        users[: len(again)], items[: len(again)] = users[again], items[again]
        frame = pl.DataFrame(
            {
                "user_id": users * 2654435761 % 2**40,  # ids of users are not in the order of rows
                "item_id": pl.Series(items).cast(pl.String).str.zfill(9).str.replace("^", "item-"),
                "rating": rng.integers(1, 11, rows) / 2,
                "timestamp": rng.integers(1_500_000_000, 1_700_000_000, rows),
            }
        )
        frame.write_parquet(folder / f"part-{n:04}.parquet")
    return sum(path.stat().st_size for path in folder.iterdir())


def skewed(rng: np.random.Generator, n: int, size: int, power: float) -> np.ndarray:
    """Numbers below n; with a higher power, few of them are drawn more often."""
    return (n * rng.random(size) ** power).astype(np.int64)


if __name__ == "__main__":
    main()
