"""Trade-off curves: accuracy and other metrics of lists at each value of a re-ranking slider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from itemfold.data.items.item_table import ItemTable
from itemfold.data.splitting.split import Split
from itemfold.evaluation.evaluate import (
    TrainedRun,
    check_held_out,
    is_informative,
    item_facts_of,
    scorer_of,
)
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.evaluation.metrics import parse_metric
from itemfold.reranking.steering import SLIDERS, Steering
from itemfold.validation import one_of, positive_integer

SLIDER_VALUES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.0)
MEASURED = (
    *("ndcg", "diversity", "genre_diversity", "miscalibration"),
    *("coverage", "gini", "popularity_bias"),
)


@dataclass(frozen=True)
class SweepPoint:
    """The metrics of lists at one value of a slider."""

    value: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Sweep:
    """The metrics along a slider, and the number of users they were measured on."""

    slider: str
    k: int
    users: int
    points: tuple[SweepPoint, ...]

    def measures(self, name: str) -> bool:
        """Whether a metric such as "ndcg" was measured."""
        return f"{name}@{self.k}" in self.points[0].metrics

    def series(self, name: str) -> list[float]:
        """A metric such as "ndcg" at each value of the slider."""
        return [point.metrics[f"{name}@{self.k}"] for point in self.points]

    def at_loss(self, loss: float, name: str) -> tuple[float, float] | None:
        """The slider where NDCG has lost this share, and the relative change of a metric there.

        Values are interpolated linearly. None if NDCG never loses as much.
        """
        accuracy, other = (np.array(self.series(metric)) for metric in ("ndcg", name))
        floor = (1 - loss) * accuracy[0]
        below = np.flatnonzero(accuracy < floor)
        if not len(below) or not other[0]:
            return None
        after = int(below[0])
        step = (accuracy[after - 1] - floor) / (accuracy[after - 1] - accuracy[after])
        slider = np.array([point.value for point in self.points])
        at, value = (v[after - 1] + step * (v[after] - v[after - 1]) for v in (slider, other))
        return float(at), float(value / other[0] - 1)


class Sweeper:
    """Measures re-ranking settings on the test users of a run, whose scores are computed once.

    Args:
        run: A trained run.
        split: Its split.
        k: Length of the lists.
        item_table: More columns of the items, and which of them are available.
        most_users: Maximum number of users, evenly spaced; default: as many as fit into memory.
    """

    def __init__(
        self,
        run: TrainedRun,
        split: Split,
        *,
        k: int = 20,
        item_table: ItemTable | None = None,
        most_users: int | None = None,
    ) -> None:
        held = sample_users(check_held_out(run, split), run.model.device)
        if most_users is not None and len(held) > most_users:
            spaced = np.linspace(0, len(held) - 1, most_users).astype(np.int64)
            held = held.take(np.unique(spaced))
        model = scorer_of(run, split)
        self.k, self.facts = positive_integer("k", k), item_facts_of(model, run, split, item_table)
        self.evaluator = Evaluator(held, run.model.device)
        self.evaluator.steer(self.facts, Steering())
        self.blocks = list(self.evaluator.blocks(model))
        names = [name for name in MEASURED if is_informative(name, self.facts)]
        self.wanted = [parse_metric(f"{name}@{k}") for name in names]

    def sweep(
        self, slider: str, base: Steering | None = None, values: Sequence[float] = SLIDER_VALUES
    ) -> Iterator[SweepPoint]:
        """The metrics at each value of a slider; other settings are those of ``base``."""
        one_of("sweep", slider, SLIDERS)
        for value in values:
            changed: dict[str, Any] = {slider: float(value)}
            steering = replace(base or Steering(), **changed)
            self.evaluator.steer(self.facts, steering)
            of_users, of_all = self.evaluator.values_of(self.blocks, self.wanted, self.facts)
            yield SweepPoint(value, {k: float(np.mean(v)) for k, v in of_users.items()} | of_all)

    def gathered(self, slider: str, points: Sequence[SweepPoint]) -> Sweep:
        """The points of a slider as a curve."""
        return Sweep(slider, self.k, len(self.evaluator.held), tuple(points))
