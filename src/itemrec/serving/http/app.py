"""The HTTP service as an application for any ASGI server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableSequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from itemrec.serving.http.body import WholeBody
from itemrec.serving.http.errors import add_error_handlers, handle_http_error
from itemrec.serving.http.feedback import FeedbackFile
from itemrec.serving.http.hosts import AllowedHosts
from itemrec.serving.http.keys import KeyCheck, RateLimit, is_open
from itemrec.serving.http.observe import RUN_FINGERPRINT, Life, Observe
from itemrec.serving.http.page_files import add_page
from itemrec.serving.http.reload import Reloader
from itemrec.serving.http.routes import Api
from itemrec.serving.http.runs import Runs
from itemrec.serving.http.settings import ServiceSettings
from itemrec.serving.http.telemetry import Telemetry
from itemrec.serving.http.work_queue import WorkQueue, busy

ALWAYS = ("/about", "/metrics", "/openapi.json")  # answered even if the queue is full


def create_app(
    runs: Runs,
    settings: ServiceSettings | None = None,
    *,
    folders: Mapping[str, Path] | None = None,
    device: str = "cpu",
    buckets: MutableSequence[float] | None = None,
) -> FastAPI:
    """The service of some runs, for any ASGI server.

    Args:
        runs: The runs by their names.
        settings: Keys, limits and the like.
        folders: Folders of runs that are loaded again when they change.
        device: Where runs that are loaded again are put.
        buckets: Numbers for the rate limit that workers share: two for each key.

    Returns:
        An application. `app.state.life.is_ending = True` makes it send its clients away, and
        `app.state.reloader.now()` loads the folders again.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> runs = Runs({"ease": ir.Recommender(ir.train(split, ir.models.EASE()))})
        >>> "/v1/recommend" in create_app(runs).openapi()["paths"]
        True
    """
    settings = settings or ServiceSettings()
    queue = WorkQueue(settings.threads, settings.places, settings.seconds)
    telemetry, life = Telemetry(), Life()
    reloader = Reloader(runs, folders or {}, telemetry, device, settings)
    feedback = None if settings.feedback is None else FeedbackFile(settings.feedback)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(reloader.watch())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        queue.close()

    app = FastAPI(
        title="itemrec",
        summary="Recommendations for known users and for new users with a history.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # redirects would trust the Host header of the request
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.life, app.state.reloader = life, reloader
    app.state.queue, app.state.telemetry = queue, telemetry
    router = Api(runs, queue, telemetry, life, feedback, settings.image_hosts).router()
    app.include_router(router, prefix="/v1")
    app.include_router(router, include_in_schema=False)  # the addresses of 0.1
    add_page(app, settings.image_hosts)
    add_error_handlers(app)
    for run in runs:
        telemetry.note_run(run)
    # the last one added is the outermost
    app.add_middleware(WholeBody)
    app.add_middleware(_Admission, queue=queue)
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys, limit=_limit(settings, buckets))
    if settings.cors:
        app.add_middleware(CORSMiddleware, **_cors(settings))
    app.add_middleware(AllowedHosts, names=settings.allowed_hosts)
    app.add_middleware(Observe, telemetry=telemetry, life=life, access_log=settings.access_log)
    return app


class _Admission:
    """An application that refuses work before it reads it, if nobody else may wait."""

    def __init__(self, app: ASGIApp, queue: WorkQueue) -> None:
        self.app, self.queue = app, queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.queue.is_full and _is_work(scope["path"]):
            response = await handle_http_error(None, busy())  # type: ignore[arg-type]
            await response(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _is_work(path: str) -> bool:
    return not is_open(path) and path.removeprefix("/v1") not in ALWAYS


def _limit(settings: ServiceSettings, buckets: MutableSequence[float] | None) -> RateLimit | None:
    if settings.rate_limit is None:
        return None
    if buckets is None:
        return RateLimit(settings.rate_limit, [0.0] * (2 * len(settings.api_keys)))
    lock = buckets.get_lock()  # type: ignore[attr-defined]
    return RateLimit(settings.rate_limit, buckets, lock)


def _cors(settings: ServiceSettings) -> dict[str, Any]:
    return {
        "allow_origins": list(settings.cors),
        "allow_methods": ["GET", "POST"],
        "allow_headers": ["Authorization", "Content-Type", "X-Request-ID"],
        "expose_headers": ["X-Request-ID", "Retry-After", RUN_FINGERPRINT],
    }
