"""The data of the dashboard: feedback by run, and the state of the service."""

from __future__ import annotations

import asyncio
import time
from enum import IntEnum
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from itemfold.data.feedback.store import FeedbackStore, StoreError
from itemfold.serving.http.api.errors import RESPONSES
from itemfold.serving.http.dashboard.feedback_stats import (
    Estimate,
    Version,
    VersionFeedback,
    difference,
    tally,
)
from itemfold.serving.http.dashboard.request_stats import RequestStats
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.runs import ServedRuns

DAY = 86_400.0
MAX_EVENTS = 400_000  # the newest: two seconds of reading
MIN_AGE_S = 2.0  # feedback is read again after this time …
READING_FRACTION = 0.05  # … and reading takes at most this fraction of the time
CONFIDENCE = 0.95
QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


class Days(IntEnum):
    """The last days that the dashboard can show."""

    DAY = 1
    WEEK = 7
    MONTH = 30


class Interval(BaseModel):
    """A number with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class VersionReport(BaseModel):
    """One version of a run, and the feedback on its recommendations."""

    run: str
    run_fingerprint: str
    serving: bool = Field(description="Whether it answers requests now.")
    model: str = Field(description="Empty if it is no longer served.")
    since: str = Field(description="When it was loaded; empty if it is no longer served.")
    traffic: float = Field(description="Fraction of the users that it is assigned to.")
    events: dict[str, int] = Field(description="Number of feedback events by name.")
    clicked: int = Field(description="Shown items that were clicked or liked afterwards.")
    click_through: Interval | None = Field(description="'clicked' as a fraction of shown items.")
    items_shown: int = Field(description="Number of different items shown.")
    coverage: float | None = Field(description="The same as a fraction of the catalogue.")
    top_fraction: float = Field(description="Fraction of showings of the ten most shown items.")


class Comparison(BaseModel):
    """Click-through of a run minus that of the default run."""

    run: str
    baseline: str
    difference: Interval
    verdict: Literal["better", "worse", "undecided"]


class PathReport(BaseModel):
    """Requests to one path since the start of the service."""

    path: str
    requests: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class Stats(BaseModel):
    """The numbers of the dashboard."""

    days: int
    feedback: bool = Field(description="Whether feedback is collected.")
    runs: list[VersionReport]
    comparisons: list[Comparison]
    requests: list[PathReport]
    statuses: dict[str, int] = Field(description="Number of answers by HTTP status.")
    in_flight: int
    memory_bytes: int
    reloads: dict[str, int]


class Dashboard:
    """The route `/v1/stats`.

    Args:
        runs: The served runs.
        telemetry: The metrics of all workers.
        feedback: Where feedback is stored, opened for this use alone; None: it is not collected.
    """

    def __init__(
        self, runs: ServedRuns, telemetry: Telemetry, feedback: FeedbackStore | None
    ) -> None:
        self.runs, self.telemetry, self.feedback = runs, telemetry, feedback
        self._lock = asyncio.Lock()
        self._tallies: dict[int, dict[Version, VersionFeedback]] = {}
        self._read_again: dict[int, float] = {}

    def router(self) -> APIRouter:
        """The route."""
        router = APIRouter(responses=RESPONSES)
        router.add_api_route("/stats", self.stats, summary="Numbers of the dashboard")
        return router

    async def stats(self, days: Days = Days.WEEK) -> Stats:
        """Click-through of the runs in the last days, requests, latencies and rejections."""
        found = await self._tally(days)
        metrics = RequestStats.parse(self.telemetry.exposition())
        reports = self._reports(found)
        return Stats(
            days=int(days),
            feedback=self.feedback is not None,
            runs=reports,
            comparisons=compare([one for one in reports if one.serving]),
            requests=[
                PathReport(
                    path=path,
                    requests=count,
                    **{name: metrics.milliseconds(path, q) for name, q in QUANTILES.items()},
                )
                for path, count in metrics.paths.items()
            ],
            statuses=metrics.statuses,
            in_flight=metrics.gauges["in_flight"],
            memory_bytes=metrics.gauges["memory_bytes"],
            reloads={
                name.removeprefix("reloads_"): count
                for name, count in sorted(metrics.gauges.items())
                if name.startswith("reloads_")
            },
        )

    async def _tally(self, days: int) -> dict[Version, VersionFeedback]:
        """The feedback of the last days, read in a thread and cached longer if reading is slow."""
        store = self.feedback
        if store is None:
            return {}
        async with self._lock:
            started = time.monotonic()
            if started >= self._read_again.get(days, 0.0):
                since = time.time() - DAY * days
                try:
                    self._tallies[days] = await asyncio.to_thread(
                        lambda: tally(store.recent(since, MAX_EVENTS))
                    )
                except StoreError as error:
                    raise HTTPException(503, f"feedback cannot be read: {error}") from None
                took = time.monotonic() - started
                self._read_again[days] = started + max(MIN_AGE_S, took / READING_FRACTION)
            return self._tallies[days]

    def _reports(self, found: dict[Version, VersionFeedback]) -> list[VersionReport]:
        """The served versions, then earlier ones that have feedback."""
        served = {Version(run.name, run.fingerprint): run for run in self.runs}
        out = []
        for version in dict.fromkeys((*served, *found)):
            run, feedback = served.get(version), found.get(version, VersionFeedback())
            rate, shown = feedback.click_through, len(feedback.items)
            report = VersionReport(
                run=version.run,
                run_fingerprint=version.fingerprint,
                serving=run is not None,
                model="" if run is None else str(run.recommender.run.metrics["model"]),
                since="" if run is None else run.since,
                traffic=0.0 if run is None else self.runs.traffic(run.name),
                events=dict(feedback.events),
                clicked=feedback.clicked,
                click_through=None if rate is None else _interval(rate),
                items_shown=shown,
                coverage=None if run is None else min(1.0, shown / run.recommender.n_items),
                top_fraction=feedback.top_fraction,
            )
            out.append(report)
        return out


def compare(reports: list[VersionReport]) -> list[Comparison]:
    """Each run against the first one; with several, simultaneous intervals (Bonferroni)."""
    shown = [report for report in reports if report.events["shown"]]
    if not shown or shown[0] is not reports[0]:
        return []
    baseline, *others = shown
    out = []
    for report in others:
        found = difference(
            (report.clicked, report.events["shown"]),
            (baseline.clicked, baseline.events["shown"]),
            1 - (1 - CONFIDENCE) / len(others),
        )
        verdict: Literal["better", "worse", "undecided"] = "undecided"
        if found.low > 0 or found.high < 0:
            verdict = "better" if found.low > 0 else "worse"
        out.append(
            Comparison(
                run=report.run,
                baseline=baseline.run,
                difference=_interval(found),
                verdict=verdict,
            )
        )
    return out


def _interval(found: Estimate) -> Interval:
    return Interval(**found._asdict())
