"""The study of ranking losses: equal random search for every loss, then seeds, then ranks.

Two suites are written to the folder of results and run like any other, so that the study continues
where it was stopped:

- ``ranking-losses-trials``: every loss with TRIALS settings, LOSS-1 to LOSS-10, on one seed. All
  losses share the same quantiles: trial 3 has the same learning rate, L2 weight and number of
  negatives for each, and the same place in the range of its temperature and own settings.
- ``ranking-losses``: every loss with the settings that were best on validation, on several seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from itemfold.data.datasets import DATASETS
from itemfold.data.find_dataset import data_variable
from itemfold.errors import ItemfoldError
from itemfold.evaluation.rank_tests import RankTest, rank_test
from itemfold.experiments.search_space import OF_LOSSES
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.reproduce import run_suite
from itemfold.experiments.suites.store import read_store, write_json
from itemfold.experiments.suites.suite import load_suite
from itemfold.files import write_text
from itemfold.losses import LOSSES
from itemfold.validation import schema

STUDY, TRIALS_OF = "ranking-losses", "ranking-losses-trials"
TRIALS = 10
METRIC = "ndcg@20"
COLUMNS = ["recall@20", "ndcg@5", "ndcg@20", "ndcg@100"]
DATA = ["electronic", "food", "ml-1m", "yelp2018", "ml-latest-small/inductive"]
SEEDS, MORE_SEEDS = 3, {"ml-latest-small": 5}
# losses of cosines in their papers; the others compare products
COSINE = ("softmax", "sampled-softmax", "bsl", "psl", "sl-at-k", "adv-info-nce", "bc", "ccl")
LR, L2, NEGATIVES = (3e-4, 3e-2), (1e-6, 1e-2), (200, 1000)
TAU = {True: (0.02, 0.5), False: (0.1, 3.0)}  # of cosines, of products
DIMENSIONS = 6  # lr, l2, negatives, tau, and two settings of a loss


@dataclass(frozen=True)
class Study:
    """What the study compares, and with how much effort."""

    losses: tuple[str, ...] = tuple(LOSSES)
    models: tuple[str, ...] = ("lightgcn",)
    data: tuple[str, ...] = tuple(DATA)
    trials: int = TRIALS
    seeds: int = SEEDS
    epochs: int = 200
    dim: int = 64
    negatives: tuple[int, ...] = NEGATIVES

    def rows(self) -> list[tuple[str, str, str]]:
        """The name, model and loss of every row; LightGCN's rows have the name of their loss."""
        return [
            (loss if model == "lightgcn" else f"{model}-{loss}", model, loss)
            for model in self.models
            for loss in self.losses
        ]


QUICK = Study(
    data=("synthetic:users=90,items=70", "synthetic:users=90,items=70/inductive"),
    losses=("bpr", "softmax", "item-log", "sl-at-k"),
    trials=2,
    seeds=1,
    epochs=2,
    dim=8,
    negatives=(5, 10),
)


def trial_settings(loss: str, study: Study, seed: int = 0) -> list[dict[str, dict[str, Any]]]:
    """The settings of every trial of a loss: random, with the same quantiles for all losses."""
    quantiles = np.random.default_rng(seed).random((study.trials, DIMENSIONS))
    own = [(path.partition(".")[2], text) for path, text in OF_LOSSES.items() if _of(path, loss)]
    out = []
    for lr, l2, negatives, tau, *others in quantiles.tolist():
        n = study.negatives[int(negatives * len(study.negatives))]
        train: dict[str, Any] = {"lr": _between(LR, lr), "l2": _between(L2, l2)}
        train["n_negatives"] = n
        train["similarity"] = "cosine" if loss in COSINE else "dot"
        if loss == "direct-au":  # has no negatives
            train["n_negatives"] = 1
        settings: dict[str, Any] = {"name": loss}
        if "tau" in schema(LOSSES[loss]):
            settings["tau"] = _between(TAU[loss in COSINE], tau)
        for (name, text), quantile in zip(own, others, strict=False):
            low, high = map(float, text.split(".."))
            settings[name] = _between((low, high), quantile)
        out.append({"loss": settings, "train": train})
    return out


def _of(path: str, loss: str) -> bool:
    return path.startswith(f"{loss}.")


def _between(ends: tuple[float, float], quantile: float) -> float:
    """A quantile of a range, logarithmic if it spans a factor of ten, to three digits."""
    low, high = ends
    if low > 0 and high / low >= 10:
        value = low * (high / low) ** quantile
    else:
        value = low + (high - low) * quantile
    return float(f"{value:.3g}")


