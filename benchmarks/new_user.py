"""The first steps of a new user: a fresh clone, an empty home, a file of ratings.

describe → train → compare → update → export → serve, as the documentation has them, with the
seconds of each and of all. The latest 5 % of the file are what `update` adds. Without `--python`
the clone gets an environment of its own by the Makefile, whose seconds count as well; with it, the
packages of that interpreter are used and only the package itself comes from the clone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from common import Verdicts, hardware

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 15
LATE = 0.05  # share of the rows that arrive after training
TIMES = ("timestamp", "time", "date")
KEPT = ("PATH", "LANG", "TMPDIR", "OMP_NUM_THREADS")


class NewUser:
    """Somebody with a clone, an empty home and a file; every step is timed."""

    def __init__(self, place: Path, python: str | None) -> None:
        self.clone, self.place = place / "clone", place / "work"
        home = place / "home"
        for folder in (home, self.place):
            folder.mkdir()
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env |= pip_settings()
        self.env |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        self.seconds: dict[str, float] = {}
        self.python = python or str(self.clone / ".venv/bin/python")
        self.timed("clone", lambda: self.call("git", "clone", "--quiet", ROOT, self.clone))
        if python is None:
            self.timed("install", self.install)
        else:
            self.env["PYTHONPATH"] = str(self.clone / "src")

    def timed(self, name: str, step: Callable[[], Any]) -> None:
        """Run a step and print its seconds."""
        start = time.perf_counter()
        step()
        self.seconds[name] = time.perf_counter() - start
        print(f"{self.seconds[name]:8.1f} s  {name}", flush=True)

    def call(self, *command: str | Path, folder: Path | None = None) -> None:
        """Run a command; its output is shown if it fails."""
        where = folder or self.place
        done = subprocess.run(
            list(map(str, command)), cwd=where, env=self.env, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")

    def install(self) -> None:
        """What `make demo` installs, and what serving needs."""
        self.call("make", ".venv/.installed", folder=self.clone)
        extra = ("-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[serve]")
        self.call(self.python, *extra, folder=self.clone)

    def itemfold(self, *arguments: str) -> None:
        """One command of the documentation."""
        self.timed(
            f"itemfold {' '.join(arguments)}",
            lambda: self.call(self.python, "-m", "itemfold", *arguments),
        )

    def serve(self, run: str, history: list[str]) -> None:
        """Start the service, send one request, and stop it."""
        command = [self.python, "-m", "itemfold", "serve", run, "--port", "0", "--workers", "1"]
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                command, cwd=self.place, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                assert process.stdout is not None
                address = re.search(r"http://[^\s/]+", process.stdout.readline())
                if address is None:
                    log.seek(0)
                    raise SystemExit(f"{' '.join(command)}:\n{log.read()}")
                picks = ask(f"{address[0]}/v1/recommend", {"history": history, "k": 5})
                print(f"            {len(picks['items'])} items for {', '.join(history)}")
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=60)


def pip_settings() -> dict[str, str]:
    """pip keeps its settings and its downloads; everything else starts from an empty home."""
    out = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    home, cache = Path.home(), os.environ.get("XDG_CACHE_HOME")
    out.setdefault("PIP_CACHE_DIR", str(Path(cache or home / ".cache") / "pip"))
    settings = [home / ".config/pip/pip.conf", home / ".pip/pip.conf"]
    found = [str(path) for path in settings if path.is_file()]
    return {"PIP_CONFIG_FILE": found[0], **out} if found else out


def ask(address: str, body: dict[str, Any]) -> Any:
    """The response of the service to a request."""
    head = {"Content-Type": "application/json"}
    with urlopen(Request(address, json.dumps(body).encode(), head), timeout=60) as answer:
        return json.loads(answer.read())


def cut(ratings: Path, place: Path) -> list[str]:
    """Split the file into earlier and later rows; returns items for a request."""
    with ratings.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    names = [name.lower() for name in head]
    times = [names.index(name) for name in TIMES if name in names]
    if times:
        rows.sort(key=lambda row: float(row[times[0]]))
    late = round((1 - LATE) * len(rows))
    for name, part in (("ratings.csv", rows[:late]), ("new.csv", rows[late:])):
        with (place / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *part])
    item = next(n for n, name in enumerate(names) if "item" in name or "movie" in name)
    return list(dict.fromkeys(row[item] for row in rows[:late]))[:3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ratings", type=Path, help="a .csv file of ratings with a header")
    parser.add_argument("--min-rating", default="3", help="of an interaction")
    parser.add_argument("--python", help="an interpreter that has the packages")
    parser.add_argument("--budget", help="of training, such as 60s; default: none")
    options = parser.parse_args()
    print(hardware())
    with tempfile.TemporaryDirectory() as folder:
        user = NewUser(Path(folder), options.python)
        history = cut(options.ratings, user.place)
        data = ("ratings.csv", "--min-rating", options.min_rating)
        budget = ("--budget", options.budget) if options.budget else ()
        user.itemfold("describe", *data)
        user.itemfold("train", *data, *budget, "--out", "runs/first")
        user.itemfold("train", *data, "--model", "ease", "--out", "runs/ease")
        user.itemfold("compare", "runs/ease", "runs/first")
        user.itemfold("update", "runs/first", "new.csv", "--out", "runs/fresh")
        user.itemfold("export", "runs/fresh", "--to", "parquet", "--out", "vectors")
        user.timed("itemfold serve runs/fresh", lambda: user.serve("runs/fresh", history))
    Verdicts().last("new_user_minutes", sum(user.seconds.values()) / 60, MINUTES)


if __name__ == "__main__":
    main()
