"""Run the benchmarks, print their verdicts, and write results.json and the table of README.md.

GPU scripts run if there is a CUDA device. Rows of scripts that do not run keep their earlier
figures, so that one table can have figures of two machines; each row names its machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import hardware

import torch

HERE = Path(__file__).parent
RESULTS, README = HERE / "results.json", HERE / "README.md"
MARKS = ("<!-- results -->", "<!-- end of results -->")

CPU = (
    "propagation.py yelp2018",
    "epoch.py yelp2018",
    "busy.py yelp2018",
    "evaluate.py yelp2018",
    "all_metrics.py",
    "closed_forms.py ml-1m",
    "choosing.py",
    "fold_in.py yelp2018",
    "serve.py yelp2018 --model gnn",
    "serve.py yelp2018 --model hybrid",
    "attack.py yelp2018",
    "ppr.py yelp2018",
    "peers.py ml-1m",
    "update.py ml-latest-small",
    "diversity.py ml-latest-small",
    "scaling.py",
    "prepare.py",
    "scaling.py --constant-degree",
    "catalogue.py",
    "distributed.py",
)
GPU = (
    "gpu.py yelp2018",
    "gpu.py yelp2018 --full-catalogue",
    "ppr.py yelp2018 --device cuda",
    "update.py yelp2018 --device cuda",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", help="folder of the data sets (default: ITEMFOLD_DATA)")
    parser.add_argument("--only", nargs="+", default=[], help="scripts by the start of their name")
    parser.add_argument("--quick", action="store_true", help="few repetitions; nothing is written")
    parser.add_argument("--table", action="store_true", help="only write the table again")
    options = parser.parse_args()
    if not options.table:
        chosen = [*CPU, *(GPU if torch.cuda.is_available() else ())]
        if options.only:
            chosen = [line for line in chosen if line.startswith(tuple(options.only))]
        found = [run(line, options.data_root, options.quick) for line in chosen]
        print("\n".join(row["last"] for row in found))
        if options.quick:
            return
        RESULTS.write_text(json.dumps(merged(stored(), found), indent=1) + "\n")
    README.write_text(with_table(README.read_text(), stored()))


def run(line: str, data_root: str | None, quick: bool) -> dict[str, Any]:
    """Run one script and record its output."""
    script, *arguments = line.split()
    command = [sys.executable, str(HERE / script), *arguments]
    if arguments and data_root and not arguments[0].startswith("--"):
        command += ["--data-root", data_root]
    if quick and script != "ppr.py":
        command.append("--quick")
    print(f"== {line}", flush=True)
    load, start = os.getloadavg()[0], time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    lines = done.stdout.strip().splitlines()
    print(done.stdout, end="", flush=True)
    seconds = time.perf_counter() - start
    last = lines[-1] if lines and not done.returncode else f"{script} 0 0 short"
    gpu = line in GPU
    return {
        "command": line,
        "last": last,
        "also": [text.removeprefix("also ") for text in lines[:-1] if text.startswith("also ")],
        "lines": lines,
        "seconds": round(seconds, 1),
        "hardware": hardware(None if gpu else 2, gpu=gpu),
        "load": round(load, 1),
    }


def stored() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else []


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """New rows replace old ones of the same command, in the order of the lists above."""
    rows = {row["command"]: row for row in [*old, *new]}
    return [rows[line] for line in (*CPU, *GPU) if line in rows]


def with_table(text: str, rows: list[dict[str, Any]]) -> str:
    """The page with a new table between the marks."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    lines = ["| command | figure | value | bound | |", "|---|---|---:|---:|---|"]
    machines = []
    for row in rows:
        if row["hardware"] not in machines:
            machines.append(row["hardware"])
        for figure in (row["last"], *row["also"]):
            name, value, bound, verdict = figure.split()
            lines.append(f"| `{row['command']}` | {name} | {value} | {bound} | {verdict} |")
    named = [f"- {machine}" for machine in machines]
    body = "\n".join(["", "Measured on:", "", *named, "", *lines, ""])
    return f"{before}{MARKS[0]}\n{body}\n{MARKS[1]}{after}"


if __name__ == "__main__":
    main()
