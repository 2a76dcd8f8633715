"""`compare`: paired tests of runs, and of evaluations of anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools
from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import (
    USER_COLUMNS,
    ActivityGroup,
    activity_groups,
    shown_metrics,
)
from itemfold.evaluation.evaluation import Evaluation
from itemfold.evaluation.intervals import bootstrap_interval
from itemfold.evaluation.paired_values import COMPARED_METRICS, EvaluatedRun, Values, paired_values
from itemfold.evaluation.significance import Comparison, compare_values, mean_over_seeds
from itemfold.validation import shown

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, repr=False)
class ComparedRuns:
    """Systems on the same users, each tested against the first.

    Attributes:
        tests: Every other system against the first: differences, intervals and p-values.
        values: Each user's value of each metric, by system; means over seeds.
        notes: What was compared.
    """

    tests: Comparison
    values: Values
    notes: tuple[str, ...]

    def to_frame(self) -> pl.DataFrame:
        """A polars frame with a row for each metric and system.

        Returns:
            Columns metric, system, mean, low and high (of the 95 % interval), and for all but the
            first system difference, p_t and p_wilcoxon (Holm-corrected).
        """
        import polars as pl

        rows = []
        for metric in self.values[self.tests.baseline]:
            for system, own in self.values.items():
                found = bootstrap_interval(own[metric])
                row = {"metric": metric, "system": system, "mean": found.mean}
                row |= {"low": found.low, "high": found.high}
                if system != self.tests.baseline:
                    tested = self.tests.row(system, metric)
                    row |= {"difference": tested.test.difference, "p_t": tested.p_t}
                    row |= {"p_wilcoxon": tested.p_wilcoxon}
                rows.append(row)
        floats = dict.fromkeys(("difference", "p_t", "p_wilcoxon"), pl.Float64)
        return pl.DataFrame(rows, schema_overrides=floats, infer_schema_length=None)

    def __repr__(self) -> str:
        """A table, for notebooks."""
        width = max(map(len, self.values))
        lines = ["; ".join(self.notes)]
        for row in self.to_frame().iter_rows(named=True):
            text = f"{row['metric']:<16} {row['system']:<{width}} {row['mean']:.4f}"
            if row["p_t"] is not None:
                text += f"  {row['difference']:+.4f}  p = {row['p_t']:.3g}"
            lines.append(text)
        return "\n".join(lines)


def compare(*systems: Any, metrics: Sequence[str] | None = None, **named: Any) -> ComparedRuns:
    """Compare systems on the users that all of them evaluated; the first is the baseline.

    Runs that differ only in their seeds are one system, tested over users and seeds.

    Args:
        *systems: Runs, or results of `evaluate`; they are named by their models, or system 1, 2 …
        metrics: Metrics that all have, such as "ndcg@20". Default: recall and NDCG.
        **named: Further systems under names of your own.

    Returns:
        Means with intervals, and paired tests with Holm's correction.

    Raises:
        ItemfoldError: There are fewer than two systems, they have no users in common, or a metric
            is missing.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=200,items=80,interactions=3000"))
        >>> ease = ir.train(split, ir.models.EASE())
        >>> together = split.train.T @ split.train
        >>> theirs = ir.evaluate(lambda history, users: history @ together, split)
        >>> found = ir.compare(ease, theirs=theirs, metrics=["ndcg@20"])
        >>> found.to_frame()["system"].to_list()
        ['ease', 'theirs']
        >>> 0 <= found.tests.row("theirs", "ndcg@20").p_t <= 1
        True
    """
    runs = _named(systems, named)
    if metrics is None:  # the usual ones; if a system lacks them, NDCG and recall at any cut-off
        first, *others = (list(run.per_user) for run in runs.values())
        known = [m for m in first if m not in USER_COLUMNS and all(m in other for other in others)]
        metrics = [m for m in COMPARED_METRICS if m in known] or shown_metrics(known)
    return compare_runs(runs, metrics)


def _named(systems: Sequence[Any], named: Mapping[str, Any]) -> dict[str, EvaluatedRun]:
    """Every system under a name, as runs; an evaluation has the data of the first run."""
    out: dict[str, Any] = {}
    for number, system in enumerate(systems, start=1):
        name = str(system.metrics["model"]) if hasattr(system, "config") else f"system {number}"
        out[f"{name} {number}" if name in out else name] = system
    out |= named
    for name, system in out.items():
        if not (hasattr(system, "per_user") and hasattr(system, "metrics")):
            raise ItemfoldError(
                f"{name!r} must be a Run or the result of evaluate, got {shown(system)}; load a "
                "folder with Run.load(folder)"
            )
    runs = [system for system in out.values() if not isinstance(system, Evaluation)]
    about = {"protocol": runs[0].protocol, "dataset": runs[0].dataset} if runs else {}
    about |= {"config": {"split": runs[0].config.get("split", {})}} if runs else {}
    return {
        name: _Evaluated(system.columns, {"test": system.metrics}, **about)
        if isinstance(system, Evaluation)
        else system
        for name, system in out.items()
    }


@dataclass
class _Evaluated:
    """An evaluation with the attributes of a run that a comparison uses."""

    per_user: dict[str, npt.NDArray[Any]]
    metrics: dict[str, Any]
    protocol: str = ""
    dataset: dict[str, Any] = field(default_factory=lambda: {"fingerprint": ""})
    config: dict[str, dict[str, Any]] = field(default_factory=dict)


def compare_runs(
    runs: Mapping[str, EvaluatedRun], metrics: Sequence[str] | None = None
) -> ComparedRuns:
    """Compare every run with the first: paired tests with Holm's correction.

    Runs that differ only in their seeds are one system, tested over users and seeds, unless there
    is no other system.
    """
    values, _, notes = paired_values(runs, metrics)
    means = {n: {m: mean_over_seeds(v) for m, v in own.items()} for n, own in values.items()}
    return ComparedRuns(compare_values(values, next(iter(values))), means, notes)


@dataclass(frozen=True)
class ActivityComparison:
    """A comparison of one metric in each group of users by activity.

    Attributes:
        metric: The metric.
        groups: The groups, without that of all users.
        found: A row for each system and group; its `metric` is the name of the group.
    """

    metric: str
    groups: tuple[ActivityGroup, ...]
    found: Comparison


def compare_by_activity(
    runs: Mapping[str, EvaluatedRun], metric: str = "ndcg@20"
) -> ActivityComparison:
    """Compare every run with the first as `compare_runs` does, in each group of users.

    A user's group depends on the history in the first run that evaluated the user. Holm's
    correction is over all groups and systems. There are no groups if all users are alike, or if
    the runs do not store the histories.
    """
    values, users, _ = paired_values(runs, [metric])
    first = next(iter(values))
    (key,) = values[first]
    masks = _groups_of_users(runs, users)
    of_groups = {
        system: {group.name: own[key][..., mask] for group, mask in masks.items()}
        for system, own in values.items()
    }
    return ActivityComparison(key, tuple(masks), compare_values(of_groups, first))


def _groups_of_users(
    runs: Mapping[str, EvaluatedRun], users: npt.NDArray[Any]
) -> dict[ActivityGroup, Bools]:
    """Groups of users, as masks, without that of all users."""
    history, is_new = np.full(len(users), -1, np.int64), np.zeros(len(users), bool)
    for run in reversed(list(runs.values())):
        if "history" not in run.per_user:
            return {}
        rows = IdMap(users).index(run.per_user["user"])
        rows, known = rows[rows >= 0], rows >= 0
        history[rows] = run.per_user["history"][known]
        is_new[rows] = run.per_user["new"][known] if "new" in run.per_user else False
    return {g: mask for g, mask in activity_groups(history, is_new).items() if g.name != "all"}
