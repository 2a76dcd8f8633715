"""Run the study of ranking losses, or continue it.

``python tools/ranking_losses.py`` tunes, trains and compares every loss; ``--quick`` does the same
with four losses on tiny data in a minute, as CI does. ``--models lightgcn,mf`` and ``--losses``
choose rows, ``--results`` the folder. Every run is stored as it ends; the same command continues.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from rich.console import Console

from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.ranking_losses import QUICK, Study, run_study


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def main() -> None:
    """Parse the options and run the study."""
    parser = argparse.ArgumentParser(description="The study of ranking losses.")
    parser.add_argument("--quick", action="store_true", help="tiny data, four losses")
    parser.add_argument("--losses", help="names, separated by commas")
    parser.add_argument("--models", help="names, separated by commas; default lightgcn")
    parser.add_argument("--datasets", help="names, separated by commas")
    parser.add_argument("--results", default="results", help="folder of the results")
    parser.add_argument("--per-user", help="folder for per-user values; default: in the cache")
    parser.add_argument("--data-root", help="folder of the data sets")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs in parallel")
    given = parser.parse_args()
    study = QUICK if given.quick else Study()
    study = replace(
        study,
        losses=_names(given.losses) or study.losses,
        models=_names(given.models) or study.models,
        data=_names(given.datasets) or study.data,
    )
    options = Options(
        device=given.device,
        jobs=given.jobs,
        data_root=given.data_root,
        results=given.results,
        per_user=given.per_user,
    )
    run_study(study, options, Console())


if __name__ == "__main__":
    main()
