"""Metrics by activity: users new to the model, and light, middle and heavy ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Ints
from itemfold.evaluation.intervals import Interval, bootstrap_intervals

USER_COLUMNS = ("user", "history", "new")  # of per-user values; all others are metrics
THIRDS = ("light", "middle", "heavy")
PREFERRED = ("ndcg", "recall")  # metrics that tables by activity show


@dataclass(frozen=True)
class ActivityGroup:
    """Evaluated users of similar activity.

    Attributes:
        name: "all", "known", "new", "light", "middle" or "heavy".
        users: Number of users.
        least: Items in the shortest history.
        most: Items in the longest history.

    Examples:
        >>> from itemfold.evaluation.activity import ActivityGroup
        >>> ActivityGroup("light", users=40, least=1, most=4).label
        'light (1–4 items)'
    """

    name: str
    users: int
    least: int
    most: int

    @property
    def items(self) -> str:
        """The lengths of the histories, such as "1–4"."""
        return f"{self.least}" if self.least == self.most else f"{self.least}–{self.most}"

    @property
    def label(self) -> str:
        """The name with the lengths of the histories, such as "light (1–4 items)"."""
        return f"{self.name} ({self.items} item{'' if self.most == 1 else 's'})"


ByActivity = dict[ActivityGroup, dict[str, Interval]]


def activity_groups(history: Ints, is_new: Bools | None = None) -> dict[ActivityGroup, Bools]:
    """Group users by activity.

    The first group is "all". "new" and "known" follow if there are new users. Known users are
    divided into thirds by the length of their history; those with equal lengths stay together, in
    the third that the middle one of them is in. If that leaves two groups, they are "light" and
    "heavy"; if all known users are alike, there are none.

    Args:
        history: Number of items known of each user.
        is_new: Whether the model has no row for a user; None if that holds for all users or for
            none.

    Returns:
        The users of each group that has any, as a mask.

    Examples:
        >>> import numpy as np
        >>> from itemfold.evaluation.activity import activity_groups
        >>> [group.label for group in activity_groups(np.array([1, 1, 2, 3, 9]))][1:]
        ['light (1 item)', 'middle (2 items)', 'heavy (3–9 items)']
    """
    new = np.zeros(len(history), bool) if is_new is None else np.asarray(is_new, bool)
    masks = {"all": np.ones(len(history), bool)}
    if new.any():
        masks |= {"new": new, "known": ~new}
    masks |= _thirds(history, ~new)
    return {
        ActivityGroup(
            name, int(mask.sum()), int(history[mask].min()), int(history[mask].max())
        ): mask
        for name, mask in masks.items()
        if mask.any()
    }


def _thirds(history: Ints, known: Bools) -> dict[str, Bools]:
    """Known users by the length of their history; empty if that makes fewer than two groups."""
    lengths, counts = np.unique(history[known], return_counts=True)
    third = 3 * (2 * np.cumsum(counts) - counts) // (2 * max(counts.sum(), 1))  # [lengths]
    filled = np.unique(third)
    if len(filled) < 2:
        return {}
    names = THIRDS if len(filled) == 3 else (THIRDS[0], THIRDS[-1])
    return {
        name: known & np.isin(history, lengths[third == value])
        for name, value in zip(names, filled, strict=True)
    }


def by_activity(
    per_user: Mapping[str, npt.NDArray[Any]], metrics: Sequence[str], seed: int = 0
) -> ByActivity:
    """Means of metrics in each group, with bootstrap 95 % intervals.

    Args:
        per_user: Columns "history", "new" if it is known, and the metrics, as in `Run.per_user`.
        metrics: Names of columns.
        seed: Seed of the resampling.
    """
    groups = activity_groups(per_user["history"], per_user.get("new"))
    return {
        group: bootstrap_intervals({name: per_user[name][mask] for name in metrics}, seed)
        for group, mask in groups.items()
    }


def shown_metrics(names: Iterable[str]) -> list[str]:
    """The metrics that tables by activity show: NDCG and recall, or else the first.

    >>> shown_metrics(["recall@10", "ndcg@10", "recall@20", "ndcg@20"])
    ['ndcg@10', 'recall@10']
    >>> shown_metrics(["user", "hit@5", "ap"])
    ['hit@5']
    """
    known = [name for name in names if name not in USER_COLUMNS]
    found = [next((n for n in known if n.partition("@")[0] == name), None) for name in PREFERRED]
    return [name for name in found if name is not None] or known[:1]


def merged_group(name: str, runs: Iterable[ByActivity]) -> ActivityGroup:
    """The group of a name in several runs: its bounds in all of them, and its most users."""
    found = [group for run in runs for group in run if group.name == name]
    least, most = min(group.least for group in found), max(group.most for group in found)
    return ActivityGroup(name, max(group.users for group in found), least, most)


def activity_record(found: ByActivity) -> list[dict[str, Any]]:
    """Groups as `metrics.json` stores them."""
    return [
        asdict(group) | {metric: asdict(interval) for metric, interval in metrics.items()}
        for group, metrics in found.items()
    ]


def stored_activity(
    metrics: Mapping[str, Any], per_user: Mapping[str, npt.NDArray[Any]]
) -> ByActivity:
    """The groups of a stored run; those of an older folder come from its per-user values.

    Such a folder does not store which users are new, so it has no group of them.
    """
    if "activity" not in metrics:
        return by_activity(per_user, shown_metrics(per_user)) if "history" in per_user else {}
    out: ByActivity = {}
    for entry in metrics["activity"]:
        fields = {key: entry[key] for key in ("name", "users", "least", "most")}
        values = {key: Interval(**entry[key]) for key in entry if key not in fields}
        out[ActivityGroup(**fields)] = values
    return out
