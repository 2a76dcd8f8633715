"""The design of the study of ranking losses: equal random search for every loss, and its suites.

Four suites of LightGCN are written to the folder of results and run like any other:

- ``ranking-losses-trials``: every loss with TRIALS settings, LOSS-1 to LOSS-10, on one seed. All
  losses share the same quantiles: trial 3 has the same learning rate, L2 weight and number of
  negatives for each, and the same place in the range of its temperature and own settings. All
  losses make a trial before any makes the next.
- ``ranking-losses``: every loss with the settings that were best on validation, on several seeds.
- ``ranking-losses-tau``: the same with another temperature, LOSS-PERCENT of the best.
- ``ranking-losses-noise``: the same with false negatives, LOSS-PERCENT of each list.

Another model has the first two, as ``ranking-losses-MODEL-trials`` and ``ranking-losses-MODEL``,
for the better half of the losses on LightGCN and the data sets whose users it can score.

A suite that was written before keeps what it has on other data sets, and further trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from itemfold.experiments.search_space import OF_LOSSES
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.store import Result
from itemfold.files import write_text
from itemfold.losses import LOSSES
from itemfold.models import MODELS
from itemfold.settings.toml_file import read_toml
from itemfold.validation import schema

STUDY = "ranking-losses"
TRIALS_OF, TAU_OF, NOISE_OF = f"{STUDY}-trials", f"{STUDY}-tau", f"{STUDY}-noise"
FIRST_MODEL = "lightgcn"  # runs every loss; other models run the better half of them
METRIC = "ndcg@20"
COLUMNS = ["recall@20", "head_recall@20", "tail_recall@20", "ndcg@5", "ndcg@100", METRIC]
DATA = ("electronic", "food", "ml-1m", "yelp2018", "ml-latest-small/inductive")
MORE_SEEDS = {"ml-latest-small": 5}
# an epoch has seven steps on electronic, sixteen on yelp2018, three on the next two, and then one
MORE_EPOCHS = {"yelp2018": 0.4, "food": 2, "ml-1m": 2, "ml-latest-small": 3}
# losses of cosines in their papers; the others compare products, and LOSS-dot does, too
DOT = "-dot"
COSINE = ("softmax", "sampled-softmax", "bsl", "psl", "sl-at-k", "adv-info-nce", "bc", "ccl")
# 1: it has no negatives; 50: its cost is the square of the length of a list
FIXED_NEGATIVES = {"direct-au": 1, "neural-ndcg": 50}
LR, L2, NEGATIVES = (3e-4, 3e-2), (1e-6, 1e-2), (100, 400)
TAU = {True: (0.02, 0.5), False: (0.1, 3.0)}  # of cosines, of products
# MF has no messages that smooth its vectors: it starts from small ones, and has weight decay of all
# vectors in every step instead of L2 of those of a batch
OF_MODELS = {"mf": {"model": {"init_std": 0.01}, "train": {"l2": 0.0}}}
WEIGHT_DECAY = (1e-8, 1e-4)
DIMENSIONS = 6  # lr, l2, negatives, tau, and two settings of a loss

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """The model, losses and data sets of the study, and its effort."""

    losses: tuple[str, ...] = (*LOSSES, f"softmax{DOT}")
    model: str = FIRST_MODEL
    data: tuple[str, ...] = DATA
    trials: int = 10
    seeds: int = 3
    epochs: int = 200
    dim: int = 64
    negatives: tuple[int, ...] = NEGATIVES
    tau_percent: tuple[int, ...] = (33, 100, 300)  # of the best temperature
    false_percent: tuple[int, ...] = (0, 5, 20)  # of a list are the user's own items

    @property
    def title(self) -> str:
        """The subject of the pages."""
        of_model = "" if self.model == FIRST_MODEL else f" on {MODELS[self.model].__name__}"
        return f"Ranking losses{of_model}"

    def suite(self, name: str) -> str:
        """The name of a suite for the model of this study."""
        model = "" if self.model == FIRST_MODEL else f"-{self.model}"
        return name.replace(STUDY, f"{STUDY}{model}")


QUICK = Study(
    data=("synthetic:users=90,items=70", "synthetic:users=90,items=70/inductive"),
    losses=("bpr", "softmax", "item-log", "sl-at-k"),
    trials=2,
    seeds=1,
    epochs=2,
    dim=8,
    negatives=(5, 10),
    tau_percent=(50, 100),
    false_percent=(0, 20),
)


def trial_settings(loss: str, study: Study) -> list[dict[str, dict[str, Any]]]:
    """The settings of every trial of a loss: random, with the same quantiles for all losses."""
    quantiles = np.random.default_rng(0).random((study.trials, DIMENSIONS))
    cosine, loss = loss in COSINE, loss.removesuffix(DOT)
    fixed = OF_MODELS.get(study.model, {})
    own = [
        (path.partition(".")[2], text)
        for path, text in OF_LOSSES.items()
        if path.startswith(f"{loss}.")
    ]
    out = []
    for lr, l2, negatives, tau, *others in quantiles.tolist():
        n = study.negatives[int(negatives * len(study.negatives))]
        train: dict[str, Any] = {"lr": _between(LR, lr), "l2": _between(L2, l2)}
        train |= fixed.get("train", {})
        train["n_negatives"] = FIXED_NEGATIVES.get(loss, n)
        train["similarity"] = "cosine" if cosine else "dot"
        settings: dict[str, Any] = {"name": loss}
        if has_tau(loss):
            settings["tau"] = _between(TAU[cosine], tau)
        for (name, text), quantile in zip(own, others, strict=False):
            low, high = map(float, text.split(".."))
            settings[name] = _between((low, high), quantile)
        trial = {"loss": settings, "train": train}
        if "model" in fixed:
            trial["model"] = {**fixed["model"], "weight_decay": _between(WEIGHT_DECAY, l2)}
        out.append(trial)
    return out


def has_tau(loss: str) -> bool:
    """Whether a loss has a temperature."""
    return "tau" in schema(LOSSES[loss])


def _between(ends: tuple[float, float], quantile: float) -> float:
    """A quantile of a range, logarithmic if it spans a factor of ten, to three digits."""
    low, high = ends
    if low > 0 and high / low >= 10:
        value = low * (high / low) ** quantile
    else:
        value = low + (high - low) * quantile
    return float(f"{value:.3g}")


def write_suite(folder: Path, name: str, study: Study, rows: Sequence[Row], **table: Any) -> Path:
    """Write a suite of the study, or extend the existing one; returns its file."""
    path = folder / f"{name}.toml"
    stored = read_toml(path) if path.exists() else {"data": [], "row": []}
    data = sorted(
        {Entry.parse(data).key: data for data in (*stored["data"], *study.data)}.values(),
        key=_place,
    )
    rows = _merged(stored["row"], rows)
    names = [row["name"] for row in rows]
    content = {
        "title": f"{study.title} under equal tuning",
        "baseline": "softmax" if "softmax" in names else names[0],
        "columns": COLUMNS,
        "data": data,
        "seeds": study.seeds,
        **table,
        "defaults": {
            "split": {"rounding": "nearest"},
            "model": {"dim": study.dim},
            # a step takes lists of users for every loss, also for those made for single pairs
            "train": {"batch_by": "users", **_length(study.epochs)},
            "on": {
                # the best trial is then the run with the first seed
                "transductive": {"train": {"refit": False}},
                **{
                    name: {"train": _length(round(study.epochs * factor))}
                    for name, factor in MORE_EPOCHS.items()
                    if name in map(_base, data)
                },
            },
        },
        "row": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, tomli_w.dumps(content))
    return path


def _place(data: str) -> tuple[int, str]:
    """The position of a data set in the study."""
    key, keys = Entry.parse(data).key, [Entry.parse(each).key for each in DATA]
    return (keys.index(key) if key in keys else len(keys)), data


def _merged(stored: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """New rows merged with stored ones, including their settings on other data sets."""
    known, new = ({row["name"]: row for row in some} for some in (stored, rows))
    out = [known.get(name, {}) | row for name, row in new.items()]
    for row in out:
        old = known.get(row["name"], {})
        if "on" in row:
            row["on"] = old.get("on", {}) | row["on"]
            row["data"] = sorted(row["on"], key=_place)
    return out + [row for name, row in known.items() if name not in new]


def _length(epochs: int) -> dict[str, int]:
    patience = max(epochs // 5, 1)
    return {"epochs": epochs, "patience": patience, "eval_every": max(patience // 4, 1)}


def trial_rows(study: Study) -> list[Row]:
    """A row for every trial; all losses have their first trial before any has its second."""
    settings = {loss: trial_settings(loss, study) for loss in study.losses}
    return [
        {"name": f"{loss}-{number + 1}", "baseline": f"{loss}-{number + 1}"}  # no paired tests
        | {"model": {"name": study.model, **settings[loss][number].get("model", {})}}
        | {"loss": settings[loss][number]["loss"]}
        | {"train": {**settings[loss][number]["train"], "refit": False}}
        for number in range(study.trials)
        for loss in study.losses
    ]


def chosen_rows(study: Study, results: Sequence[Result]) -> list[Row]:
    """A row for every loss, with the trial of each data set that was best on validation.

    A trial without a result has failed: its loss became infinite.
    """
    found = {(r["data"], r["row"]): r["valid"][METRIC] for r in results if int(r["seed"]) == 0}
    out = []
    for loss in study.losses:
        row: Row = {
            "name": loss,
            "model": {"name": study.model},
            "loss": {"name": loss.removesuffix(DOT)},
        }
        trials, on = trial_settings(loss, study), {}
        for key in (Entry.parse(data).key for data in study.data):
            values = [found.get((key, f"{loss}-{n}"), -1.0) for n in range(1, len(trials) + 1)]
            if max(values) < 0:
                continue
            best = trials[int(np.argmax(values))]
            own = {key: value for key, value in best["loss"].items() if key != "name"}
            seeds = {"seeds": MORE_SEEDS[_base(key)]} if _base(key) in MORE_SEEDS else {}
            of_model = {"model": best["model"]} if "model" in best else {}
            on[key] = {
                "train": best["train"],
                **({"loss": own} if own else {}),
                **of_model,
                **seeds,
            }
        if on:
            out.append({**row, "on": on, "data": list(on)})
    return out


def tau_rows(study: Study, chosen: Sequence[Row]) -> list[Row]:
    """Chosen rows with other temperatures, one seed each."""
    rows = [row for row in chosen if has_tau(row["loss"]["name"])]
    return [
        _variant(row, percent, tau_factor=percent / 100)
        for row in rows
        for percent in study.tau_percent
    ]


def noise_rows(study: Study, chosen: Sequence[Row]) -> list[Row]:
    """Chosen rows with false negatives, one seed each."""
    rows = [row for row in chosen if row["loss"]["name"] != "direct-au"]
    out = []
    for row in rows:
        for percent in study.false_percent:
            noise = {"name": "false-negatives", "share": percent / 100}
            negatives = noise if percent else {"name": "uniform"}
            out.append({**_variant(row, percent), "negatives": negatives})
    return out


def _variant(row: Row, percent: int, tau_factor: float = 1.0) -> Row:
    """A variant of a chosen row with another name, for one seed, without paired tests."""
    name, on = f"{row['name']}-{percent}", {}
    for key, settings in row["on"].items():
        on[key] = {**settings, "seeds": 1}
        if "tau" in settings.get("loss", {}):
            tau = settings["loss"]["tau"]
            on[key]["loss"] = {**settings["loss"], "tau": float(f"{tau * tau_factor:.3g}")}
    return {**row, "name": name, "baseline": name, "on": on}


def _base(data: str) -> str:
    return data.partition("/")[0]
