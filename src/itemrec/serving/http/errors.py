"""Every error is JSON with one sentence."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from itemrec.errors import ItemrecError
from itemrec.serving.http.schemas import BatchRequest, Error, FeedbackRequest, RecommendRequest

BODIES: dict[str, type[RecommendRequest | BatchRequest | FeedbackRequest]] = {
    "/recommend": RecommendRequest,
    "/recommend/batch": BatchRequest,
    "/feedback": FeedbackRequest,
}
STATUSES = {
    401: "No API key, or an unknown one.",
    405: "The address has another method.",
    408: "The request was sent too slowly.",
    413: "The request is too large.",
    421: "The Host header names another service.",
    422: "The request is wrong; the sentence names the parameter, the rule and the value.",
    429: "Too many requests with this API key.",
    503: "Too many requests are waiting, or the service is stopping.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text} for status, text in STATUSES.items()
}


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of an application in the same form."""
    app.add_exception_handler(ItemrecError, handle_itemrec_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_error)


def error_response(status: int, text: str, headers: Any = None) -> JSONResponse:
    """A response with one line of text, whatever the text contains."""
    line = " ".join(text.encode(errors="replace").decode().split())
    return JSONResponse({"error": line}, status, headers)


async def handle_itemrec_error(_: Request, error: Exception) -> JSONResponse:
    """Input that the recommender rejects."""
    return error_response(422, str(error))


async def handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Unknown paths and methods, and bodies that cannot be parsed at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        return error_response(422, _bad_body(request))
    if error.detail == "Not Found":
        return error_response(404, "there is nothing at this address: /openapi.json lists all")
    return error_response(error.status_code, error.detail, error.headers)


async def handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    """The first error in a request: the name, the rule and the value."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid" or len(where) == 1:
        if "json" not in request.headers.get("content-type", "json"):
            return error_response(422, "the request must be sent as Content-Type: application/json")
        return error_response(422, _bad_body(request))
    name, got = ".".join(where[1:])[:100], f"got {str(first.get('input'))[:100]!r}"
    if first["type"] == "extra_forbidden":
        known = ", ".join(BODIES[route_path(request.scope)].model_fields)
        return error_response(422, f"unknown setting {name!r}; known settings: {known}")
    if first["type"] == "missing":
        return error_response(422, f"{name!r} must be given")
    if first["type"] == "value_error":
        return error_response(422, f"{name!r} must be {first['ctx']['error']}, {got}")
    _, should, rule = str(first["msg"]).partition(" should ")
    problem = f"must {rule}" if should else f"is invalid ({first['msg']})"
    return error_response(422, f"{name!r} {problem}, {got}")


def route_path(scope: Any) -> str:
    """The path of the route without its version; unknown paths share one name.

    Labels are made of it: of a path that a client invents there could be any number.
    """
    path: str = getattr(scope.get("route"), "path", "other")
    return path.removeprefix("/v1")


def _bad_body(request: Request) -> str:
    body = BODIES.get(route_path(request.scope), RecommendRequest)
    return f"the request must be a JSON object such as {json.dumps(body.example)}"