def write_suite(
    folder: Path, name: str, study: Study, rows: Sequence[Mapping[str, Any]], **table: Any
) -> Path:
    """Write a suite of the study; returns its file."""
    first = rows[0]["name"]
    patience = max(study.epochs // 5, 1)
    content = {
        "title": "Ranking losses under equal tuning",
        "baseline": next((row["name"] for row in rows if row["name"] == "softmax"), first),
        "columns": COLUMNS,
        "cost": True,
        "data": list(study.data),
        "seeds": study.seeds,
        **table,
        "defaults": {
            "split": {"rounding": "nearest"},
            "model": {"dim": study.dim},
            "train": {"epochs": study.epochs, "eval_every": max(patience // 4, 1)}
            | {"patience": patience},
        },
        "row": list(rows),
    }
    path = folder / f"{name}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, dump_toml(content))
    return path


def dump_toml(content: Mapping[str, Any]) -> str:
    """A suite as TOML; values are written as JSON, which TOML shares for all types used here."""
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
        if key not in ("defaults", "row")
    ]
    lines += ["", "[defaults]", *_dotted("", content["defaults"]), ""]
    for row in content["row"]:
        lines += ["[[row]]", *_dotted("", row), ""]
    return "\n".join(lines)


def _dotted(prefix: str, table: Mapping[str, Any]) -> list[str]:
    """The lines of a table within a row, with dotted keys."""
    out = []
    for key, value in table.items():
        name = key if key.replace("-", "").replace("_", "").isalnum() else json.dumps(key)
        if isinstance(value, Mapping):
            out += _dotted(f"{prefix}{name}.", value)
        else:
            out.append(f"{prefix}{name} = {json.dumps(value, ensure_ascii=False)}")
    return out


def trial_rows(study: Study) -> list[dict[str, Any]]:
    """A row for every trial."""
    return [
        {"name": f"{name}-{number}", "baseline": f"{name}-{number}"}  # no paired tests
        | {"model": {"name": model}, "loss": settings["loss"]}
        | {"train": {**settings["train"], "refit": False}}
        for name, model, loss in study.rows()
        for number, settings in enumerate(trial_settings(loss, study), 1)
    ]


def chosen_rows(study: Study, home: Path) -> list[dict[str, Any]]:
    """A row for every loss, with the trial of each data set that was best on validation."""
    results = read_store(home).results(TRIALS_OF)
    found = {(r["data"], r["row"]): r["valid"][METRIC] for r in results if int(r["seed"]) == 0}
    out = []
    for name, model, loss in study.rows():
        row: dict[str, Any] = {"name": name, "model": {"name": model}, "loss": {"name": loss}}
        trials, on = trial_settings(loss, study), {}
        for data in dict.fromkeys(key for key, _ in found):
            values = [found.get((data, f"{name}-{n}")) for n in range(1, len(trials) + 1)]
            if any(value is None for value in values):
                raise ItemfoldError(
                    f"{name} on {data} lacks trials: run the study again to complete them"
                )
            best = trials[int(np.argmax(values))]  # type: ignore[arg-type] # none is missing
            own = {key: value for key, value in best["loss"].items() if key != "name"}
            seeds = {"seeds": MORE_SEEDS[_base(data)]} if _base(data) in MORE_SEEDS else {}
            on[data] = {"train": best["train"], **({"loss": own} if own else {}), **seeds}
        row["on"] = on
        out.append(row)
    return out


def _base(data: str) -> str:
    return data.partition("/")[0]


def with_folders(study: Study, root: str | Path | None) -> Study:
    """The study with folders in place of the data sets that the package does not know by name."""
    parent = Path(root or data_variable() or ".").expanduser()

    def place(data: str) -> str:
        name = _base(data)
        if name in DATASETS or name.startswith("synthetic:"):
            return data
        if not (parent / name / "train.txt").is_file():
            raise ItemfoldError(
                f"'data_root' must be a folder that holds {name}/train.txt and {name}/test.txt "
                f"(https://github.com/Tiny-Snow/IR-Benchmark), got '{parent}'"
            )
        return f"{parent}/{data}"

    return replace(study, data=tuple(map(place, study.data)))


def run_study(study: Study, options: Options, console: Console) -> RankTest:
    """Run both suites, as far as they are not done, and compare the losses over data sets."""
    study = with_folders(study, options.data_root)
    path = write_suite(options.home, TRIALS_OF, study, trial_rows(study), seeds=1)
    outcome = run_suite(load_suite(path), replace(options, seeds=1), console)
    console.print(f"{TRIALS_OF}: {outcome}", highlight=False, markup=False)
    path = write_suite(options.home, STUDY, study, chosen_rows(study, options.home))
    outcome = run_suite(load_suite(path), options, console)
    console.print(f"{STUDY}: {outcome}", highlight=False, markup=False)
    return compare(study, options.home, console)


def compare(study: Study, home: Path, console: Console) -> RankTest:
    """Mean ranks over data sets, printed and written to ``ranking-losses-ranks.json``."""
    names = [name for name, _, _ in study.rows()]
    figures: dict[tuple[str, str], list[float]] = {}
    for result in read_store(home).results(STUDY):
        figures.setdefault((result["data"], result["row"]), []).append(result["test"][METRIC])
    data = list(dict.fromkeys(key for key, _ in figures))
    missing = [f"{row} on {key}" for key in data for row in names if (key, row) not in figures]
    if missing:
        raise ItemfoldError(f"the study is not complete, run it again: {', '.join(missing)}")
    table = np.array([[np.mean(figures[key, row]) for row in names] for key in data])
    found = rank_test(table)
    order = np.argsort(found.ranks, kind="stable")
    console.print(
        f"Friedman χ² = {found.statistic:.2f}, p = {found.p:.3g}; mean ranks further apart than "
        f"{found.critical_difference:.2f} differ",
        highlight=False,
    )
    for n in order:
        console.print(f"{found.ranks[n]:6.2f}  {names[n]}", highlight=False, markup=False)
    content = {
        "metric": METRIC,
        "data": data,
        "statistic": found.statistic,
        "p": found.p,
        "critical_difference": found.critical_difference,
        "ranks": {names[n]: float(found.ranks[n]) for n in order},
        "values": {names[n]: dict(zip(data, table[:, n].tolist(), strict=True)) for n in order},
    }
    write_json(home / f"{STUDY}-ranks.json", content)
    return found
