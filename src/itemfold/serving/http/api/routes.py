"""The routes of the API: each validates its request, then calls the recommender of a run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from itemfold.errors import ItemfoldError
from itemfold.serving.http.access.key_check import charge
from itemfold.serving.http.admission.work_queue import WorkQueue
from itemfold.serving.http.api.compression import accepts_gzip, pack
from itemfold.serving.http.api.errors import FEEDBACK_RESPONSES, RESPONSES
from itemfold.serving.http.api.feedback_writer import FeedbackWriter
from itemfold.serving.http.api.schemas import (
    MAX_BATCH_ITEMS,
    MAX_ID,
    MAX_K,
    MAX_REASONS,
    MAX_RUN_NAME,
    MAX_SHARES,
    About,
    Answer,
    BatchRequest,
    FeedbackRequest,
    Item,
    RecommendRequest,
    Status,
    Stored,
)
from itemfold.serving.http.monitoring.observer import RUN_FINGERPRINT
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.runs import ServedRun, ServedRuns
from itemfold.serving.http.scope import LOG
from itemfold.serving.recommendations import Recommendation

SLICE_S = 0.004  # work on a batch before other requests have their turn
ANSWER, ITEMS = TypeAdapter(Answer), TypeAdapter(list[Item])
SIMILAR = TypeAdapter(list[Recommendation])
FINGERPRINT: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            RUN_FINGERPRINT: {
                "description": "A hash of everything that the answer depends on.",
                "schema": {"type": "string"},
            }
        }
    }
}
RunName = Annotated[
    str | None, Query(max_length=MAX_RUN_NAME, description="Name of a run; default: the first.")
]
ItemId = Annotated[str, Query(max_length=MAX_ID, examples=["ITEM_ID"])]
UserId = Annotated[str, Query(max_length=MAX_ID, examples=["USER_ID"])]


class Api:
    """The endpoints, with the runs, the work queue, feedback and metrics that they share."""

    def __init__(
        self,
        runs: ServedRuns,
        queue: WorkQueue,
        telemetry: Telemetry,
        stopping: threading.Event,
        feedback: FeedbackWriter | None,
        image_hosts: Sequence[str] = (),
    ) -> None:
        self.runs, self.queue, self.telemetry = runs, queue, telemetry
        self.stopping, self.feedback, self.image_hosts = stopping, feedback, list(image_hosts)

    def router(self) -> APIRouter:
        """All routes."""
        router = APIRouter(responses=RESPONSES)
        add, signed = router.add_api_route, FINGERPRINT
        add("/livez", self.livez, summary="Liveness probe")
        add("/health", self.livez, include_in_schema=False)  # its name in 0.1
        add("/readyz", self.readyz, summary="Readiness probe")
        add("/about", self.about, summary="Describe a run")
        listed: dict[str, Any] = {"responses": signed, "response_model": list[Item]}
        add(
            "/similar",
            self.similar,
            responses=signed,
            response_model=list[Recommendation],
            summary="Similar items",
        )
        add("/items", self.items, summary="Search the catalogue", **listed)
        add("/history", self.history, summary="History of a known user", **listed)
        add(
            "/recommend",
            self.recommend,
            methods=["POST"],
            responses=signed,
            summary="Recommend to one user",
            response_model=Answer,
        )
        add(
            "/recommend/batch",
            self.batch,
            methods=["POST"],
            summary="Recommend to many users",
            response_model=list[Answer],
        )
        add(
            "/feedback",
            self.store,
            methods=["POST"],
            summary="Store feedback",
            responses=FEEDBACK_RESPONSES,
        )
        add("/metrics", self.metrics, include_in_schema=False)
        return router

    # --- the service: no thread is needed, so these respond even if all threads are busy ----------

    async def livez(self) -> Status:
        """The process is up, even if it is about to stop."""
        return Status()

    async def readyz(self) -> Status:
        """Ready for requests; 503 once the service is stopping."""
        if self.stopping.is_set():
            raise HTTPException(503, "the service is stopping")
        return Status()

    async def about(self, run: RunName = None) -> About:
        """The data, the model and the counts of a run, and the names of all runs."""
        served = self.runs.choose(run or self.runs.names[0], None)
        data = served.recommender.run
        return About(
            run=served.name,
            run_fingerprint=served.fingerprint,
            since=served.since,
            model=str(data.metrics["model"]),
            data=str(data.dataset["name"]),
            fingerprint=str(data.dataset["fingerprint"]),
            protocol=data.protocol,
            users=len(data.user_ids),
            items=served.recommender.n_items,
            new_items=len(served.recommender.items.new),
            explains=served.recommender.model.explains,
            titled=served.recommender.items.titles is not None,
            genres=list(served.recommender.genres),
            test=data.metrics["test"],
            runs=self.runs.names,
            split=self.runs.split,
            feedback=self.feedback is not None,
            image_hosts=self.image_hosts,
        )

    async def metrics(self) -> Response:
        """Metrics for Prometheus."""
        return Response(self.telemetry.exposition(), media_type=self.telemetry.media_type)

    # --- recommendations -------------------------------------------------------------------------

    async def recommend(self, request: Request, body: RecommendRequest) -> Response:
        """The k best items, best first; `explain` adds the exact share of each history item."""
        keys = (key for key in (body.user, body.visitor) if key is not None)
        run = self._choose_run(request, body.run, next(keys, body.history))
        if body.explain:
            _check_explanation(run, body)
        arguments = body.arguments()
        return await self._answer(request, ANSWER, lambda: run.answer(arguments))

    async def batch(self, request: Request, body: BatchRequest) -> Response:
        """A list for each of many users, the same as in one request per user."""
        if (body.users is None) == (body.histories is None):
            raise ItemfoldError("give either 'users' or 'histories'")
        name = "user" if body.histories is None else "history"
        asked: list[Any] = body.users if body.histories is None else body.histories  # type: ignore[assignment]
        if len(asked) * body.k > MAX_BATCH_ITEMS:
            raise ItemfoldError(
                f"a batch must ask for at most {MAX_BATCH_ITEMS:,} items, got {len(asked):,} users "
                f"× {body.k}: choose a smaller 'k' or fewer users"
            )
        shared = body.arguments()
        pairs = [(self.runs.choose(body.run, one), {name: one, **shared}) for one in asked]
        left, parts = deque(pairs), []

        def work() -> None:
            """Score users until the time of a slice is over."""
            end = time.perf_counter() + SLICE_S
            while left:
                run, arguments = left.popleft()
                parts.append(ANSWER.dump_json(run.answer(arguments)))
                if time.perf_counter() >= end:  # after one user at least
                    break

        charge(request.scope, len(pairs) - 1)  # its request has paid for one user
        with self.queue.batch(len(pairs)):
            while left:
                await self.queue.run_slice(request, work)
            gzip, whole = accepts_gzip(request.headers), (b"[", b",".join(parts), b"]")
            content, headers = await asyncio.to_thread(pack, whole, gzip=gzip)
        return Response(content, media_type="application/json", headers=headers)

    async def similar(
        self,
        request: Request,
        item: ItemId,
        k: Annotated[int, Query(ge=1, le=MAX_K)] = 20,
        run: RunName = None,
    ) -> Response:
        """The k most similar items, without the item itself."""
        recommender = self._choose_run(request, run or self.runs.names[0]).recommender
        return await self._answer(
            request, SIMILAR, lambda: list(recommender.similar_items(item, k))
        )

    # --- the catalogue ---------------------------------------------------------------------------

    async def items(
        self,
        request: Request,
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_K)] = 10,
        genre: Annotated[str | None, Query(max_length=200)] = None,
        new: Annotated[bool, Query(description="Only items without interactions.")] = False,
        run: RunName = None,
    ) -> Response:
        """Items by a part of their title or by id; without a query, the most popular."""
        served = self._choose_run(request, run or self.runs.names[0])
        return await self._answer(
            request, ITEMS, lambda: served.find(q, limit, genre, only_new=new)
        )

    async def history(
        self,
        request: Request,
        user: UserId,
        limit: Annotated[int, Query(ge=1, le=MAX_K)] = MAX_K,
        run: RunName = None,
    ) -> Response:
        """The items in the training history of a known user."""
        served = self._choose_run(request, run or self.runs.names[0])
        return await self._answer(
            request, ITEMS, lambda: served.items(served.history(user)[:limit])
        )

    # --- feedback --------------------------------------------------------------------------------

    async def store(self, body: FeedbackRequest) -> Stored:
        """Store one event per item; the answer is sent once they are stored."""
        if self.feedback is None:
            raise HTTPException(404, "feedback is not collected: start with --feedback FOLDER")
        run, now = self.runs.choose(body.run, body.user), time.time()
        rows = [
            {
                "timestamp": now,
                "user_id": body.user,
                "item_id": item,
                "event": body.event,
                "run": run.name,
                "run_fingerprint": run.fingerprint,
            }
            for item in body.items
        ]
        await self.feedback.write(rows)
        self.telemetry.feedback.labels(body.event, run.name).inc(len(rows))
        return Stored(stored=len(rows))

    async def _answer(
        self, request: Request, adapter: TypeAdapter[Any], work: Callable[[], Any]
    ) -> Response:
        """Run work and serialise its result to JSON in a scoring thread."""
        gzip = accepts_gzip(request.headers)
        content, headers = await self.queue.run(
            request, lambda: pack([adapter.dump_json(work())], gzip=gzip)
        )
        return Response(content, media_type="application/json", headers=headers)

    def _choose_run(
        self, request: Request, name: str | None, assignment_key: Any = None
    ) -> ServedRun:
        """Select the run of a request; log its name, and set its fingerprint as a header."""
        run = self.runs.choose(name, assignment_key)
        request.scope[LOG] = {"run": run.name, "run_fingerprint": run.fingerprint}
        return run


def _check_explanation(run: ServedRun, body: RecommendRequest) -> None:
    """Reject explanations that would take too much time or memory."""
    history = len(body.history or ())
    if body.user is not None:
        history = len(run.history(body.user))
    history += len(body.dislikes or ())
    listed = min(history, body.reasons or history)
    for number, most, what in ((history, MAX_SHARES, "compute"), (listed, MAX_REASONS, "list")):
        if body.k * number > most:
            raise ItemfoldError(
                f"'explain' must {what} at most {most:,} shares, got {body.k} items × "
                f"{number:,} history items: choose a smaller 'k' or 'reasons'"
            )
