"""The HTTP service as an ASGI application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, MutableSequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from itemfold.data.feedback.store import open_store
from itemfold.serving.http.access.api_keys import ApiKeys
from itemfold.serving.http.access.hosts import HostCheck
from itemfold.serving.http.access.key_check import KeyCheck
from itemfold.serving.http.access.rate_limit import RateLimit
from itemfold.serving.http.admission.body_limit import BodyLimit
from itemfold.serving.http.admission.load_shedding import LoadShedding
from itemfold.serving.http.admission.work_queue import WorkQueue
from itemfold.serving.http.api.errors import add_error_handlers
from itemfold.serving.http.api.feedback_writer import FeedbackWriter
from itemfold.serving.http.api.routes import Api
from itemfold.serving.http.dashboard.routes import Dashboard
from itemfold.serving.http.monitoring.metrics_port import MetricsPort
from itemfold.serving.http.monitoring.observer import RUN_FINGERPRINT, RequestObserver
from itemfold.serving.http.monitoring.telemetry import Telemetry
from itemfold.serving.http.page_routes import add_page
from itemfold.serving.http.processes.reloader import Reloader
from itemfold.serving.http.runs import ServedRun, ServedRuns
from itemfold.serving.http.settings import ServiceSettings


def create_app(
    runs: ServedRuns,
    settings: ServiceSettings | None = None,
    *,
    folders: Mapping[str, Path] | None = None,
    device: str = "cpu",
    buckets: MutableSequence[float] | None = None,
) -> FastAPI:
    """The service as an application for any ASGI server.

    Args:
        runs: The runs by name.
        settings: API keys, limits and other settings.
        folders: Run folders to reload when they change.
        device: Device of reloaded runs.
        buckets: Token buckets of the rate limit that workers share, two numbers per key.

    Returns:
        An application. `app.state.stopping.set()` makes it ask clients to disconnect, and
        `app.state.reloader.reload_all()` reloads the folders.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> runs = ServedRuns({"ease": ir.Recommender(ir.train(split, ir.models.EASE()))})
        >>> "/v1/recommend" in create_app(runs).openapi()["paths"]
        True
    """
    settings = settings or ServiceSettings()
    queue = WorkQueue(settings.threads, settings.limits)
    telemetry, stopping = Telemetry(), threading.Event()
    reloader = Reloader(runs, folders or {}, telemetry, device, settings)
    feedback = None
    if settings.feedback is not None:
        store = open_store(settings.feedback, settings.feedback_mb * 2**20)
        store.create()
        feedback = FeedbackWriter(store, telemetry, settings.feedback_days)
    tracing = None
    if settings.otel:
        from itemfold.serving.http.monitoring.tracing import Tracing, otlp_exporter

        tracing = Tracing(otlp_exporter())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(reloader.watch())
        if feedback is not None:
            feedback.start()
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        if feedback is not None:
            await asyncio.to_thread(feedback.close)
        if tracing is not None:
            await asyncio.to_thread(tracing.close)
        queue.close()

    app = FastAPI(
        title="itemfold",
        summary="Recommendations for known users and for new users with a history.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # redirects would trust the Host header of the request
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.stopping, app.state.reloader = stopping, reloader
    app.state.queue, app.state.telemetry = queue, telemetry
    router = Api(runs, queue, telemetry, stopping, feedback, settings.image_hosts).router()
    app.include_router(router, prefix="/v1")
    app.include_router(router, include_in_schema=False)  # the paths of 0.1
    read = None if settings.feedback is None else open_store(settings.feedback)
    app.include_router(Dashboard(runs, telemetry, read).router(), prefix="/v1")
    describe = app.openapi
    app.openapi = lambda: _with_known_ids(describe(), next(iter(runs)))  # type: ignore[method-assign]
    add_page(app, settings.image_hosts)
    add_error_handlers(app)
    for run in runs:
        telemetry.describe_run(run)
    _add_middleware(app, settings, buckets)
    app.add_middleware(
        RequestObserver,
        telemetry=telemetry,
        stopping=stopping,
        queue=queue,
        access_log=settings.access_log,
        tracing=tracing,
    )
    return app


def _add_middleware(
    app: FastAPI, settings: ServiceSettings, buckets: MutableSequence[float] | None
) -> None:
    """Add middleware that may reject requests, from the innermost to the outermost."""
    state = app.state
    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(LoadShedding, queue=state.queue)
    if settings.needs_key:
        limit = None
        if settings.rate_limit is not None:
            lock = None if buckets is None else buckets.get_lock()  # type: ignore[attr-defined]
            full = [0.0] * (2 * settings.max_keys)
            limit = RateLimit(settings.rate_limit, full if buckets is None else buckets, lock)
        keys = ApiKeys(settings.api_keys, settings.api_key_file)
        app.add_middleware(KeyCheck, keys=keys, limit=limit)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After", RUN_FINGERPRINT],
        )
    if settings.metrics_port is not None:
        app.add_middleware(MetricsPort, telemetry=state.telemetry, port=settings.metrics_port)
    app.add_middleware(HostCheck, names=settings.allowed_hosts)


def _with_known_ids(document: dict[str, Any], run: ServedRun) -> dict[str, Any]:
    """The OpenAPI document with an item and a user of a run in its examples."""
    known = run.recommender.run
    ids = {"ITEM_ID": str(known.item_ids.ids[0]), "USER_ID": str(known.user_ids.ids[0])}

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(part) for key, part in value.items()}
        if isinstance(value, list):
            return [filled(part) for part in value]
        return ids.get(value, value) if isinstance(value, str) else value

    out: dict[str, Any] = filled(document)
    return out
