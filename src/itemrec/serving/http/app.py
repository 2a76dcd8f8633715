"""The HTTP service: each route parses its request, then calls the recommender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from itemrec.errors import ItemrecError
from itemrec.serving.http.schemas import (
    MAX_K,
    MAX_SHARES,
    RecommendRequest,
    handle_http_error,
    handle_itemrec_error,
    handle_validation_error,
)
from itemrec.serving.http.telemetry import Telemetry
from itemrec.serving.http.title_search import TitleSearch
from itemrec.serving.recommendations import Recommendation, Recommendations
from itemrec.serving.recommender import Recommender
from itemrec.threads import usable_cpus

PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css")}
PAGE |= {"/page.js": ("page.js", "text/javascript")}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
}


class Item(BaseModel):
    """An item of the catalogue."""

    item: str | int
    title: str
    genres: str


class About(BaseModel):
    """The run behind the service."""

    model: str
    data: str
    fingerprint: str
    protocol: str
    users: int
    items: int
    explains: bool
    titled: bool
    genres: list[str]
    test: dict[str, float]

    @classmethod
    def of(cls, recommender: Recommender) -> About:
        """What is known about the run of a recommender."""
        run = recommender.run
        return cls(
            model=str(run.metrics["model"]),
            data=str(run.dataset["name"]),
            fingerprint=str(run.dataset["fingerprint"]),
            protocol=run.protocol,
            users=len(run.user_ids),
            items=len(run.item_ids),
            explains=recommender.model.explains,
            titled=run.titles is not None,
            genres=list(recommender.genres),
            test=run.metrics["test"],
        )


def create_app(recommender: Recommender) -> FastAPI:
    """The service of one run, for any ASGI server."""
    run = recommender.run
    ids = run.item_ids.ids.tolist()
    counts = np.bincount(run.train.indices, minlength=len(ids))
    titles, genres = (
        [""] * len(ids) if t is None else t.tolist() for t in (run.titles, run.genres)
    )
    search = TitleSearch(ids, None if run.titles is None else titles, counts.tolist())
    telemetry = Telemetry(users=len(run.user_ids), items=len(ids))

    app = _bare_app(telemetry)

    # Cheap routes are `async`: they need no thread and respond even if all threads are busy.

    @app.api_route("/health", methods=["GET", "HEAD"], operation_id="health")
    async def health() -> dict[str, str]:
        """Whether the service is up."""
        return {"status": "ok"}

    @app.get("/about")
    async def about() -> About:
        """The run behind the service."""
        return About.of(recommender)

    @app.post("/recommend")
    def recommend(request: RecommendRequest) -> Recommendations:
        """The k best items, best first; with `explain` the exact share of each history item."""
        arguments = request.model_dump()
        if request.explain:
            check_shares(recommender, request)
        return recommender.recommend(arguments.pop("user"), **arguments)

    @app.get("/similar")
    def similar(item: str, k: Annotated[int, Query(ge=1, le=MAX_K)] = 20) -> list[Recommendation]:
        """The k most similar items."""
        return list(recommender.similar_items(item, k))

    @app.get("/items")
    def items(
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_K)] = 10,
    ) -> list[Item]:
        """Items by a part of their title, or by their id; without a query the most popular."""
        rows = search.find(q, limit)
        return [Item(item=ids[row], title=titles[row], genres=genres[row]) for row in rows]

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Counts and times for Prometheus."""
        return Response(telemetry.exposition(), media_type=telemetry.media_type)

    for path, (name, kind) in PAGE.items():
        app.add_api_route(path, _file(name, kind), methods=["GET", "HEAD"], include_in_schema=False)
    return app


def _bare_app(telemetry: Telemetry) -> FastAPI:
    """The application without routes: threads, telemetry, and one form for all errors."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # scoring is CPU-bound: more threads than cores would only wait for each other
        current_default_thread_limiter().total_tokens = usable_cpus()
        yield

    app = FastAPI(
        title="itemrec",
        summary="Recommendations for known users and for new users with a history.",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # redirects would trust the Host header of the request
    )
    app.add_middleware(telemetry.middleware)
    app.add_exception_handler(ItemrecError, handle_itemrec_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_error)
    return app


def check_shares(recommender: Recommender, request: RecommendRequest) -> None:
    """Reject explanations that would take too much time and memory."""
    history = len(request.history or ())
    if request.user is not None:
        row = int(recommender.run.user_ids.index([request.user])[0])
        history = int(np.diff(recommender.train.indptr[row : row + 2]).sum()) if row >= 0 else 0
    if request.k * history > MAX_SHARES:
        raise ItemrecError(
            f"'explain' must give at most {MAX_SHARES:,} shares, got {request.k} items × "
            f"{history:,} history items: choose a smaller 'k'"
        )


def _file(name: str, kind: str) -> Any:
    content = files("itemrec.serving.http").joinpath(name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return send
