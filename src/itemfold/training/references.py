"""Reference models of a tested run: popularity, and each part of a hybrid alone."""

from __future__ import annotations

from typing import Any

from itemfold.data.splitting.split import Split
from itemfold.evaluation.evaluate import evaluate
from itemfold.evaluation.intervals import bootstrap_interval
from itemfold.evaluation.metrics import headline_metrics
from itemfold.evaluation.significance import paired_test
from itemfold.models.base import Model
from itemfold.models.popularity import Popularity
from itemfold.training.run import Run

POPULARITY = "popularity"


def popularity_model(split: Split, device: Any) -> Popularity:
    """Popularity in the training part of a split."""
    out = Popularity()
    out.n_users, out.n_items = split.train.shape
    out.solve(split.train)
    out.to(device)
    return out


def add_references(run: Run, parts: dict[str, Model], split: Split) -> None:
    """Store the headline metrics of popularity and of each part, with a paired test each.

    ``metrics["popularity"]`` is left out for a run of popularity itself.
    """
    key = run.config["train"]["metric"]
    whole = run.per_user.get(key)
    if whole is None:  # the metric has another cut-off than those of the test
        whole = evaluate(run.model, split, metrics=[key]).per_user[key]
    wanted = list(dict.fromkeys([key, *headline_metrics(run.metrics["test"])]))

    def record(model: Model) -> dict[str, float]:
        found = evaluate(model, split, metrics=wanted)
        test = paired_test(found.per_user[key], whole, wilcoxon=False)
        interval = bootstrap_interval(found.per_user[key] - whole)
        tested = {"difference": test.difference, "low": interval.low, "high": interval.high}
        return {**found.metrics, **tested, "p": test.p_t}

    if parts:
        run.metrics["parts"] = {name: record(part) for name, part in parts.items()}
    if POPULARITY in parts:
        run.metrics[POPULARITY] = run.metrics["parts"][POPULARITY]
    elif not isinstance(run.model, Popularity):
        run.metrics[POPULARITY] = record(popularity_model(split, run.model.device))
