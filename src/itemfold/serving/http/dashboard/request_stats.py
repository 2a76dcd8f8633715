"""Requests and latencies from the Prometheus metrics, which cover all workers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "itemfold_"
PAGE = "page"  # all files of the page together


@dataclass
class RequestStats:
    """Requests since the service was started.

    Attributes:
        counts: Number of answers by path and status.
        buckets: Number of answers by path that took at most so many seconds.
        gauges: Other numbers by name.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    buckets: dict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))
    gauges: Counter[str] = field(default_factory=Counter)

    @classmethod
    def parse(cls, exposition: bytes) -> RequestStats:
        """The statistics in the text that Prometheus reads."""
        out = cls()
        for family in text_string_to_metric_families(exposition.decode()):
            for name, labels, value, *_ in family.samples:
                path = labels.get("path", "")
                if path in ("/", "/dashboard") or path.startswith("/page/"):
                    path = PAGE
                if name == f"{PREFIX}answers_total":
                    out.counts[path, labels["status"]] += int(value)
                elif name == f"{PREFIX}answer_seconds_bucket":
                    out.buckets[path][float(labels["le"])] += int(value)
                elif name == f"{PREFIX}reloads_total":
                    out.gauges[f"reloads_{labels['outcome']}"] += int(value)
                elif name in (f"{PREFIX}in_flight", f"{PREFIX}memory_bytes"):
                    out.gauges[name.removeprefix(PREFIX)] += int(value)
        return out

    @property
    def paths(self) -> dict[str, int]:
        """Number of answers by path, the most frequent first."""
        found: Counter[str] = Counter()
        for (path, _), count in self.counts.items():
            found[path] += count
        return dict(found.most_common())

    @property
    def statuses(self) -> dict[str, int]:
        """Number of answers by status."""
        found: Counter[str] = Counter()
        for (_, status), count in self.counts.items():
            found[status] += count
        return dict(sorted(found.items()))

    def milliseconds(self, path: str, quantile: float) -> float | None:
        """A quantile of the time from request to answer; None without answers."""
        seconds = histogram_quantile(quantile, self.buckets.get(path, {}))
        return None if seconds is None else 1e3 * seconds


def histogram_quantile(quantile: float, buckets: Mapping[float, int]) -> float | None:
    """A quantile from cumulative buckets, interpolated within its bucket; None if all are empty.

    >>> histogram_quantile(0.5, {1.0: 10, 2.0: 30, math.inf: 30})
    1.25
    """
    total = max(buckets.values(), default=0)
    if not total:
        return None
    lower, before = 0.0, 0
    for upper, count in sorted(buckets.items()):
        if count >= quantile * total and count > before:
            if math.isinf(upper):
                return lower
            return lower + (upper - lower) * (quantile * total - before) / (count - before)
        lower, before = upper, count
    return lower
