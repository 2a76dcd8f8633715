"""What the service answers: each address parses its question, then calls the recommender."""

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

from itemrec.environment import usable_cpus
from itemrec.errors import ItemrecError
from itemrec.recommend import Recommendation, Recommendations, Recommender
from itemrec.serve.finder import Finder
from itemrec.serve.questions import MOST, SHARES, Question, answered, misread, refused
from itemrec.serve.watch import Watch

PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css")}
PAGE |= {"/page.js": ("page.js", "text/javascript")}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
}


class Item(BaseModel):
    """An item of the catalogue."""

    item: str | int
    title: str
    genres: str


class About(BaseModel):
    """Which run answers."""

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


def create_app(recommender: Recommender) -> FastAPI:
    """The service of one run, to be run by any ASGI server."""
    run = recommender.run
    ids = run.item_ids.ids.tolist()
    counts = np.bincount(run.train.indices, minlength=len(ids))
    titles, genres = (
        [""] * len(ids) if t is None else t.tolist() for t in (run.titles, run.genres)
    )
    finder = Finder(ids, None if run.titles is None else titles, counts.tolist())
    watch = Watch(users=len(run.user_ids), items=len(ids))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # scoring keeps a core busy: more threads than cores would only wait for each other
        current_default_thread_limiter().total_tokens = usable_cpus()
        yield

    app = FastAPI(
        title="itemrec",
        summary="Recommendations for known users and for anybody with a history.",
        lifespan=lifespan,
        docs_url=None,  # these pages would load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # to where the question says that it was sent
    )
    app.add_middleware(watch.middleware)
    app.add_exception_handler(ItemrecError, refused)
    app.add_exception_handler(RequestValidationError, misread)
    app.add_exception_handler(HTTPException, answered)

    # What takes no time is `async`: it needs no thread and answers however busy those are.

    @app.api_route("/health", methods=["GET", "HEAD"], operation_id="health")
    async def health() -> dict[str, str]:
        """Whether the service is up."""
        return {"status": "ok"}

    @app.get("/about")
    async def about() -> About:
        """The run behind the answers."""
        return About(
            model=str(run.metrics["model"]),
            data=str(run.dataset["name"]),
            fingerprint=str(run.dataset["fingerprint"]),
            protocol=run.protocol,
            users=len(run.user_ids),
            items=len(ids),
            explains=recommender.model.explains,
            titled=run.titles is not None,
            genres=list(recommender.genres),
            test=run.metrics["test"],
        )

    @app.post("/recommend")
    def recommend(question: Question) -> Recommendations:
        """The k best items, best first; with `explain` the exact share of each history item."""
        asked = question.model_dump()
        if question.explain:
            check_shares(recommender, question)
        return recommender.recommend(asked.pop("user"), **asked)

    @app.get("/similar")
    def similar(item: str, k: Annotated[int, Query(ge=1, le=MOST)] = 20) -> list[Recommendation]:
        """The k items most like this one."""
        return list(recommender.similar_items(item, k))

    @app.get("/items")
    def items(
        q: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST)] = 10,
    ) -> list[Item]:
        """Items by a part of their title, or by their id; without a question the most popular."""
        rows = finder.find(q, limit)
        return [Item(item=ids[row], title=titles[row], genres=genres[row]) for row in rows]

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Counts and times, as Prometheus reads them."""
        return Response(watch.exposition(), media_type=watch.media_type)

    for path, (name, kind) in PAGE.items():
        app.add_api_route(path, _file(name, kind), methods=["GET", "HEAD"], include_in_schema=False)
    return app


def check_shares(recommender: Recommender, question: Question) -> None:
    """Refuse explanations that would keep a core and the memory busy."""
    history = len(question.history or ())
    if question.user is not None:
        row = int(recommender.run.user_ids.index([question.user])[0])
        history = int(np.diff(recommender.train.indptr[row : row + 2]).sum()) if row >= 0 else 0
    if question.k * history > SHARES:
        raise ItemrecError(
            f"'explain' must be of {SHARES:,} shares at most, got {question.k} items × "
            f"{history:,} of the history: choose a smaller 'k'"
        )


def _file(name: str, kind: str) -> Any:
    content = files("itemrec.serve").joinpath(name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind, headers=SAFE)

    return send
