"""Run the study of ranking losses, or continue it.

``python tools/ranking_losses.py`` tunes, trains and compares every loss; ``--quick`` does the same
with four losses on tiny data in a minute, as CI does. ``--models lightgcn,mf`` also runs the better
half of the losses on MF; ``--losses`` chooses them, ``--results`` the folder. Every run is stored
as it ends; the same command continues.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

from rich.console import Console

from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import split_names
from itemfold.experiments.suites.ranking_losses import QUICK, Study
from itemfold.experiments.suites.ranking_losses_runs import run_study, study_of


def main() -> None:
    """Parse the options and run the study."""
    parser = argparse.ArgumentParser(description="The study of ranking losses.")
    parser.add_argument("--quick", action="store_true", help="tiny data, four losses")
    parser.add_argument("--losses", help="names, separated by commas")
    parser.add_argument("--models", default="lightgcn", help="names, separated by commas")
    parser.add_argument("--datasets", help="names, separated by commas")
    parser.add_argument("--results", default="results", help="folder of the results")
    parser.add_argument("--per-user", help="folder for per-user values; default: in the cache")
    parser.add_argument("--data-root", help="folder of the data sets")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs in parallel")
    parser.add_argument("--trials", type=int, help="settings tried for each loss; default 10")
    parser.add_argument("--epochs", type=int, help="most epochs of a run; default 200")
    parser.add_argument("--time-limit", type=float, help="seconds after which no run starts")
    parser.add_argument(
        "--trials-limit",
        type=float,
        help="seconds of a data set after which no trial starts; those that all losses have count",
    )
    given = parser.parse_args()
    study = QUICK if given.quick else Study()
    wanted: dict[str, Any] = {"trials": given.trials, "epochs": given.epochs}
    if given.datasets:
        wanted["data"] = tuple(split_names(given.datasets))
    losses = tuple(split_names(given.losses)) if given.losses else None
    study = replace(study, **{name: value for name, value in wanted.items() if value is not None})
    options = Options(
        device=given.device,
        jobs=given.jobs,
        data_root=given.data_root,
        results=given.results,
        per_user=given.per_user,
    )
    started = time.monotonic()
    for model in split_names(given.models):
        of_model = study_of(study, model, options.home, losses)
        if given.time_limit is not None:
            left = max(given.time_limit - (time.monotonic() - started), 0.0)
            options = replace(options, time_limit=left)
        run_study(of_model, options, Console(), given.trials_limit)


if __name__ == "__main__":
    main()
