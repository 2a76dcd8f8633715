"""The addresses of the API: each parses its request, then calls the recommender of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from itemrec.errors import ItemrecError
from itemrec.serving.http.errors import RESPONSES
from itemrec.serving.http.feedback import FeedbackFile
from itemrec.serving.http.observe import RUN_FINGERPRINT, Life
from itemrec.serving.http.runs import Runs, ServedRun
from itemrec.serving.http.schemas import (
    ANSWER,
    ANSWERS,
    MAX_BATCH_ITEMS,
    MAX_K,
    MAX_REASONS,
    MAX_SHARES,
    About,
    Answer,
    BatchRequest,
    Error,
    FeedbackRequest,
    Item,
    RecommendRequest,
    Status,
    Stored,
)
from itemrec.serving.http.telemetry import Telemetry
from itemrec.serving.http.work_queue import WorkQueue
from itemrec.serving.recommendations import Recommendation

BLOCK = 16  # users of a batch that are served before others have their turn
FINGERPRINT: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            RUN_FINGERPRINT: {
                "description": "A hash of all that the answer depends on.",
                "schema": {"type": "string"},
            }
        }
    }
}
RunName = Annotated[str | None, Query(description="Name of a run; default: the first.")]
ItemId = Annotated[str, Query(examples=["12"])]
UserId = Annotated[str, Query(examples=["5"])]


class Api:
    """What the routes need: the runs, the queue of work, and where feedback and counts go."""

    def __init__(
        self,
        runs: Runs,
        queue: WorkQueue,
        telemetry: Telemetry,
        life: Life,
        feedback: FeedbackFile | None,
        image_hosts: Sequence[str] = (),
    ) -> None:
        self.runs, self.queue, self.telemetry = runs, queue, telemetry
        self.life, self.feedback, self.image_hosts = life, feedback, list(image_hosts)

    def router(self) -> APIRouter:
        """All routes."""
        router = APIRouter(responses=RESPONSES)
        router.add_api_route("/livez", self.livez, summary="Whether the process is up")
        router.add_api_route("/health", self.livez, include_in_schema=False)  # its name in 0.1
        router.add_api_route("/readyz", self.readyz, summary="Whether to send requests here")
        router.add_api_route("/about", self.about, summary="The run behind the service")
        signed: dict[str, Any] = {"responses": FINGERPRINT}
        router.add_api_route("/similar", self.similar, **signed, summary="Items that are like one")
        router.add_api_route("/items", self.items, **signed, summary="Search the catalogue")
        router.add_api_route("/history", self.history, **signed, summary="Items of a known user")
        post: dict[str, Any] = {"methods": ["POST"]}
        router.add_api_route(
            "/recommend",
            self.recommend,
            **post,
            **signed,
            summary="Recommend to one user",
            response_model=Answer,
        )
        router.add_api_route(
            "/recommend/batch",
            self.batch,
            **post,
            summary="Recommend to many users",
            response_model=list[Answer],
        )
        router.add_api_route(
            "/feedback",
            self.store,
            **post,
            summary="Store what a user did",
            responses={404: {"model": Error, "description": "Feedback is not collected."}},
        )
        router.add_api_route("/metrics", self.metrics, include_in_schema=False)
        return router

    # --- about the service: these need no thread and respond even if all threads are busy --------

    async def livez(self) -> Status:
        """The process is up, whether or not it is about to stop."""
        return Status()

    async def readyz(self) -> Status:
        """Ready for requests; 503 once the service is stopping."""
        if self.life.is_ending:
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
            genres=list(served.catalogue.filter.genres),
            test=data.metrics["test"],
            runs=self.runs.names,
            split=self.runs.split,
            feedback=self.feedback is not None,
            image_hosts=self.image_hosts,
        )

    async def metrics(self) -> Response:
        """Counts and times for Prometheus."""
        return Response(self.telemetry.exposition(), media_type=self.telemetry.media_type)

    # --- recommendations -------------------------------------------------------------------------

    async def recommend(self, request: Request, body: RecommendRequest) -> Response:
        """The k best items, best first; with `explain` the exact share of each history item."""
        whom = next((w for w in (body.user, body.visitor) if w is not None), body.history)
        run = self._chosen(request, body.run, whom)
        if body.explain:
            check_explanation(run, body)
        arguments = body.arguments()
        content = await self.queue.run(request, lambda: ANSWER.dump_json(_list(run, arguments)))
        return Response(content, media_type="application/json")

    async def batch(self, request: Request, body: BatchRequest) -> Response:
        """A list for each of many users, the same as one request for each."""
        if (body.users is None) == (body.histories is None):
            raise ItemrecError("give either 'users' or 'histories'")
        name = "user" if body.histories is None else "history"
        asked: list[Any] = body.users if body.histories is None else body.histories  # type: ignore[assignment]
        if len(asked) * body.k > MAX_BATCH_ITEMS:
            raise ItemrecError(
                f"a batch must ask for at most {MAX_BATCH_ITEMS:,} items, got {len(asked):,} users "
                f"× {body.k}: choose a smaller 'k' or fewer users"
            )
        shared = body.arguments()
        pairs = [(self.runs.choose(body.run, whom), whom) for whom in asked]
        answers: list[Answer] = []
        for start in range(0, len(pairs), BLOCK):
            block = pairs[start : start + BLOCK]
            answers += await self.queue.run(
                request,
                lambda block=block: [_list(run, {name: whom, **shared}) for run, whom in block],  # type: ignore[misc]
                patient=start > 0,
            )
        content = await self.queue.run(request, lambda: ANSWERS.dump_json(answers), patient=True)
        return Response(content, media_type="application/json")

    async def similar(
        self,
        request: Request,
        item: ItemId,
        k: Annotated[int, Query(ge=1, le=MAX_K)] = 20,
        run: RunName = None,
    ) -> list[Recommendation]:
        """The k most similar items, without the item itself."""
        served = self._chosen(request, run or self.runs.names[0], None)
        return await self.queue.run(
            request, lambda: list(served.recommender.similar_items(item, k))
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
    ) -> list[Item]:
        """Items by a part of their title, or by their id; without a query the most popular."""
        served = self._chosen(request, run or self.runs.names[0], None)
        return await self.queue.run(
            request, lambda: served.catalogue.find(q, limit, genre, only_new=new)
        )

    async def history(
        self,
        request: Request,
        user: UserId,
        limit: Annotated[int, Query(ge=1, le=MAX_K)] = MAX_K,
        run: RunName = None,
    ) -> list[Item]:
        """The items that a known user was trained on."""
        served = self._chosen(request, run or self.runs.names[0], None)
        return await self.queue.run(request, lambda: served.catalogue.history(user)[:limit])

    # --- feedback --------------------------------------------------------------------------------

    async def store(self, request: Request, body: FeedbackRequest) -> Stored:
        """Append events to the feedback of the service, one for each item."""
        file = self.feedback
        if file is None:
            raise HTTPException(404, "feedback is not collected: start with --feedback FOLDER")
        run = self.runs.choose(body.run, body.user)
        rows = [
            {
                "user_id": body.user,
                "item_id": item,
                "event": body.event,
                "run": run.name,
                "run_fingerprint": run.fingerprint,
            }
            for item in body.items
        ]
        await self.queue.run(request, lambda: file.append(rows))
        self.telemetry.feedback.labels(body.event, run.name).inc(len(rows))
        return Stored(stored=len(rows))

    # --- internal --------------------------------------------------------------------------------

    def _chosen(self, request: Request, name: str | None, whom: Any) -> ServedRun:
        run = self.runs.choose(name, whom)
        request.scope["log"] = {"run": run.name, "run_fingerprint": run.fingerprint}
        return run


def _list(run: ServedRun, arguments: dict[str, Any]) -> Answer:
    picks = run.recommender.recommend(**arguments)
    return Answer.of(picks, run.name, run.fingerprint)


def check_explanation(run: ServedRun, body: RecommendRequest) -> None:
    """Reject explanations that would take too much time and memory."""
    history = len(body.history or ())
    if body.user is not None:
        history = run.catalogue.history_length(body.user)
    history += len(body.dislikes or ())
    listed = min(history, body.reasons or history)
    for number, most, what in (
        (history, MAX_SHARES, "compute"),
        (listed, MAX_REASONS, "list"),
    ):
        if body.k * number > most:
            raise ItemrecError(
                f"'explain' must {what} at most {most:,} shares, got {body.k} items × "
                f"{number:,} history items: choose a smaller 'k' or 'reasons'"
            )
