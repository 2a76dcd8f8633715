"""What a slider costs: accuracy and the other metrics of lists at each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from itemrec.data.item_table import ItemTable
from itemrec.data.split import HeldOut, Split
from itemrec.evaluation.evaluate import (
    TrainedRun,
    check_held_out,
    facts_of,
    says_something,
    scorer_of,
)
from itemrec.evaluation.evaluator import Evaluator, sample_users
from itemrec.evaluation.metrics import parse_metric
from itemrec.reranking.steering import SLIDERS, Steering
from itemrec.validation import one_of, positive_integer

VALUES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.0)
MEASURED = (
    *("ndcg", "diversity", "genre_diversity", "miscalibration"),
    *("coverage", "gini", "popularity_bias"),
)


@dataclass(frozen=True)
class Point:
    """The metrics of lists at one value of a slider."""

    value: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Sweep:
    """A slider from 0 to 1, and the users it was measured on."""

    slider: str
    k: int
    users: int
    points: tuple[Point, ...]

    def measures(self, name: str) -> bool:
        """Whether a metric, such as "ndcg", was measured."""
        return f"{name}@{self.k}" in self.points[0].metrics

    def series(self, name: str) -> list[float]:
        """The values of a metric, such as "ndcg", at each value of the slider."""
        return [point.metrics[f"{name}@{self.k}"] for point in self.points]

    def at_loss(self, loss: float, name: str, of: str = "ndcg") -> tuple[float, float] | None:
        """Where accuracy has lost this share: the slider, and the change of a metric there.

        Between two values everything is taken to be linear. None if it never loses as much.
        """
        accuracy, other = (np.array(self.series(metric)) for metric in (of, name))
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
    """The test users of a run with their scores, which every setting ranks again.

    Args:
        run: A trained run.
        split: Its split.
        k: Length of the lists.
        item_table: More columns of the items, and which of them are available.
        most_users: The most users to measure on, evenly spaced; default: as many as can be held.
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
        model = scorer_of(run, split)
        self.k, self.facts = positive_integer("k", k), facts_of(model, run, split, item_table)
        self.evaluator = Evaluator(_spaced(held, most_users), run.model.device)
        self.evaluator.steer(self.facts, Steering())
        self.blocks = list(self.evaluator.blocks(model))
        names = [name for name in MEASURED if says_something(name, self.facts)]
        self.wanted = [parse_metric(f"{name}@{k}") for name in names]

    def sweep(
        self, slider: str, base: Steering | None = None, values: Sequence[float] = VALUES
    ) -> Iterator[Point]:
        """The metrics at each value of a slider, the other settings as they are."""
        one_of("sweep", slider, SLIDERS)
        for value in values:
            changed: dict[str, Any] = {slider: float(value)}
            steering = replace(base or Steering(), **changed)
            self.evaluator.steer(self.facts, steering)
            of_users, of_all = self.evaluator.values_of(self.blocks, self.wanted, self.facts)
            yield Point(value, {k: float(np.mean(v)) for k, v in of_users.items()} | of_all)

    def gathered(self, slider: str, points: Sequence[Point]) -> Sweep:
        """The points of a slider as a curve."""
        return Sweep(slider, self.k, len(self.evaluator.held), tuple(points))


def _spaced(held: HeldOut, most: int | None) -> HeldOut:
    if most is None or len(held) <= most:
        return held
    rows = np.unique(np.linspace(0, len(held) - 1, most).astype(np.int64))
    return held.take(rows)
