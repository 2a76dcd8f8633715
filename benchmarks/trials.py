"""Trials of settings for rows of the tables: equal effort for every row, compared on validation.

``trials.toml`` lists the settings. Each trial is one run of a row with these settings instead of
its own; its best validation value is appended to ``trials.jsonl``. Trials that are stored there are
not run again. The test part is never used.

    python benchmarks/trials.py --device cuda --jobs 8
    python benchmarks/trials.py --only transductive/ngcf@ml-1m
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import hardware, parser

from itemfold.experiments.build import make_data, make_split
from itemfold.experiments.search_space import merged, without_refit
from itemfold.experiments.suites.suite import load_suite
from itemfold.settings.resolve import resolve
from itemfold.training.fit import fit_and_test

HERE = Path(__file__).parent
Trial = dict[str, Any]  # row, data, protocol, settings


def listed(path: Path) -> Iterator[Trial]:
    """The trials of a file in its order; a row may have several rounds, each a table."""
    for name, rounds in tomllib.loads(path.read_text()).items():
        for columns in rounds if isinstance(rounds, list) else [rounds]:
            if len({len(values) for values in columns.values()}) != 1:
                sys.exit(f"{path.name}: {name} needs as many values of each setting as of others")
            for values in zip(*columns.values(), strict=True):
                yield {"row": name, "settings": dict(zip(columns, values, strict=True))}


def perform(trial: Trial, device: str, data_root: str | None) -> Trial:
    """Train one trial without a refit; returns its best validation value, epoch and seconds."""
    suite, _, rest = trial["row"].partition("/")
    row, _, data = rest.partition("@")
    (cell,) = load_suite(suite).cells([data], [row])
    config = merged(without_refit(cell.seeded(0)), trial["settings"])
    config["train"]["device"] = device
    if data_root is not None:
        config["data"]["data_root"] = data_root
    split = make_split(config, make_data(config))
    started = time.perf_counter()
    run = fit_and_test(resolve(config), split.without_test())
    found = {key: run.metrics[key] for key in ("best_epoch", "epochs")}
    seconds = round(time.perf_counter() - started, 1)
    value = round(run.metrics["valid"]["ndcg@20"], 5)
    return {**trial, "valid ndcg@20": value, **found, "seconds": seconds}


def main() -> None:
    """Run the trials that are not stored yet, several in parallel."""
    options = parser(__doc__)
    options.add_argument("--device", default="auto")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--only", help="one row, such as transductive/ngcf@ml-1m")
    options.add_argument("--trials", type=Path, default=HERE / "trials.toml")
    options.add_argument("--out", type=Path, default=HERE / "trials.jsonl")
    options.add_argument("--data-root")
    asked = options.parse_args()
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = [(old["row"], old["settings"]) for old in map(json.loads, lines)]
    todo = [
        trial
        for trial in listed(asked.trials)
        if asked.only in (None, trial["row"]) and (trial["row"], trial["settings"]) not in done
    ]
    machine = hardware(gpu=asked.device != "cpu")
    print(f"{len(todo)} trials, {len(done)} stored; {machine}")
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(perform, trial, asked.device, asked.data_root) for trial in todo]
        for future in as_completed(waiting):
            found = future.result()
            with asked.out.open("a") as file:
                print(json.dumps({**found, "jobs": asked.jobs, "hardware": machine}), file=file)
            print(found, flush=True)


if __name__ == "__main__":
    main()
