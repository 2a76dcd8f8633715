"""`Evaluation`: metrics averaged over users, with their per-user values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import ActivityGroup, ByActivity, by_activity, shown_metrics
from itemfold.evaluation.intervals import Interval, bootstrap_interval, bootstrap_intervals

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Evaluation:
    """Metrics averaged over users, together with their per-user values.

    Attributes:
        metrics: The mean of each metric.
        per_user: Per-user values of each metric.
        ids: External ids of the evaluated users.
        history: Number of items in each user's history.
        is_new: Whether each user is new: without a row in the training data of a transductive
            split. None in an inductive split, where that holds for all users.
        notes: Sentences about what was left out.

    Examples:
        >>> import numpy as np
        >>> import itemfold as ir
        >>> values = {"hit@1": np.array([0.0, 1.0, 1.0, 1.0])}
        >>> result = ir.Evaluation({"hit@1": 0.75}, values, np.arange(4), np.ones(4, np.int64))
        >>> low, high = result.interval("hit@1")
        >>> low <= 0.75 <= high
        True
        >>> print(ir.Evaluation({"coverage@10": 0.75}, {}, result.ids, result.history))
        4 users
        coverage@10 0.7500
    """

    metrics: dict[str, float]
    per_user: dict[str, npt.NDArray[np.float64]]  # [users] each
    ids: npt.NDArray[Any]  # [users]
    history: npt.NDArray[np.int64]  # [users]
    is_new: Bools | None = None  # [users]
    notes: tuple[str, ...] = ()

    def interval(self, metric: str, seed: int = 0) -> tuple[float, float]:
        """Bootstrap 95 % interval of a metric's mean over users.

        Args:
            metric: One of `per_user`, such as "ndcg@20".
            seed: Seed of the resampling.

        Returns:
            The lower and the upper bound.

        Raises:
            ItemfoldError: The metric has no per-user values.
        """
        self._check_metric(metric)
        found = bootstrap_interval(self.per_user[metric], seed=seed)
        return found.low, found.high

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Ids, history lengths, whether users are new, and metrics, as `Run.per_user` has them."""
        out = {"user": self.ids, "history": self.history}
        if self.is_new is not None:
            out["new"] = self.is_new
        return {**out, **self.per_user}

    @property
    def activity(self) -> ByActivity:
        """NDCG and recall by activity, as `metrics.json` of a run has them."""
        return by_activity(self.columns, shown_metrics(self.per_user))

    def by_activity(self, metric: str = "ndcg@20", seed: int = 0) -> dict[ActivityGroup, Interval]:
        """A metric of all users, of new and known users, and of light, middle and heavy ones.

        Light, middle and heavy are thirds of the known users by the length of their history; users
        with histories of the same length stay together.

        Args:
            metric: One of `per_user`, such as "ndcg@20".
            seed: Seed of the resampling.

        Returns:
            The mean with its bootstrap 95 % interval, for each group that has users.

        Raises:
            ItemfoldError: The metric has no per-user values.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_window(ir.load("synthetic:users=200,items=80,interactions=3000"))
            >>> result = ir.evaluate(ir.train(split, ir.models.Popularity()), split)
            >>> [group.name for group in result.by_activity("recall@20")]
            ['all', 'new', 'known', 'light', 'middle', 'heavy']
        """
        self._check_metric(metric)
        found = by_activity(self.columns, [metric], seed)
        return {group: metrics[metric] for group, metrics in found.items()}

    def to_frame(self, *, per_user: bool = False) -> pl.DataFrame:
        """The metrics as a polars frame.

        Args:
            per_user: A row for each user instead of each metric.

        Returns:
            Columns metric, mean, low and high (of the 95 % interval, null for metrics of all lists
            together), or the columns of `columns`.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> result = ir.evaluate(ir.train(split, ir.models.EASE()), split, metrics=["ndcg@10"])
            >>> result.to_frame().columns, result.to_frame(per_user=True).columns
            (['metric', 'mean', 'low', 'high'], ['user', 'history', 'ndcg@10'])
        """
        import polars as pl

        if per_user:
            return pl.DataFrame(self.columns)
        bounds = bootstrap_intervals(self.per_user)
        return pl.DataFrame(
            {
                "metric": list(self.metrics),
                "mean": list(self.metrics.values()),
                "low": [bounds[m].low if m in bounds else None for m in self.metrics],
                "high": [bounds[m].high if m in bounds else None for m in self.metrics],
            },
            schema_overrides={"low": pl.Float64, "high": pl.Float64},
        )

    def _check_metric(self, metric: str) -> None:
        if metric not in self.per_user:
            raise ItemfoldError(
                f"'metric' must be one of {', '.join(self.per_user)}, got {metric!r}"
            )

    def __repr__(self) -> str:
        """A table of the metrics, for notebooks."""
        lines = [f"{len(self.ids):,} users"]
        width = max(map(len, self.metrics), default=0)
        for name, value in self.metrics.items():
            text = f"{name:<{width}} {value:.4f}"
            if name in self.per_user:
                low, high = self.interval(name)
                text += f"  [{low:.4f}, {high:.4f}]"
            lines.append(text)
        return "\n".join(lines)
