"""What the service answers: each address parses its question, then calls the recommender."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from os import cpu_count
from typing import Annotated, Any

import numpy as np
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from itemrec.errors import ItemrecError
from itemrec.recommend import Recommendation, Recommendations, Recommender
from itemrec.serve.finder import Finder
from itemrec.serve.watch import Watch

MOST = 1000  # items a list
PAGE = {"/": ("page.html", "text/html"), "/page.css": ("page.css", "text/css")}
PAGE |= {"/page.js": ("page.js", "text/javascript")}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
}

Id = str | int


class Question(BaseModel):
    """Whom to recommend to, a known user or anybody with a history, and from what."""

    model_config = ConfigDict(extra="forbid")

    user: Id | None = None
    history: list[Id] | None = None
    k: int = Field(20, ge=1, le=MOST)
    exclude_seen: bool = True
    only: list[Id] | None = None
    without: list[Id] | None = None
    genre: str | list[str] | None = None
    explain: bool = False


class Item(BaseModel):
    """An item of the catalogue."""

    item: Id
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
        current_default_thread_limiter().total_tokens = cpu_count() or 1
        yield

    app = FastAPI(
        title="itemrec",
        summary="Recommendations for known users and for anybody with a history.",
        lifespan=lifespan,
        docs_url=None,  # these pages would load their scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(watch.middleware)
    app.add_exception_handler(ItemrecError, _refused)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(HTTPException, _answered)

    @app.get("/health")
    async def health() -> dict[str, str]:  # needs no thread: it answers however busy those are
        """Whether the service is up."""
        return {"status": "ok"}

    @app.get("/about")
    def about() -> About:
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
    def metrics() -> Response:
        """Counts and times, as Prometheus reads them."""
        return Response(watch.exposition(), media_type=watch.media_type)

    for path, (name, kind) in PAGE.items():
        app.add_api_route(path, _file(name, kind), include_in_schema=False)
    return app


def _file(name: str, kind: str) -> Any:
    content = files("itemrec.serve").joinpath(name).read_bytes()

    def send() -> Response:
        return Response(content, media_type=kind, headers=SAFE)

    return send


def _sentence(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    return _sentence(422, str(error))


async def _answered(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _sentence(error.status_code, error.detail)


async def _misread(_: Request, error: Exception) -> JSONResponse:
    """The first thing wrong with a question: its name, the rule and what was given."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    kind, got = first["type"], str(first.get("input"))[:100]
    where = [str(part) for part in first["loc"]]
    if kind == "json_invalid" or len(where) == 1:
        return _sentence(422, 'the question must be a JSON object such as {"history": ["12"]}')
    one_of = where[-1] in ("str", "int")  # an id, which may be either
    name = ".".join(where[1:-1] if one_of else where[1:])
    if kind == "extra_forbidden":
        known = ", ".join(Question.model_fields)
        return _sentence(422, f"unknown setting '{name}'; known are {known}")
    if kind == "missing":
        return _sentence(422, f"'{name}' must be given")
    rule = "text or a whole number" if one_of else str(first["msg"]).partition("should be ")[2]
    return _sentence(422, f"'{name}' must be {rule or 'otherwise'}, got {got!r}")
