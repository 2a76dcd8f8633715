"""What the parts of a hybrid reach alone on the test users, beside the whole and popularity."""

from __future__ import annotations

import copy
from typing import Any

from itemrec.data.split import Split
from itemrec.evaluation.evaluate import evaluate
from itemrec.evaluation.significance import paired_test
from itemrec.models.base import Model
from itemrec.models.hybrid import Hybrid
from itemrec.models.popularity import Popularity
from itemrec.training.run import Run


def part_metrics(run: Run, split: Split) -> dict[str, dict[str, Any]]:
    """The selecting metric of each part on test data, and the p-value of the paired t-test."""
    key = run.config["train"]["metric"]
    whole = run.per_user.get(key)
    if whole is None:  # at another cut-off than those of the test
        whole = evaluate(run.model, split, metrics=[key]).per_user[key]
    out = {}
    for name, part in _parts(run.model, split).items():
        found = evaluate(part, split, metrics=[key])
        out[name] = {
            key: found.metrics[key],
            "p": float(paired_test(whole, found.per_user[key]).p_t),
        }
    return out


def _parts(model: Model, split: Split) -> dict[str, Model]:
    assert isinstance(model, Hybrid)
    assert model.blend is not None
    network = copy.copy(model)  # shares the weights
    network.blend = tuple((least, prior, 0.0) for least, prior, _ in model.blend)
    popularity = Popularity()
    popularity.n_users, popularity.n_items = split.train.shape
    popularity.fit(split.train)
    popularity.to(model.device)
    return {"network and prior": network, "linear": model.linear, "popularity": popularity}
