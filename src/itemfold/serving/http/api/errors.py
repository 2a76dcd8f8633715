"""Errors of the service: JSON with one sentence."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from itemfold.errors import ItemfoldError, UnknownIdError
from itemfold.serving.http.api.schemas import BatchRequest, Error, FeedbackRequest, RecommendRequest

BODIES: dict[str, type[RecommendRequest | BatchRequest | FeedbackRequest]] = {
    "/recommend": RecommendRequest,
    "/recommend/batch": BatchRequest,
    "/feedback": FeedbackRequest,
}
MAX_SENTENCE = 600  # characters: a sentence may quote what a client sent
STATUSES = {
    401: "The API key is missing or unknown.",
    404: "The user, the item or the run is unknown.",
    405: "The path does not support this method.",
    408: "The request body arrived too slowly.",
    413: "The request body is too large.",
    421: "The Host header is unknown.",
    422: "The request is invalid; the error names the parameter, the rule and the value.",
    429: "The API key is over its rate limit.",
    503: "Too many requests are waiting, or the service is stopping.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text} for status, text in STATUSES.items()
}
FEEDBACK_STATUSES = {
    404: "The run is unknown, or feedback is not collected.",
    503: "Too much feedback is waiting, or it cannot be stored at present.",
    507: "The storage of feedback is full.",
}
FEEDBACK_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text} for status, text in FEEDBACK_STATUSES.items()
}


def add_error_handlers(app: FastAPI) -> None:
    """Register handlers that return all errors of an application in the same format."""
    app.add_exception_handler(ItemfoldError, _handle_itemfold_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_error)


def error_response(status: int, text: str, headers: Any = None) -> JSONResponse:
    """A response with an error of one line, whatever the text contains."""
    line = " ".join(text.encode(errors="replace").decode().split())
    line = line if len(line) <= MAX_SENTENCE else f"{line[:MAX_SENTENCE]}…"
    return JSONResponse({"error": line}, status, headers)


async def _handle_itemfold_error(_: Request, error: Exception) -> JSONResponse:
    return error_response(404 if isinstance(error, UnknownIdError) else 422, str(error))


async def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Unknown paths and methods, and bodies that cannot be parsed at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return error_response(422, _not_an_object(request))
    if error.detail == "Not Found":
        return error_response(404, "no such path; /openapi.json lists all paths")
    return error_response(error.status_code, error.detail, error.headers)


async def _handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    """The first error in a request: the name, the rule and the value."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid" or len(where) == 1:
        if "json" not in request.headers.get("content-type", ""):
            return error_response(422, "the request must be sent as Content-Type: application/json")
        return error_response(422, _not_an_object(request))
    name, got = ".".join(where[1:])[:100], f"got {str(first.get('input'))[:100]!r}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(BODIES[route_path(request.scope)].model_fields)
        return error_response(422, f"unknown field {name!r}; known fields: {known}")
    if first["type"] == "missing":
        return error_response(422, f"{name!r} is required")
    if first["type"] == "value_error":
        return error_response(422, f"{name!r} must be {first['ctx']['error']}, {got}")
    _, should, rule = str(first["msg"]).partition(" should ")
    problem = f"must {rule}" if should else f"is invalid ({first['msg']})"
    return error_response(422, f"{name!r} {problem}, {got}")


def route_path(scope: Any) -> str:
    """The path of the matched route without its version, "other" if there is none.

    It is a label of metrics, so paths invented by clients must not appear.
    """
    path: str = getattr(scope.get("route"), "path", "other")
    return path.removeprefix("/v1")


def _not_an_object(request: Request) -> str:
    body = BODIES.get(route_path(request.scope), RecommendRequest)
    return f"the request must be a JSON object such as {json.dumps(body.example)}"
