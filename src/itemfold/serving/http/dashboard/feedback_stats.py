"""Click-through and coverage of each run from feedback events, with confidence intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

from itemfold.data.feedback.reading import EVENTS, TAKEN

TOP_ITEMS = 10


class Estimate(NamedTuple):
    """A proportion or a difference of two, with the ends of its confidence interval."""

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Estimate:
    """A proportion with Wilson's score interval (Wilson 1927), which also suits small numbers.

    Args:
        successes: Number of successes.
        trials: Number of trials, at least one.
        confidence: Probability that the interval contains the true proportion.

    Returns:
        The proportion and its interval.

    Examples:
        >>> [round(x, 4) for x in wilson(7, 10)]
        [0.7, 0.3968, 0.8922]
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = successes / trials, z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / trials + spread / trials / 4) / (1 + spread)
    # exact at the ends, where rounding would leave 1e-18
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Estimate(rate, low, high)


def difference(
    first: tuple[int, int], second: tuple[int, int], confidence: float = 0.95
) -> Estimate:
    """The first proportion minus the second, with Newcombe's interval (1998, method 10).

    Args:
        first: Successes and trials.
        second: Successes and trials.
        confidence: Probability that the interval contains the true difference.

    Returns:
        The difference and its interval.

    Examples:
        >>> [round(x, 4) for x in difference((56, 70), (48, 80))]
        [0.2, 0.0524, 0.3339]
    """
    a, b = wilson(*first, confidence), wilson(*second, confidence)
    value = a.value - b.value
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    high = value + math.hypot(a.high - a.value, b.value - b.low)
    return Estimate(value, low, high)


class Version(NamedTuple):
    """One version of a run."""

    run: str
    fingerprint: str


@dataclass
class VersionFeedback:
    """The events of one version.

    Attributes:
        events: Number of events by name.
        clicked: Shown items that the user clicked or liked afterwards.
        items: How often each item was shown.
    """

    events: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(EVENTS, 0)))
    clicked: int = 0
    items: Counter[str] = field(default_factory=Counter)

    @property
    def click_through(self) -> Estimate | None:
        """The fraction of shown items that were clicked or liked, None if none was shown."""
        shown = self.events["shown"]
        return wilson(self.clicked, shown) if shown else None

    @property
    def top_fraction(self) -> float:
        """The fraction of showings that the most shown items have."""
        top = sum(count for _, count in self.items.most_common(TOP_ITEMS))
        return top / max(1, self.events["shown"])


def tally(rows: Iterable[Mapping[str, Any]]) -> dict[Version, VersionFeedback]:
    """The feedback of each version, from events in the order of time.

    A click or like counts for one earlier showing of the same item to the same user by the same
    version, so a version has at most as many clicks as showings.
    """
    out: dict[Version, VersionFeedback] = {}
    waiting: Counter[int] = Counter()  # showings without a click, by version, user and item
    for row in rows:
        if row.get("event") not in EVENTS:
            continue  # damaged
        version = Version(str(row.get("run", "")), str(row.get("run_fingerprint", "")))
        found = out.setdefault(version, VersionFeedback())
        event, item = str(row["event"]), str(row.get("item_id"))
        showing = hash((version, str(row.get("user_id")), item))
        found.events[event] += 1
        if event == "shown":
            found.items[item] += 1
            waiting[showing] += 1
        elif event in TAKEN and waiting.get(showing, 0) > 0:
            waiting[showing] -= 1
            found.clicked += 1
    return out
